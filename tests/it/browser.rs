//! The page of `perfx export html` in Chromium and in Firefox, each started once: its figures are those of
//! `export folded`; drag, search, zoom and keys work; it makes no request, and reports no error.

mod drive;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::sleep;
use std::time::Duration;

use perfx_format::record::cpumode;
use perfx_format::sample::NewSample;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Comm, Endian, Event, sample_type as st};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use self::drive::Browser;
use crate::calls::{Change, changes, data as traced, named_root};
use crate::firefox::profile;
use crate::html::{hostile, with_names};
use crate::support::{Fixture, Tier, perfx, python, temp, workloads};
use crate::{args, tiers};

/// A check opens its pages in the browser; the path is the root with the programs of the recordings.
type Check = fn(&Browser, &Path);

macro_rules! named {
    ($($check:ident),* $(,)?) => { [$((stringify!($check), $check as Check)),*] };
}

const CHECKS: [(&str, Check); 21] = named![
    a_page_shows_what_was_counted_and_follows_pointer_and_keys,
    a_page_of_two_recordings_shows_their_difference,
    a_reload_shows_the_same,
    hostile_names_are_text_in_all_views,
    a_process_is_chosen_in_its_table,
    the_figures_of_a_selected_frame_follow_span_and_process,
    a_click_on_a_function_shows_its_callers_and_callees,
    the_first_screen_has_the_functions_beside_the_stacks,
    stacks_begin_with_their_process_if_there_are_several,
    callers_and_callees_of_a_function_have_its_weight,
    stacks_are_reshaped_and_the_address_has_what_was_chosen,
    the_name_of_a_row_chooses_it,
    instructions_have_the_weight_of_the_chosen_samples,
    stacks_over_time_are_those_of_the_samples,
    threads_are_below_each_other_over_time,
    many_processes_scroll_in_the_map_and_stacks_begin_with_programs,
    calls_of_a_trace_are_drawn_to_the_ns,
    axe_finds_nothing,
    samples_of_a_tracepoint_are_counted_by_number_or_period,
    hostile_names_are_text_in_a_browser,
    verdicts_are_those_of_the_gate,
];

/// The first checks cover most of a browser: they are the quick ones, and the only ones for Firefox in CI.
const FIRST: usize = 3;

/// Runs checks in one browser, because starting it takes longer than a check. The last name printed is that
/// of the check that failed.
fn run_checks(checks: &[(&str, Check)], browser: Option<Browser>) {
    let (Some(root), Some(browser)) = (workloads(), browser) else { return };
    for (name, check) in checks {
        println!("{name}");
        check(&browser, root);
        browser.check_silent();
    }
}

tiers!(pages_work_in_chromium);
fn pages_work_in_chromium(tier: Tier) {
    run_checks(if tier == Tier::Quick { &CHECKS[..FIRST] } else { &CHECKS }, Browser::chromium());
}

#[test]
#[ignore = "exhaustive: another browser"]
fn pages_work_in_firefox() {
    let is_ci = std::env::var_os("CI").is_some();
    run_checks(if is_ci { &CHECKS[..FIRST] } else { &CHECKS }, Browser::firefox());
}

impl Browser {
    /// Chooses an option of a list as a user does.
    fn choose(&self, list: &str, value: &str) {
        self.change(&format!(
            "const list = document.getElementById('{list}'); list.value = '{value}'; list.dispatchEvent(new Event('change'))"
        ));
    }

    fn text(&self, id: &str) -> String {
        self.run(&format!("return document.getElementById('{id}').textContent")).as_str().unwrap().to_owned()
    }

    /// Presses the pointer at the first of these parts of an element's width and height, and moves it to the
    /// others.
    fn drag(&self, selector: &str, places: &[(f64, f64)]) {
        let place = self.run(&format!(
            "const it = document.querySelector('{selector}'); it.scrollIntoView({{ block: 'center' }}); \
             const box = it.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]"
        ));
        let [left, top, width, height] = [0, 1, 2, 3].map(|at| place[at].as_f64().unwrap());
        let mut steps = Vec::new();
        for (x, y) in places {
            let (x, y) = ((left + width * x) as i64, (top + height * y) as i64);
            steps.push(json!({ "type": "pointerMove", "duration": 10, "x": x, "y": y }));
            if steps.len() == 1 {
                steps.push(json!({ "type": "pointerDown", "button": 0 }));
            }
        }
        steps.push(json!({ "type": "pointerUp", "button": 0 }));
        let pointer = json!({ "type": "pointer", "id": "mouse", "actions": steps });
        self.post("/actions", &json!({ "actions": [pointer] }));
        self.change("");
    }

    /// Presses keys one after the other, in the element that has the focus.
    fn keys(&self, keys: &[char]) {
        let steps = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })));
        let keyboard = json!({ "type": "key", "id": "keys", "actions": steps.collect::<Vec<_>>() });
        self.post("/actions", &json!({ "actions": [keyboard] }));
        self.change("");
    }

    /// The sums of the shown samples, one for each recording.
    fn sums(&self) -> Vec<u64> {
        let sums = self.run("return document.getElementById('shown').dataset.sums");
        sums.as_str().unwrap().split(' ').map(|sum| sum.parse().unwrap()).collect()
    }

    /// The rows of the shown table: the numbers or texts of their cells.
    fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.run(
            "return [...document.querySelectorAll('#panels tbody')[0].rows].map((row) => \
             [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent))",
        );
        serde_json::from_value(rows).unwrap()
    }
}

/// Outputs by command line.
type Outputs = HashMap<Vec<OsString>, Arc<Vec<u8>>>;

/// The output of perfx. Both browsers are compared with the same.
fn output(line: Vec<OsString>) -> Arc<Vec<u8>> {
    static KNOWN: LazyLock<Mutex<Outputs>> = LazyLock::new(Mutex::default);
    let known = || KNOWN.lock().unwrap();
    let of = known().get(&line).cloned();
    let of = of.unwrap_or_else(|| {
        let ran = perfx(&line);
        // 4: a profile changed.
        assert!(matches!(ran.code, Some(0 | 3 | 4)), "{}", ran.stderr);
        Arc::new(ran.stdout)
    });
    known().insert(line, of.clone());
    of
}

