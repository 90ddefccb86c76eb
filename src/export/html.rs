//! Writes one recording, or a comparison of two, as a page that opens in a browser without a server or a
//! request.
//!
//! The page is `html/page.html` with the style, the scripts and the data, which is compressed and in base64,
//! so that nothing in it can be read as markup. Compressed with gzip, the data is:
//!
//! | part | contents |
//! |---|---|
//! | the length of the next part | u32, little-endian |
//! | [`Head`] | JSON |
//! | columns, one after the other | LEB128 numbers; [`Head`] has the length of each in bytes |
//!
//! The first columns describe functions (file + 1 or 0, kind) and nodes of the stacks (distance to the
//! parent, or 0; function). The others describe the rows of each recording, sorted by time: time after the
//! previous row, in steps; label, event, node + 1 or 0, number of samples, sum of their periods, number of
//! the instruction + 1 or 0, counted through all of `code`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use perfx_format::Time;
use perfx_format::event_name::generic_name;
use perfx_resolve::Facts;
use serde::{Deserialize, Serialize};

use crate::annotate::{Annotated, Code};
use crate::chains::StackTree;
use crate::functions::{CodePlace, NamedStacks};
use crate::stacks::{Stacks, Weight};

const TEMPLATE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = concat!(
    include_str!("html/data.js"),
    include_str!("html/shape.js"),
    include_str!("html/sums.js"),
    include_str!("html/verdict.js"),
    include_str!("html/colours.js"),
    include_str!("html/time.js"),
    include_str!("html/stacks.js"),
    include_str!("html/chart.js"),
    include_str!("html/flame.js"),
    include_str!("html/code.js"),
    include_str!("html/tables.js"),
    include_str!("html/link.js"),
    include_str!("html/front.js"),
);

/// Base64 of SHA-256 of script and style: the page allows no others. A test prints them after a change.
const SCRIPT_HASH: &str = "Rl5S2tRCALgVHqicQJa23ao5U4wm9FmxAh4E5aRp/Y8=";
const STYLE_HASH: &str = "V4o0lHbkA6ZtodUU6nuFJyJ/X3wXeNGokEmiI/q98fg=";

/// The start of the data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The names of the functions.
    pub functions: Vec<String>,
    /// The files with code.
    pub files: Vec<File>,
    /// One, or two that are compared.
    pub recordings: Vec<RecordingHead>,
    /// The functions whose code is shown.
    pub code: Vec<Code>,
    /// The bytes of each column.
    pub columns: Vec<usize>,
}

/// A file with code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct File {
    /// Its path.
    pub path: String,
    /// True if symbols of it were found.
    pub has_symbols: bool,
}

/// A recording.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordingHead {
    /// Facts about the recording, shown on the page.
    pub about: serde_json::Value,
    /// Its events.
    pub events: Vec<EventHead>,
    /// The event shown first.
    pub first_event: Option<u32>,
    /// The name of the thread; process, thread and CPU; path of the cgroup.
    pub labels: Vec<(String, [Option<u32>; 3], Option<String>)>,
    /// The earliest time of a row, ns, in decimal, because browsers round large numbers.
    pub first_time: String,
    /// The unit of times, ns.
    pub step: u64,
    /// The number of rows without a time, which are last.
    pub timeless: usize,
    /// The number of rows.
    pub rows: usize,
}

/// An event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EventHead {
    /// Its name.
    pub name: String,
    /// Unit of a period: `ns`, `samples` or the event.
    pub unit: String,
    /// A sample lasts for its period, from its own time on.
    pub lasts: bool,
}

/// A recording for the page.
#[derive(Debug)]
pub struct Side<'s> {
    /// Its stacks, grouped by name, process, thread, CPU and time.
    pub stacks: &'s Stacks,
    /// The facts of its survey.
    pub facts: &'s Facts,
    /// The node of each stack.
    pub placed: &'s [u32],
    /// The event shown first.
    pub shown: Option<u32>,
    /// The functions whose code is shown.
    pub annotated: Annotated,
    /// Facts about the recording, shown on the page.
    pub about: serde_json::Value,
}

