//! Draws call stacks as a flame graph in SVG, with searchable names and the page's colours, without a script.
//!
//! Threads or other groups are at the top, and callers above callees, so that outermost frames are visible
//! however deep stacks are. Width is weight; neighbours are sorted by name.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::chains::StackTree;
use crate::folded::Count;
use crate::functions::{CodePlace, FunctionId, NamedStacks};
use crate::stacks::{Grouping, Label, Stacks};

/// The width of the picture, the height of a frame, and the width of the narrowest frame, pixels.
const WIDTH: f64 = 1200.0;
const LINE: usize = 17;
const LEAST: f64 = 0.5;
const MARGIN: usize = 10;
const TITLE: usize = 30;
/// The maximum length of a name; a frame shows fewer characters.
const LONGEST: usize = 4096;

/// The contents of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'s> {
    /// The functions of the stacks.
    pub named: &'s NamedStacks,
    /// The stacks.
    pub stacks: &'s Stacks,
    /// The groups of the stacks, which are the outermost frames.
    pub grouping: Grouping,
    /// The node of each stack.
    pub placed: &'s [u32],
    /// The event.
    pub event: Option<u32>,
    /// The title.
    pub title: &'s str,
}

#[derive(Default)]
struct Frame<'s> {
    name: &'s str,
    colour: [u8; 3],
    weight: u64,
    /// By the name and number of the function.
    called: BTreeMap<(&'s str, u32), usize>,
}

/// The numbers of drawn frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// In the picture.
    pub frames: u64,
    /// Too narrow to draw.
    pub left_out: u64,
}