/// The lines of `export folded`: stack and count.
fn folded(input: &Path, root: &Path, more: &[&str]) -> Vec<(String, u64)> {
    let mut line = args!["export", "folded", "--foreign", "--root", root, input].to_vec();
    line.extend(more.iter().map(Into::into));
    let text = String::from_utf8(output(line).to_vec()).unwrap();
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(stack, count)| (stack.to_owned(), count.parse().unwrap())).collect()
}

fn total(lines: &[(String, u64)]) -> u64 {
    lines.iter().map(|(_, count)| count).sum()
}

fn page(folder: &TempDir, inputs: &[&Path], root: &Path) -> PathBuf {
    page_with(folder, inputs, root, &[])
}

fn page_with(folder: &TempDir, inputs: &[&Path], root: &Path, more: &[&str]) -> PathBuf {
    let page = folder.path().join("page.html");
    let mut line = args!["export", "html", "--foreign", "--root", root, "-o", "-"].to_vec();
    line.extend(inputs.iter().map(Into::into));
    line.extend(more.iter().map(Into::into));
    fs::write(&page, &**output(line)).unwrap();
    page
}

fn a_page_shows_what_was_counted_and_follows_pointer_and_keys(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/fp.p61.data").path;
    let page = page(&folder, &[&input], root);
    browser.open(&page);
    let lines = folded(&input, root, &[]);
    assert_eq!(browser.sums(), [total(&lines)]);
    let samples = folded(&input, root, &["--weight", "samples"]);
    assert!(
        browser.text("shown").starts_with(&format!("{} samples", total(&samples))),
        "{}",
        browser.text("shown")
    );

    // The functions: the rest of a stack after its last frame is the frame's own weight.
    let mut own = BTreeMap::<String, u64>::new();
    for (stack, count) in &lines {
        *own.entry(stack.rsplit(';').next().unwrap().to_owned()).or_default() += count;
    }
    let mut shown = BTreeMap::<String, u64>::new();
    for row in browser.rows() {
        *shown.entry(row[4].clone()).or_default() += row[1].parse::<u64>().unwrap();
    }
    shown.retain(|_, own| *own > 0);
    assert_eq!(shown, own);
    browser.choose("unit", "samples");
    assert_eq!(browser.sums(), [total(&samples)]);
    browser.choose("unit", "period");

    // Search: the share of the samples with a match on their stack.
    let name = own.iter().max_by_key(|(_, count)| **count).unwrap().0;
    let found = lines.iter().filter(|(stack, _)| stack.split(';').skip(1).any(|frame| frame == name));
    let share = found.map(|(_, count)| count).sum::<u64>() as f64 * 100.0 / total(&lines) as f64;
    browser.change("document.activeElement.blur()");
    browser.keys(&['/']);
    assert_eq!(browser.run("return document.activeElement.id"), "search");
    browser.keys(&name.chars().collect::<Vec<_>>());
    assert_eq!(browser.text("found"), format!("found in {share:.2}%"), "{name}");
    browser.change(
        "const it = document.getElementById('search'); it.value = ''; it.dispatchEvent(new Event('input'))",
    );

    // A click zooms, and Escape goes back.
    let zoomed = || browser.run("return document.querySelectorAll('#path li').length").as_u64().unwrap();
    browser.drag(
        "#flame",
        &[(
            0.02,
            1.5 * 19.0
                / browser.run("return document.getElementById('flame').clientHeight").as_f64().unwrap(),
        )],
    );
    assert_eq!(
        (zoomed(), browser.run("return document.getElementById('unzoom').disabled")),
        (2, false.into())
    );
    browser.keys(&['\u{e00c}']);
    assert_eq!(
        (zoomed(), browser.run("return document.getElementById('unzoom').disabled")),
        (1, true.into())
    );
    // The arrow keys show their position.
    browser.keys(&['\u{e015}', '\u{e015}', '\u{e007}']);
    assert_eq!(zoomed(), 3);
    assert!(browser.text("flame-said").contains('%'), "{}", browser.text("flame-said"));
    browser.keys(&['\u{e00c}']);
    for view in ["flame", "inverted", "icicle"] {
        browser.choose("view", view);
        assert_eq!(browser.run("return flame.root.values[0]").as_u64(), Some(total(&lines)), "{view}");
    }
    let inverted = browser.run(
        "state.view = 'inverted'; layOut(); return flame.lines[1].map((box) => [nameOf(box), box.values[0]])",
    );
    for entry in inverted.as_array().unwrap() {
        assert_eq!(entry[1].as_u64(), own.get(entry[0].as_str().unwrap()).copied(), "{entry}");
    }
    browser.choose("view", "icicle");

    // Dragging over the first half of the time, in which the stacks are those of `--time`.
    browser.choose("rows", "cpu");
    browser.drag(".heat canvas", &[(0.1, 0.2), (0.3, 0.2), (0.54, 0.2)]);
    let said = browser.text("heat-said");
    let window = said.split_once("--time ").expect("the span is said").1;
    let part = folded(&input, root, &["--time", window]);
    assert!(total(&part) > 0 && total(&part) < total(&lines), "{said}");
    assert_eq!(browser.sums(), [total(&part)]);
    browser.change("document.getElementById('whole').click()");
    assert_eq!(browser.sums(), [total(&lines)]);
    // The same with keys.
    browser.change("document.querySelector('.heat canvas').focus()");
    browser.keys(&['\u{e014}', '\u{e007}']);
    let said = browser.text("heat-said");
    let part = folded(&input, root, &["--time", said.split_once("--time ").expect("the span is said").1]);
    assert_eq!(browser.sums(), [total(&part)]);
    browser.keys(&['\u{e00c}']);
    assert_eq!(browser.sums(), [total(&lines)]);

    for tab in ["files", "bytes", "recording", "soundness", "functions"] {
        browser.change(&format!("document.getElementById('tab-{tab}').click()"));
        assert_eq!(
            browser.run("return document.querySelectorAll('[role=tabpanel]:not([hidden])').length"),
            1
        );
        assert!(
            browser
                .run("return document.querySelector('[role=tabpanel]:not([hidden])').innerText.length")
                .as_u64()
                > Some(40)
        );
    }
    // A screen reader has a name for everything that takes input.
    let nameless = browser.run(
        "return [...document.querySelectorAll('button, select, input, canvas')].filter((it) => \
         !(it.labels?.length || it.textContent.trim() || it.ariaLabel)).map((it) => it.outerHTML)",
    );
    assert_eq!(nameless, json!([]));
    let back = || browser.run("return getComputedStyle(document.body).backgroundColor");
    let light = back();
    browser.set_dark(true);
    assert_ne!(back(), light);
    browser.set_dark(false);
    assert_eq!(back(), light);
}