/// Packs the data of the page.
///
/// # Errors
///
/// Those of writing to memory, which does not fail.
pub fn pack(named: &NamedStacks, mut sides: Vec<Side<'_>>) -> io::Result<Vec<u8>> {
    let code = sides.iter_mut().flat_map(|side| std::mem::take(&mut side.annotated.functions)).collect();
    let mut columns = Columns::default();
    columns.add(named.functions.iter().map(|function| function.file.map_or(0, |file| u64::from(file) + 1)));
    columns.add(named.functions.iter().map(|function| {
        let place = match function.place {
            CodePlace::User => 0,
            CodePlace::Kernel => 1,
            CodePlace::Jit => 2,
        };
        place | u64::from(function.inlined) << 2 | u64::from(function.nameless) << 3
    }));
    columns.add((0..).zip(&named.nodes).map(|(node, &(parent, _))| match parent {
        StackTree::ROOT => 0,
        parent => node - u64::from(parent),
    }));
    columns.add(named.nodes.iter().map(|&(_, function)| function.into()));
    let mut recordings: Vec<RecordingHead> =
        sides.into_iter().map(|side| recording(side, &mut columns)).collect();
    share_names(&mut recordings);
    let file =
        |file: &crate::functions::CodeFile| File { path: file.path.clone(), has_symbols: file.has_symbols };
    let head = Head {
        functions: named.functions.iter().map(|function| function.name.to_string()).collect(),
        files: named.files.values().map(file).collect(),
        recordings,
        code,
        columns: columns.sizes,
    };
    let head = serde_json::to_vec(&head)?;
    // Without a time and a name, the same data has the same bytes.
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    packed.write_all(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes())?;
    packed.write_all(&head)?;
    packed.write_all(&columns.bytes)?;
    packed.finish()
}

/// Renames events of later recordings as in the first: they are compared even if modifiers or PMUs differ.
fn share_names(recordings: &mut [RecordingHead]) {
    let Some((first, others)) = recordings.split_first_mut() else { return };
    let has = |events: &[EventHead], name: &str| events.iter().any(|event| event.name == name);
    for other in others {
        for at in 0..other.events.len() {
            let name = &other.events[at].name;
            let generic = generic_name(name.as_bytes());
            let same = first.events.iter().find(|event| generic_name(event.name.as_bytes()) == generic);
            if let Some(same) =
                same.filter(|same| !has(&first.events, name) && !has(&other.events, &same.name))
            {
                other.events[at].name = same.name.clone();
            }
        }
    }
}

/// The key by which rows are sorted and added up: time, event, label, node + 1, instruction + 1.
type Place = ((bool, Option<Time>), u32, u32, u32, u64);

fn recording(side: Side<'_>, columns: &mut Columns) -> RecordingHead {
    let Side { stacks, facts, placed, shown, annotated, about } = side;
    // Stacks that differ only in addresses have the same node.
    let mut sums: Vec<(Place, Weight)> = stacks
        .rows
        .iter()
        .map(|(row, &weight)| {
            let node = placed.get(row.stack as usize).map_or(0, |node| node + 1);
            let spot = annotated.spot(row.stack).map_or(0, |spot| spot + 1);
            // Rows without a time come last.
            let time = (row.time.is_none(), row.time);
            ((time, row.event, row.label, node, spot), weight)
        })
        .collect();
    sums.sort_unstable_by_key(|&(place, _)| place);
    sums.dedup_by(|(place, weight), (kept, sum)| {
        let same = place == kept;
        if same {
            *sum += *weight;
        }
        same
    });
    let step = stacks.step.max(1);
    let first = sums.first().and_then(|&(((_, time), ..), _)| time).map_or(0, Time::ns);
    let mut last = first;
    columns.add(sums.iter().map(|&(((_, time), ..), _)| {
        let time = time.map_or(last, Time::ns);
        (time - std::mem::replace(&mut last, time)) / step
    }));
    columns.add(sums.iter().map(|&((_, _, label, ..), _)| label.into()));
    columns.add(sums.iter().map(|&((_, event, ..), _)| event.into()));
    columns.add(sums.iter().map(|&((.., node, _), _)| node.into()));
    columns.add(sums.iter().map(|(_, weight)| weight.samples));
    columns.add(sums.iter().map(|(_, weight)| weight.period));
    columns.add(sums.iter().map(|&((.., spot), _)| spot));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let label = |label: &crate::stacks::Label| {
        let comm = text(label.comm.as_deref().unwrap_or_default());
        (comm, [label.pid, label.tid, label.cpu], label.cgroup.as_deref().map(text))
    };
    let sampled = stacks.sampled(facts);
    let event = |(number, event): (u32, &perfx_resolve::EventFacts)| EventHead {
        name: sampled.name(number).into_owned(),
        unit: sampled.unit(number).into_owned(),
        lasts: event.lasts(),
    };
    RecordingHead {
        about,
        events: (0..).zip(&facts.events).map(event).collect(),
        first_event: shown,
        labels: stacks.labels.iter().map(label).collect(),
        first_time: first.to_string(),
        step,
        timeless: sums.iter().filter(|&&(((is_timeless, _), ..), _)| is_timeless).count(),
        rows: sums.len(),
    }
}