/// Writes the picture.
///
/// # Errors
///
/// Those of `out`.
pub fn write(picture: Picture<'_>, out: &mut dyn Write) -> io::Result<Drawn> {
    let texts = |label: &Label| label.texts(picture.grouping).into_iter().flatten().collect();
    let groups: Vec<Vec<String>> = picture.stacks.labels.iter().map(texts).collect();
    let frames = frames(picture, &groups);
    let scale = WIDTH / frames[0].weight.max(1) as f64;
    let (mut shown, mut open, mut left_out) = (Vec::new(), vec![(0, 0, 0)], 0);
    while let Some((at, line, start)) = open.pop() {
        let frame = &frames[at];
        if frame.weight as f64 * scale < LEAST {
            left_out += 1;
            continue;
        }
        shown.push((at, line, start));
        let mut next = start;
        for &kid in frame.called.values() {
            open.push((kid, line + 1, next));
            next += frames[kid].weight;
        }
    }
    let lines = shown.iter().map(|(_, line, _)| line + 1).max().unwrap_or(1);
    let (width, height) = (WIDTH as usize + 2 * MARGIN, lines * LINE + TITLE + 2 * MARGIN);
    writeln!(
        out,
        r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<style>text {{ font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #20242b; dominant-baseline: central }}</style>
<rect width="{width}" height="{height}" fill="#ffffff"/>
<text x="{MARGIN}" y="{middle}" style="font-size: 16px">{title}</text>"##,
        title = escaped(picture.title),
        middle = MARGIN + TITLE / 3,
    )?;
    let all = frames[0].weight.max(1) as f64;
    for &(at, line, start) in &shown {
        let Frame { name, colour: [red, green, blue], weight, .. } = &frames[at];
        let (name, share) = (escaped(name), 100.0 * *weight as f64 / all);
        let x = MARGIN as f64 + start as f64 * scale;
        let y = MARGIN + TITLE + line * LINE;
        let wide = *weight as f64 * scale;
        // A nested `svg` clips its text.
        writeln!(
            out,
            r##"<svg x="{x:.1}" y="{y}" width="{wide:.1}" height="{LINE}"><title>{name} ({share:.2}%)</title><rect width="{inner:.1}" height="{high}" fill="#{red:02x}{green:02x}{blue:02x}"/><text x="3" y="{half}">{name}</text></svg>"##,
            inner = (wide - 0.5).max(LEAST),
            high = LINE - 1,
            half = LINE / 2,
        )?;
    }
    writeln!(out, "</svg>")?;
    out.flush()?;
    Ok(Drawn { frames: shown.len() as u64, left_out })
}

/// The first frame stands for all samples.
fn frames<'s>(picture: Picture<'s>, groups: &'s [Vec<String>]) -> Vec<Frame<'s>> {
    let Picture { named, stacks, placed, event, .. } = picture;
    let mut sums: BTreeMap<(u32, Option<u32>), u64> = BTreeMap::new();
    for (row, weight) in stacks.rows.iter().filter(|(row, _)| event.is_none_or(|event| event == row.event)) {
        let weight = Count::Period.of(weight);
        *sums.entry((row.label, placed.get(row.stack as usize).copied())).or_default() += weight;
    }
    let functions: Vec<&FunctionId> = named.functions.iter().collect();
    let mut frames = vec![Frame { name: "all", colour: PLAIN, ..Frame::default() }];
    let mut path = Vec::new();
    for ((label, node), weight) in sums {
        let mut at = node.filter(|node| *node != StackTree::ROOT);
        while let Some(&(parent, function)) = at.and_then(|node| named.nodes.get_index(node as usize)) {
            path.push(function);
            at = (parent != StackTree::ROOT).then_some(parent);
        }
        let groups = groups.get(label as usize).into_iter().flatten().map(|group| (group.as_str(), u32::MAX));
        let mut frame = 0;
        frames[0].weight = frames[0].weight.saturating_add(weight);
        let functions =
            path.drain(..).rev().map(|function| (functions[function as usize].name.as_ref(), function));
        for key in groups.chain(functions) {
            let next = frames.len();
            let kid = *frames[frame].called.entry(key).or_insert(next);
            if kid == next {
                let colour = named.functions.get_index(key.1 as usize).map_or(PLAIN, colour);
                frames.push(Frame { name: key.0, colour, ..Frame::default() });
            }
            frames[kid].weight = frames[kid].weight.saturating_add(weight);
            frame = kid;
        }
    }
    frames
}

/// For frames that are not functions.
const PLAIN: [u8; 3] = [0xd9, 0xdd, 0xe3];

/// The colour of a function on the page, see `html/colours.js` and `html/page.css`.
fn colour(function: &FunctionId) -> [u8; 3] {
    let (hue, saturation, light): (f64, u8, f64) = match (function.nameless, function.inlined, function.place)
    {
        (true, ..) => (220.0, 8, 80.0),
        (_, true, _) => (174.0, 40, 72.0),
        (.., CodePlace::User) => (32.0, 78, 68.0),
        (.., CodePlace::Kernel) => (214.0, 62, 76.0),
        (.., CodePlace::Jit) => (138.0, 42, 70.0),
    };
    let hash = function.name.chars().fold(7_u32, |hash, c| hash.wrapping_mul(31).wrapping_add(u32::from(c)));
    rgb(hue + f64::from(hash % 23) - 11.0, saturation, light + f64::from((hash >> 8) % 9) - 4.0)
}

fn rgb(hue: f64, saturation: u8, light: f64) -> [u8; 3] {
    let light = light / 100.0;
    let range = f64::from(saturation) / 100.0 * light.min(1.0 - light);
    [0.0, 8.0, 4.0].map(|part| {
        let at = (part + hue.rem_euclid(360.0) / 30.0) % 12.0;
        (255.0 * (light - range * (at - 3.0).min(9.0 - at).clamp(-1.0, 1.0))).round() as u8
    })
}

/// Text between tags. Replaces characters that are invalid in XML or change the direction of text.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars().take(LONGEST) {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_css() {
        assert_eq!(rgb(0.0, 100, 50.0), [255, 0, 0]);
        assert_eq!(rgb(120.0, 100, 25.0), [0, 128, 0]);
        assert_eq!(rgb(220.0, 8, 80.0), [0xc8, 0xcb, 0xd0]);
    }

    #[test]
    fn names_stay_text() {
        assert_eq!(escaped("a<b>&\u{202e}\u{1}"), "a&lt;b&gt;&amp;\u{fffd}\u{fffd}");
        assert_eq!(escaped(&"x".repeat(9999)), "x".repeat(LONGEST) + "…");
    }

    #[test]
    fn frames_are_as_wide_as_their_weight_and_the_smallest_are_left_out() {
        use crate::functions::tests::recursive;
        use crate::stacks::{Label, Row, Weight};
        let mut stacks = Stacks::default();
        stacks.labels.insert(Label { comm: Some(b"p<"[..].into()), ..Label::default() });
        for (event, stack, period) in
            [(0, 0, 1000), (0, 2, 250), (0, 4, 1149), (0, 5, 1), (0, StackTree::ROOT, 0), (1, 1, 9000)]
        {
            let row = Row { event, label: 0, stack, time: None };
            stacks.add(row, Weight { samples: 0, period });
        }
        let (named, grouping) = (recursive(), Grouping { comm: true, ..Grouping::default() });
        let placed = [0, 1, 2, 3, 4, 5];
        let mut text = Vec::new();
        let picture = Picture {
            named: &named,
            stacks: &stacks,
            grouping,
            placed: &placed,
            event: Some(0),
            title: "a & b",
        };
        assert_eq!(write(picture, &mut text).unwrap(), Drawn { frames: 7, left_out: 0 });
        let text = String::from_utf8(text).unwrap();
        let frames = text.lines().filter(|line| line.starts_with("<svg x=")).map(|line| {
            let (place, rest) = line.split_once("><title>").unwrap();
            format!("{place} {}", rest.split_once("</title>").unwrap().0)
        });
        let expected = [
            "<svg x=\"10.0\" y=\"40\" width=\"1200.0\" height=\"17\" all (100.00%)",
            "<svg x=\"10.0\" y=\"57\" width=\"1200.0\" height=\"17\" p&lt; (100.00%)",
            "<svg x=\"10.5\" y=\"74\" width=\"1199.5\" height=\"17\" main (99.96%)",
            "<svg x=\"135.5\" y=\"91\" width=\"574.5\" height=\"17\" b (47.88%)",
            "<svg x=\"10.5\" y=\"91\" width=\"125.0\" height=\"17\" a (10.42%)",
            "<svg x=\"10.5\" y=\"108\" width=\"125.0\" height=\"17\" b (10.42%)",
            "<svg x=\"10.0\" y=\"74\" width=\"0.5\" height=\"17\" 0x1 (0.04%)",
        ];
        assert_eq!(frames.collect::<Vec<_>>(), expected);
        assert!(text.contains("height=\"135\" viewBox=\"0 0 1220 135\""), "{text}");
        let all = Picture { event: None, ..picture };
        assert_eq!(write(all, &mut Vec::new()).unwrap().left_out, 1);
    }
}