fn a_process_is_chosen_in_its_table(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/buildid-default.p61.data").path;
    browser.open(&page(&folder, &[&input], root));
    let lines = folded(&input, root, &[]);
    browser.change("document.getElementById('tab-processes').click()");
    let rows = browser.rows();
    assert_eq!(rows.iter().map(|row| row[1].parse::<u64>().unwrap()).sum::<u64>(), total(&lines));
    let pid = rows[0][3].as_str();
    browser.change("document.querySelector('#panel-processes tbody button').click()");
    assert_eq!(browser.sums(), [total(&folded(&input, root, &["--pid", pid]))]);
    browser.choose("process", "");
    assert_eq!(browser.sums(), [total(&lines)]);
}

/// A frame of several processes.
const FRAME: &str = "[[kernel.kallsyms]]";

/// Regression: the line for screen readers kept the figures of the span and process in which the frame was
/// selected.
fn the_figures_of_a_selected_frame_follow_span_and_process(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/buildid-default.p61.data").path;
    browser.open(&page(&folder, &[&input], root));
    let check = |more: &[&str]| {
        let lines = folded(&input, root, more);
        let own = |(stack, count): &(String, u64)| (stack.split(';').nth(1) == Some(FRAME)).then_some(*count);
        let share = lines.iter().filter_map(own).sum::<u64>() as f64 * 100.0 / total(&lines) as f64;
        let said = browser.text("flame-said");
        assert!(
            share > 0.0 && said.starts_with(&format!("{FRAME}: {share:.2}% (")),
            "{share} {more:?}: {said}"
        );
        assert_eq!(browser.run("return document.querySelector('#path [aria-current]').textContent"), FRAME);
        share
    };
    assert_eq!(browser.text("flame-said"), "");
    browser.choose("root", "");
    // The frames below the root, from the widest on.
    browser.change("document.getElementById('flame').focus()");
    browser.keys(&['\u{e015}']);
    for _ in 0..30 {
        if browser.text("flame-said").starts_with(FRAME) {
            break;
        }
        browser.keys(&['\u{e014}']);
    }
    let all = check(&[]);
    let processes =
        browser.run("return [...document.getElementById('process').options].map((one) => one.value)");
    let process = processes.as_array().unwrap().iter().filter_map(Json::as_str);
    let process = { process }.find(|name| name.starts_with("burn_id8 (")).unwrap();
    browser.choose("process", process);
    let pid = process.trim_end_matches(')').rsplit_once('(').unwrap().1;
    assert_ne!(check(&["--pid", pid]), all);
    browser.choose("process", "");
    assert_eq!(check(&[]), all);
    browser.choose("rows", "cpu");
    browser.drag(".heat canvas", &[(0.15, 0.2), (0.3, 0.2), (0.45, 0.2)]);
    let said = browser.text("heat-said");
    let window = said.split_once("--time ").expect("the span is said").1;
    assert_ne!(check(&["--time", window]), all);
    browser.change("document.getElementById('whole').click()");
    assert_eq!(check(&[]), all);
}

/// A click searched for the text: `read` took every function with these letters.
fn a_click_on_a_function_shows_its_callers_and_callees(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/z-straddle.p61.data").path;
    browser.open(&page(&folder, &[&input], root));
    let lines = folded(&input, root, &[]);
    let share = |takes: &dyn Fn(&str) -> bool| {
        let found = lines.iter().filter(|(stack, _)| stack.split(';').skip(1).any(takes));
        found.map(|(_, count)| count).sum::<u64>() as f64 * 100.0 / total(&lines) as f64
    };
    // Typed, `now` is also a part of `[unknown]`.
    let (typed, whole) = (share(&|name| name.contains("now")), share(&|name| name == "now"));
    assert!(typed > whole && whole > 0.0, "{typed} {whole}");
    let rows = browser.rows().len();
    browser.change(
        "[...document.querySelectorAll('#panel-functions tbody button')].find((it) => it.textContent === 'now').click()",
    );
    let shown =
        browser.run("return [state.view, nameOf(flame.root), 100 * flame.root.values[0] / sides[0].sum]");
    assert_eq!((shown[0].as_str(), shown[1].as_str()), (Some("callers"), Some("now")));
    assert!((shown[2].as_f64().unwrap() - whole).abs() < 1e-6, "{shown}");
    assert_eq!(browser.rows().len(), rows);
    let search = |text: &str| {
        browser.change(&format!(
            "const it = document.getElementById('search'); it.value = '{text}'; it.dispatchEvent(new Event('input'))"
        ));
    };
    search("now");
    assert_eq!(browser.text("found"), format!("found in {typed:.2}%"));
    browser.choose("kind", "whole");
    assert_eq!(browser.text("found"), format!("found in {whole:.2}%"));
    // Types in parameters and template arguments match only if no bare name does.
    let bare = browser.run(
        "return ['std::vector<std::pair<int, char> >::add(int (*)(long))', '<T as Run<U>>::run'].map(bare)",
    );
    assert_eq!(bare, json!(["std::vector::add", "<T as Run>::run"]));
}