#[derive(Default)]
struct Columns {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl Columns {
    fn add(&mut self, numbers: impl Iterator<Item = u64>) {
        let start = self.bytes.len();
        for mut number in numbers {
            while number > 0x7f {
                self.bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            self.bytes.push(number as u8);
        }
        self.sizes.push(self.bytes.len() - start);
    }
}

/// Writes the page with packed data.
///
/// # Errors
///
/// Those of `out`.
pub fn write(packed: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let parts = BTreeMap::from([
        ("script", SCRIPT),
        ("style", STYLE),
        ("script-hash", SCRIPT_HASH),
        ("style-hash", STYLE_HASH),
    ]);
    for (at, part) in TEMPLATE.split("{{").enumerate() {
        let (name, rest) = part.split_once("}}").filter(|_| at > 0).unwrap_or(("", part));
        match parts.get(name) {
            Some(text) => out.write_all(text.as_bytes())?,
            None if name == "data" => write_base64(packed, out)?,
            None => {}
        }
        out.write_all(rest.as_bytes())?;
    }
    out.flush()
}

fn write_base64(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        let mut digits = [18, 12, 6, 0].map(|shift| DIGITS[(word >> shift) as usize % 64]);
        digits[three.len() + 1..].fill(b'=');
        out.write_all(&digits)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut text = Vec::new();
            write_base64(bytes.as_bytes(), &mut text).unwrap();
            assert_eq!(text, expected.as_bytes());
        }
    }

    #[test]
    fn numbers_of_columns_have_seven_bits_a_byte_the_lowest_first() {
        let mut columns = Columns::default();
        columns.add([0, 1, 127, 128, 300, u64::MAX].into_iter());
        columns.add([16_384].into_iter());
        columns.add([].into_iter());
        let expected = [&[0, 1, 127, 0x80, 1, 0xac, 2][..], &[0xff; 9], &[1, 0x80, 0x80, 1]].concat();
        assert_eq!((columns.bytes, columns.sizes), (expected, vec![17, 3, 0]));
    }

    #[test]
    fn an_event_of_the_second_recording_gets_the_name_of_the_first() {
        let head = |names: &[&str]| {
            let event = |name: &&str| EventHead { name: name.to_string(), unit: String::new(), lasts: false };
            RecordingHead {
                about: serde_json::Value::Null,
                events: names.iter().map(event).collect(),
                first_event: None,
                labels: Vec::new(),
                first_time: String::new(),
                step: 1,
                timeless: 0,
                rows: 0,
            }
        };
        for (first, second, expected) in [
            (&["cycles:u"][..], &["cycles"][..], &["cycles:u"][..]),
            (&["cycles:u", "cycles"][..], &["cycles"][..], &["cycles"][..]),
            (&["cycles:u"][..], &["cycles", "cycles:u"][..], &["cycles", "cycles:u"][..]),
            (&["cycles"][..], &["instructions"][..], &["instructions"][..]),
        ] {
            let mut heads = [head(first), head(second)];
            share_names(&mut heads);
            assert!(
                heads[1].events.iter().map(|event| &*event.name).eq(expected.iter().copied()),
                "{heads:?}"
            );
        }
        share_names(&mut []);
    }
}