/// On a wide screen; on a narrow one, the names of functions are seen without scrolling.
fn the_first_screen_has_the_functions_beside_the_stacks(browser: &Browser, root: &Path) {
    let folder = temp();
    browser.open(&page(&folder, &[&Fixture::new("recorded/buildid-default.p61.data").path], root));
    let at = |width: u32, height: u32| {
        browser.post("/window/rect", &json!({ "width": width, "height": height }));
        browser.change("");
        browser.run(
            "const box = (it) => it.getBoundingClientRect(); \
             const name = box(document.querySelector('#panel-functions tbody td.name')); \
             return { width: innerWidth, height: innerHeight, flame: box($('flame-box')).right, \
             left: name.left, right: name.right, top: name.top, tall: document.documentElement.scrollWidth, rows: state.rows }",
        )
    };
    let number = |place: &Json, key: &str| place[key].as_f64().unwrap();
    let wide = at(1920, 1080);
    assert_eq!(wide["rows"], "process");
    assert!(number(&wide, "left") > number(&wide, "flame"), "{wide}");
    assert!(
        number(&wide, "right") <= number(&wide, "width") && number(&wide, "top") < number(&wide, "height"),
        "{wide}"
    );
    let narrow = at(375, 800);
    assert!(number(&narrow, "left") + 60.0 < number(&narrow, "width"), "{narrow}");
    assert!(number(&narrow, "tall") <= number(&narrow, "width"), "{narrow}");
    at(1400, 1000);
}

/// The weight of the lines with a frame, all of whose frames are `frames`.
fn weight(lines: &[(String, u64)], takes: impl Fn(&[&str]) -> bool) -> u64 {
    let frames = |stack: &str| takes(&stack.split(';').skip(1).collect::<Vec<_>>());
    lines.iter().filter(|(stack, _)| frames(stack)).map(|(_, count)| count).sum()
}

fn stacks_begin_with_their_process_if_there_are_several(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/buildid-default.p61.data").path;
    browser.open(&page(&folder, &[&input], root));
    let roots = browser.run("return flame.lines[1].map((box) => [nameOf(box), box.values[0]])");
    let roots: Vec<(String, u64)> = serde_json::from_value(roots).unwrap();
    assert!(roots.len() > 1, "{roots:?}");
    for (name, sum) in &roots {
        let pid = name.trim_end_matches(')').rsplit_once('(').unwrap().1;
        assert_eq!(*sum, total(&folded(&input, root, &["--pid", pid])), "{name}");
    }
    // Below a process are its functions, not those of all processes.
    let shares = browser.run(
        "const box = flame.lines[1][0]; return [box.values[0], below(box).reduce((sum, kid) => sum + kid.values[0], 0)]",
    );
    assert_eq!(shares[0], shares[1]);
    browser.choose("view", "inverted");
    let inverted = browser.run("return flame.root.groups.map((box) => box.values[0])");
    assert_eq!(
        inverted.as_array().unwrap().iter().filter_map(Json::as_u64).sum::<u64>(),
        total(&folded(&input, root, &[]))
    );
    assert!(browser.rows().len() > 1);
}

fn callers_and_callees_of_a_function_have_its_weight(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/fp-deep.p61.data").path;
    browser.open(&page(&folder, &[&input], root));
    let lines = folded(&input, root, &[]);
    // A function that is called and calls.
    let middle = browser.run(
        "return nameOf(flame.lines.flat().find((box) => box.depth > 1 && isFunction(box.index) && below(box).length))",
    );
    let name = middle.as_str().unwrap();
    browser.change(&format!("showCallers(functions.indexOf('{name}'))"));
    let (all, callers, callees) = (
        browser.run("return flame.root.values[0]").as_u64().unwrap(),
        "return below(flame.root).filter((box) => box.up).map((box) => [nameOf(box), box.values[0]])",
        "return below(flame.root).filter((box) => !box.up).map((box) => [nameOf(box), box.values[0]])",
    );
    assert_eq!(all, weight(&lines, |frames| frames.contains(&name)));
    for (script, step) in [(callers, -1_isize), (callees, 1)] {
        let boxes: Vec<(String, u64)> = serde_json::from_value(browser.run(script)).unwrap();
        assert!(!boxes.is_empty());
        for (other, sum) in boxes {
            let next_to = |frames: &[&str]| {
                let at = frames.iter().position(|frame| *frame == name);
                at.and_then(|at| frames.get(at.checked_add_signed(step)?)) == Some(&&*other)
            };
            assert_eq!(sum, weight(&lines, next_to), "{other} beside {name}");
        }
    }
    assert_eq!(browser.run("return document.getElementById('view').value"), "callers");
}

fn stacks_are_reshaped_and_the_address_has_what_was_chosen(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/fp-deep.p61.data").path;
    let page = page(&folder, &[&input], root);
    browser.open(&page);
    let lines = folded(&input, root, &[]);
    let name = browser.run("return functions[heaviest()]").as_str().unwrap().to_owned();
    let has = |frames: &[&str]| frames.contains(&&*name);
    let select = || {
        browser.change(
            "zoom(flame.root); select(flame.lines.flat().find((box) => box.index === functions.indexOf(NAME)))"
                .replace("NAME", &format!("'{name}'"))
                .as_str(),
        );
    };
    let press = |what: &str| {
        browser.change(&format!(
            "[...document.querySelectorAll('#actions button, #changes button')].find((it) => it.textContent === '{what}').click()"
        ));
    };
    select();
    press("Only stacks with it");
    assert_eq!(browser.sums(), [weight(&lines, has)]);
    press("Undo");
    assert_eq!(browser.sums(), [total(&lines)]);
    select();
    press("Hide stacks with it");
    assert_eq!(browser.sums(), [total(&lines) - weight(&lines, has)]);
    // A reload and "back" restore the selection.
    let address = browser.run("return location.hash");
    assert!(address.as_str().unwrap().contains("hide="), "{address}");
    browser.post("/refresh", &json!({}));
    browser.wait();
    assert_eq!(browser.sums(), [total(&lines) - weight(&lines, has)]);
    press("Undo");
    assert_eq!(browser.sums(), [total(&lines)]);
    select();
    press("Merge into callers");
    assert_eq!(browser.sums(), [total(&lines)]);
    let own = browser.run(&format!("return sides[0].totalOf[functions.indexOf('{name}')]"));
    assert_eq!(own.as_f64(), Some(0.0));
    sleep(Duration::from_millis(800));
    browser.choose("unit", "samples");
    browser.post("/back", &json!({}));
    browser.change("");
    assert_eq!(browser.run("return [state.unit, state.merge.length]"), json!(["period", 1]));
    browser.change("document.getElementById('recursion').click()");
    let deepest = browser.run(
        "return flame.lines.flat().some((box) => box.above && isFunction(box.index) && box.above.index === box.index)",
    );
    assert_eq!(deepest, false);
}

/// Clicks the name of a row of the map of time.
fn click_row(browser: &Browser, name: &str) {
    let place = browser.run(&format!(
        "const {{ heat }} = sides[0]; const row = heat.names.indexOf('{name}'); showRow(heat, row); \
         const top = (row + 0.5) * heat.line - heat.scroller.scrollTop; \
         return top / heat.canvas.getBoundingClientRect().height"
    ));
    browser.drag(".heat canvas", &[(0.01, place.as_f64().unwrap())]);
}

fn the_name_of_a_row_chooses_it(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/several.p61.data").path;
    let page = page(&folder, &[&input], root);
    browser.open(&page);
    browser.choose("rows", "event");
    for event in ["page-faults", "cpu-clock"] {
        click_row(browser, event);
        assert_eq!(browser.sums(), [total(&folded(&input, root, &["--event", event]))], "{event}");
    }
    browser.choose("rows", "thread");
    let threads = browser.run("return sides[0].heat.names");
    for thread in threads.as_array().unwrap().iter().filter_map(Json::as_str) {
        let tid = thread.trim_end_matches(')').rsplit_once('(').unwrap().1;
        click_row(browser, thread);
        assert_eq!(browser.sums(), [total(&folded(&input, root, &["--tid", tid]))], "{thread}");
        assert_eq!(browser.run("return sides[0].heat.names"), json!([thread]));
        click_row(browser, thread);
        assert_eq!(browser.run("return state.thread"), "");
    }
}

fn instructions_have_the_weight_of_the_chosen_samples(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/fp.p61.data").path;
    let page = page_with(&folder, &[&input], root, &["--annotate", "3"]);
    browser.open(&page);
    browser.change("showCode(functions.indexOf('leaf_xor'))");
    let check = |more: &[&str]| {
        let lines = folded(&input, root, more);
        let own = weight(&lines, |frames| frames.last() == Some(&"leaf_xor"));
        let shown = browser.rows().iter().map(|row| row[0].parse::<u64>().unwrap()).sum::<u64>();
        assert!(own > 0 && own == shown, "{own} {shown}");
    };
    check(&[]);
    // The first half of its samples.
    browser.change("const at = sides[0].time; setSpan(sides[0], at[0], at[at.length >> 1])");
    let said = browser.text("heat-said");
    check(&["--time", said.split_once("--time ").unwrap().1]);
    browser.change("showCode(functions.indexOf('[[kernel.kallsyms]]'))");
    assert!(browser.text("panel-code").contains("functions of the kernel have no names"));
}

fn calls_of_a_trace_are_drawn_to_the_ns(browser: &Browser, _root: &Path) {
    let (folder, programs, input) = (temp(), named_root(), traced("times"));
    let args =
        args!["export", "firefox", "--itrace", "--foreign", "--root", programs.path(), input, "-o", "-"];
    let changes = changes(&profile(&output(args.to_vec())))[0].clone();
    browser.open(&page_with(&folder, &[&input], programs.path(), &["--itrace"]));
    let time = |changes: &[Change]| changes.iter().map(|(.., ns)| ns).sum::<u64>();
    assert_eq!(browser.sums(), [time(&changes)]);
    assert_eq!(browser.run("return document.getElementById('view').value"), "chart");
    let (from, to) = (1_000, 1_600);
    browser.change(&format!("setSpan(sides[0], {from}, {to})"));
    assert_eq!(browser.sums(), [to - from]);
    // The innermost box at each ns.
    let script = format!(
        "return Array.from({{ length: {} }}, (_, at) => nameOf(flame.lines.flat().filter(({{ times }}) => times.from <= \
         {from} + at && times.to > {from} + at).pop()))",
        to - from
    );
    let drawn: Vec<String> = serde_json::from_value(browser.run(&script)).unwrap();
    let running = (from..to).map(|ns| {
        let at = changes.partition_point(|(time, ..)| *time <= ns) - 1;
        changes[at].1.first().cloned().unwrap_or_default()
    });
    let running: Vec<String> = running.collect();
    assert!(running.iter().collect::<BTreeSet<_>>().len() > 3, "{running:?}");
    assert_eq!(drawn, running);
}

fn stacks_over_time_are_those_of_the_samples(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/fp.p61.data").path;
    let page = page(&folder, &[&input], root);
    browser.open(&page);
    browser.choose("view", "chart");
    // The stack at the time of each sample.
    let drawn = browser.run(
        "const [side] = sides; return Array.from(side.time, (time, row) => { \
         const at = flame.lines.slice(1).map((line) => line.find(({ times }) => times.from <= time && time < times.to)); \
         return [[side.labels[0][0], ...at.filter(Boolean).map(nameOf)].join(';'), side.samples[row]]; })",
    );
    let mut stacks = BTreeMap::<String, u64>::new();
    for (stack, samples) in serde_json::from_value::<Vec<(String, u64)>>(drawn).unwrap() {
        *stacks.entry(stack).or_default() += samples;
    }
    let lines = folded(&input, root, &["--weight", "samples"]);
    assert_eq!(stacks, lines.iter().cloned().collect());
    assert!(browser.run("return flame.lines[1].length > 1 && flame.lines[1][0].x === 0").as_bool().unwrap());
    // A click chooses the time of a frame.
    browser.change("zoom(flame.lines[1][0])");
    let said = browser.text("heat-said");
    let window = said.split_once("--time ").expect("the span is said").1;
    assert_eq!(browser.sums(), [total(&folded(&input, root, &["--time", window]))]);
    browser.change("zoom(flame.root)");
    assert_eq!(browser.sums(), [total(&folded(&input, root, &[]))]);
}

fn threads_are_below_each_other_over_time(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/threads.p61.data").path;
    browser.open(&page(&folder, &[&input], root));
    browser.choose("view", "chart");
    // The stack at the time of each sample, below the name of its thread.
    let drawn = browser.run(
        "const [side] = sides; return flame.threads.map((thread, at) => { \
         const own = flame.lines.slice(thread.line + 1, flame.threads[at + 1]?.line); \
         return [thread.name, thread.times.rows.map((row) => { const time = side.time[row]; \
         const stack = own.map((line) => line.find(({ times }) => times.from <= time && time < times.to)); \
         return [[side.labels[side.label[row]][0], ...stack.filter(Boolean).map(nameOf)].join(';'), side.samples[row]]; })]; })",
    );
    let threads: Vec<(String, Vec<(String, u64)>)> = serde_json::from_value(drawn).unwrap();
    assert!(threads.len() > 2, "{threads:?}");
    let tid = |name: &str| name.trim_end_matches(')').rsplit_once('(').unwrap().1.to_owned();
    for (name, rows) in &threads {
        let mut stacks = BTreeMap::<String, u64>::new();
        for (stack, samples) in rows {
            *stacks.entry(stack.clone()).or_default() += samples;
        }
        let lines = folded(&input, root, &["--weight", "samples", "--tid", &tid(name)]);
        assert_eq!(stacks, lines.iter().cloned().collect(), "{name}");
    }
    assert_eq!(browser.text("path"), format!("{} threads", threads.len()));
    // The arrow keys go from the stacks of one thread to the next one.
    browser.change("document.getElementById('flame').focus(); select(flame.threads[0])");
    let depth = browser.run("return flame.threads[1].line - flame.threads[0].line").as_u64().unwrap();
    browser.keys(&vec!['\u{e015}'; depth as usize]);
    let is_second = |browser: &Browser| browser.run("return flame.threads.indexOf(flame.focus)") == 1;
    for _ in 0..depth {
        if !is_second(browser) {
            browser.keys(&['\u{e013}']);
        }
    }
    assert!(is_second(browser));
    // The name of a thread shows it alone; that at the top then shows all.
    browser.change("zoom(flame.threads[1])");
    assert_eq!(browser.sums(), [total(&folded(&input, root, &["--tid", &tid(&threads[1].0)]))]);
    assert_eq!(browser.run("return nameOf(flame.root)"), threads[1].0);
    browser.change("zoom(flame.root)");
    assert_eq!(browser.sums(), [total(&folded(&input, root, &[]))]);
}

/// A recording of this many processes of seven programs, each with one more sample than the previous one.
fn of_processes(out: &Path, processes: u32) {
    let mut attr = Attr::default();
    attr.sample_type = st::IP | st::TID | st::TIME;
    // sample_id_all, mmap, comm.
    (attr.flags, attr.sample_period) = (1 << 18 | 1 << 9 | 1 << 8, 1000);
    let event = Event::made(&attr, vec![1], Endian::Little);
    let mut writer = RecordingWriter::create(out, &[event], Endian::Little).unwrap();
    let mut time = 1;
    for pid in 1..=processes {
        let name = format!("task-{}", pid % 7);
        let comm = Comm { pid, tid: pid, name: name.as_bytes() };
        writer.write(&comm.write(0, &[0; 16], Endian::Little).unwrap()).unwrap();
        for _ in 0..pid {
            let cpumode = cpumode::USER;
            let sample = NewSample { cpumode, ip: 0x1000, pid, tid: pid, time, ..NewSample::default() };
            writer.write(&sample.build(&attr, Endian::Little).unwrap()).unwrap();
            time += 1000;
        }
    }
    writer.finish().unwrap();
}

fn many_processes_scroll_in_the_map_and_stacks_begin_with_programs(browser: &Browser, root: &Path) {
    let (folder, processes) = (temp(), 120);
    let input = folder.path().join("many.data");
    of_processes(&input, processes);
    browser.open(&page(&folder, &[&input], root));
    let roots = browser.run("return [state.root, flame.lines[1].map((box) => [nameOf(box), box.values[0]])]");
    let (kind, roots): (String, Vec<(String, u64)>) = serde_json::from_value(roots).unwrap();
    assert_eq!((&*kind, roots.len()), ("program", 7), "{roots:?}");
    for (name, sum) in roots {
        let name = format!("^{name}$");
        assert_eq!(sum, total(&folded(&input, root, &["--comm", &name])), "{name}");
    }
    browser.choose("rows", "process");
    let names = browser.run("return sides[0].heat.names.length");
    assert_eq!(names, processes);
    // The smallest process is in the last row, which is not seen before the map is scrolled.
    let pixels = "const { canvas } = sides[0].heat; return canvas.toDataURL()";
    let before = browser.run(pixels);
    click_row(browser, "task-1 (1)");
    assert_eq!(browser.run("return state.process"), "task-1 (1)");
    assert_eq!(browser.sums(), [total(&folded(&input, root, &["--pid", "1"]))]);
    browser.change("state.process = ''; fillTasks(); refresh(); sides[0].heat.scroller.scrollTop = 1e9");
    assert_ne!(browser.run(pixels), before);
    // The row of the cursor is seen.
    browser.change(
        "const { heat } = sides[0]; heat.scroller.scrollTop = 0; heat.cursor = [0, 0]; heat.canvas.focus()",
    );
    browser.keys(&['\u{e015}'; 40]);
    let seen = browser.run(
        "const { cursor, scroller, line, height } = sides[0].heat; const top = cursor[1] * line - scroller.scrollTop; \
         return [cursor[1], top >= 0 && top + line <= height + 1]",
    );
    assert_eq!(seen, json!([40, true]));
}

/// axe-core is the reference for screen readers.
fn axe_finds_nothing(browser: &Browser, root: &Path) {
    let Some(python) = python("axe_core_python") else { return };
    let script = "import axe_core_python as it; print(open(it.__path__[0] + '/axe.min.js').read())";
    let axe = python(&["-c", script], Path::new("/")).done().unwrap();
    let folder = temp();
    let inputs = ["fp.p61", "fp-deep.p61"].map(|name| Fixture::new(&format!("recorded/{name}.data")).path);
    let many = folder.path().join("many.data");
    of_processes(&many, 60);
    for inputs in [&[&*inputs[0]][..], &[&inputs[0], &inputs[1]], &[&many]] {
        browser.open(&page(&folder, inputs, root));
        browser.run(&axe.text());
        let check = |what: &str, part: &str| {
            let found = browser.post(
                "/execute/async",
                &json!({ "script": format!("axe.run('{part}').then((all) => arguments[0](all.violations.map((one) => \
                    [one.id, one.nodes.map((node) => node.html)])))"), "args": [] }),
            );
            assert_eq!(found, json!([]), "{what}");
        };
        check("the page", "body");
        for tab in ["processes", "files", "code", "bytes", "recording", "soundness"] {
            browser.change(&format!("document.getElementById('tab-{tab}').click()"));
            check(tab, "#panels");
        }
        browser.set_dark(true);
        browser.choose("view", "chart");
        browser.choose("rows", "process");
        browser.change("select(flame.lines[1][0]); state.merge = [heaviest()]; state.search = functions[heaviest()]; refresh()");
        check("over time, dark", "body");
        browser.set_dark(false);
    }
}

fn samples_of_a_tracepoint_are_counted_by_number_or_period(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = Fixture::new("recorded/tracepoint.p61.data").path;
    browser.open(&page(&folder, &[&input], root));
    assert_eq!(browser.sums(), [total(&folded(&input, root, &[]))]);
    browser.choose("unit", "period");
    assert_eq!(browser.sums(), [total(&folded(&input, root, &["--weight", "period"]))]);
}

fn hostile_names_are_text_in_a_browser(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = folder.path().join("<img src=x onerror=alert(1)>.data");
    fs::write(&input, hostile()).unwrap();
    let page = page(&folder, &[&input], root);
    browser.open(&page);
    assert_eq!(browser.text("name"), "<img src=x onerror=alert(1)>.data");
    browser.change("document.getElementById('tab-files').click()");
    assert!(browser.rows().iter().any(|row| row[4] == "/</script><img src=x o=1>"), "{:?}", browser.rows());
    for tab in ["functions", "processes", "bytes", "recording", "soundness"] {
        browser.change(&format!("document.getElementById('tab-{tab}').click()"));
        assert_eq!(
            browser.run("return document.querySelectorAll('img, b:not(#tip b), script').length"),
            1,
            "{tab}"
        );
    }
}

fn a_page_of_two_recordings_shows_their_difference(browser: &Browser, root: &Path) {
    let folder = temp();
    let inputs = ["fp.p61", "fp-deep.p61"].map(|name| Fixture::new(&format!("recorded/{name}.data")).path);
    let page = page(&folder, &[&inputs[0], &inputs[1]], root);
    browser.open(&page);
    let lines = [0, 1].map(|at: usize| folded(&inputs[at], root, &[]));
    assert_eq!(browser.sums(), [total(&lines[0]), total(&lines[1])]);
    let rows = browser.rows();
    let number = |cell: &String| cell.parse::<f64>().unwrap();
    // Changes above the noise come first.
    let rank = |row: &Vec<String>| ["", "noise", "changed"].iter().position(|verdict| *verdict == row[3]);
    let order: Vec<_> = rows.iter().map(|row| (rank(row).unwrap(), number(&row[2]).abs())).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "{rows:?}");
    for row in &rows {
        let own = |lines: &[(String, u64)]| {
            let of = lines.iter().filter(|(stack, _)| stack.rsplit(';').next() == Some(&*row[8]));
            of.map(|(_, count)| count).sum::<u64>() as f64 / total(lines) as f64
        };
        let [before, after] = [own(&lines[0]), own(&lines[1])];
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(number(&row[0]), before) && near(number(&row[1]), after), "{row:?}: {before} {after}");
    }
    browser.choose("width", "0");
    // Regression: flames begin at the bottom, which was empty if the stacks were deeper than the visible
    // part.
    browser.post("/window/rect", &json!({ "width": 1000, "height": 420 }));
    browser.choose("view", "flame");
    let bottom = browser.run(
        "const box = document.getElementById('flame-box'); box.scrollIntoView({ block: 'end' }); \
         const place = box.getBoundingClientRect(); \
         return [box.scrollHeight > box.clientHeight, document.elementFromPoint(place.left + 9, place.bottom - 9).id]",
    );
    assert_eq!(bottom, json!([true, "flame"]));
    browser.post("/window/rect", &json!({ "width": 1400, "height": 1000 }));
}

/// The page's verdicts about functions are those of `diff --profile`, with the same probabilities.
fn verdicts_are_those_of_the_gate(browser: &Browser, root: &Path) {
    let folder = temp();
    let inputs =
        ["fp-deep.p61", "z-straddle.p61"].map(|name| Fixture::new(&format!("recorded/{name}.data")).path);
    browser.open(&page(&folder, &[&inputs[0], &inputs[1]], root));
    let mut said = BTreeMap::new();
    for (by, sums, more) in [
        ("shares", "own", &["--shares"][..]),
        ("shares", "total", &["--shares", "--total"]),
        ("weights", "own", &[]),
        ("weights", "total", &["--total"]),
    ] {
        browser.choose("by", by);
        let mut line = args!["diff", "--profile", "--json", "--foreign", "--root", root].to_vec();
        line.extend(more.iter().chain(&["--threshold", "1%"]).map(Into::into));
        line.extend(inputs.iter().map(Into::into));
        let found: Json = serde_json::from_slice(&output(line)).unwrap();
        let verdict = |change: &Json| match change["beyond_noise"].as_bool().unwrap() {
            true => "changed",
            false if change["change"].as_f64().unwrap().abs() < 1.0 => "",
            false => "noise",
        };
        for one in found["functions"].as_array().unwrap() {
            let [name, file, change] = ["function", "file", "change"].map(|key| &one[key]);
            let shown = browser.run(&format!(
                "const index = functions.findIndex((name, at) => name === {name} && fileOf(at) === ({file} ?? 'no file')); \
                 return [verdicts.{sums}[index], probability(sides.map((side) => side.{sums}Of[index]))]"
            ));
            assert_eq!(shown[0], verdict(change), "{name} {more:?}");
            let (shown, expected) = (shown[1].as_f64().unwrap(), change["probability"].as_f64().unwrap());
            assert!((shown / expected - 1.0).abs() < 0.01, "{name} {more:?}: {shown} {expected}");
            *said.entry(verdict(change)).or_insert(0) += 1;
        }
        let all = browser.run("return verdicts.own.at(-1)");
        assert_eq!(all, if by == "weights" { verdict(&found["all"]) } else { "" });
    }
    assert!(said.contains_key("noise") && said.contains_key("changed"), "{said:?}");
}

/// Everything that can be chosen.
fn a_reload_shows_the_same(browser: &Browser, root: &Path) {
    let folder = temp();
    let input = |name: &str| Fixture::new(&format!("recorded/{name}.data")).path;
    let one = page_with(&folder, &[&input("allbits.p61")], root, &["--annotate", "3"]);
    let chosen = [
        "state.unit = 'samples'; state.process = sides[0].tasks[0].process; state.thread = sides[0].tasks[0].thread; \
         state.cpu = sides[0].tasks[0].cpu; state.cgroup = sides[0].tasks[0].cgroup; state.rows = 'cpu'; \
         state.root = 'cpu'; state.view = 'inverted'; state.search = '^ma'; state.kind = 'expression'",
        "state.view = 'callers'; state.centre = heaviest(); state.tab = 'code'; state.listed = heaviest(); state.recursion = true",
        "state.view = 'chart'; state.rows = 'thread'; setSpan(sides[0], sides[0].time[3], sides[0].time[9])",
        "state.search = functions[heaviest()]; state.kind = 'whole'; state.sort = 'functions.2.up'; state.merge = [heaviest()]; state.root = ''; \
         refresh(); zoom(flame.lines[2][0])",
        "state.hide = [heaviest()]; state.only = [nodeFunction[0]]; state.sort = 'processes.1.up'; state.tab = 'processes'",
    ];
    let two = "state.by = 'weights'; state.least = '0.1'; state.width = '0'; state.rows = 'process'; \
               setSpan(sides[1], sides[1].time[1], sides[1].time[7]); state.sort = 'functions.0.down'";
    let shown = || {
        browser.run(
            "const parts = ['shown', 'found', 'flame-said', 'heat-said', 'changes', 'path', 'panels']; \
             return [state, parts.map((id) => $(id).textContent), \
                 flame.lines.map((line) => line.map((box) => [nameOf(box), box.x, box.width])), \
                 sides.map(({ heat }) => [heat.names, Array.from(heat.bins)]), \
                 [...document.querySelectorAll('select')].map((list) => list.value)]",
        )
    };
    let check = |script: &str| {
        browser.change(&format!("{script}; refresh(); showFocus()"));
        let before = shown();
        browser.post("/refresh", &json!({}));
        browser.wait();
        browser.change("showFocus()");
        let after = shown();
        for part in 0..5 {
            assert_eq!(after[part].to_string(), before[part].to_string(), "{part}: {script}");
        }
        browser.change("history.replaceState(null, '', location.pathname); recall()");
    };
    browser.open(&one);
    chosen.into_iter().for_each(check);
    browser.open(&page(&folder, &[&input("fp.p61"), &input("fp-deep.p61")], root));
    check(two);
}

/// Names as an attacker would choose them: of functions, files, processes, events, cgroups, and lines of
/// source.
fn hostile_names_are_text_in_all_views(browser: &Browser, root: &Path) {
    let folder = temp();
    let inputs = ["fp.p61", "fp-deep.p61"].map(|name| Fixture::new(&format!("recorded/{name}.data")).path);
    let hostile = format!(
        "</script><script>alert(1)</script><img src=x onerror=alert(1)><b>&lt;'\"`${{1}}\u{202e}\u{1b}[31m\0{}",
        "long".repeat(25_000)
    );
    for (inputs, more) in [(&inputs[..1], &["--annotate", "3"][..]), (&inputs, &[])] {
        let inputs: Vec<&Path> = inputs.iter().map(|path| &**path).collect();
        let page = page_with(&folder, &inputs, root, more);
        fs::write(&page, with_names(&fs::read(&page).unwrap(), &hostile)).unwrap();
        browser.open(&page);
        let check = |what: &str| {
            let found = "return document.querySelectorAll('img, b:not(#tip b), script').length";
            assert_eq!(browser.run(found), 1, "{what}");
            let hidden = "return /[\\u202e\\x1b\\0]/.test(document.body.textContent)";
            assert_eq!(browser.run(hidden), false, "{what}");
        };
        for view in ["inverted", "callers", "chart", "icicle"] {
            browser.choose("view", view);
            browser.change("select(flame.lines.flat().find((box) => isFunction(box.index)))");
            check(view);
        }
        browser.drag("#flame", &[(0.1, 0.1), (0.1, 0.2)]);
        check("tip");
        browser.change(
            "Object.assign(state, { rows: 'event', root: 'process', merge: [heaviest()], search: functions[heaviest()] }); \
             refresh(); showFunction(heaviest())",
        );
        check("chosen");
        for tab in ["processes", "files", "code", "bytes", "recording", "soundness"] {
            browser.change(&format!("document.getElementById('tab-{tab}').click()"));
            check(tab);
        }
    }
}
