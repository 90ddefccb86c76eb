//! C++ names are those of GNU's demangler, and bounded for any symbol.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use demangle::demangle;

/// Symbols, and their names by `__cxa_demangle` of GCC 16: constructs of the grammar, and symbols of real
/// libraries that differ most in their structure.
const NAMES: &str = include_str!("names.tsv");

/// Longer than any name of these tests.
const LONG: usize = 1 << 16;

fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMES.lines().map(|line| line.split_once('\t').unwrap())
}

fn shown(symbol: &str) -> String {
    demangle(symbol, LONG).unwrap_or_else(|| symbol.to_owned())
}

#[test]
fn names_equal_those_of_gnus_demangler() {
    let wrong: Vec<_> = names().filter(|&(symbol, name)| shown(symbol) != name).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Symbols that GNU's demangler leaves mangled, or gets wrong.
#[test]
fn symbols_unknown_to_gnus_demangler_have_names() {
    for (symbol, name) in [
        ("_Z1fDB5_DU7_DB_", "_Z1fDB5_DU7_DB_"),
        ("_Z1fDB5_DU7_", "f(_BitInt(5), unsigned _BitInt(7))"),
        ("_ZGRN1A1xE_", "reference temporary #0 for A::x"),
        ("_ZGRN1A1xE0_", "reference temporary #1 for A::x"),
        ("_Z1fu9__is_sameIiiE", "f(__is_same<int, int>)"),
        ("_Z1fIiEDTcldtfp_dn1AEET_", "decltype (({parm#1}.(~A))()) f<int>(int)"),
        // GNU's counts the type without a name twice: `n::B::{unnamed type#1}*`.
        ("_ZN1n1BUt_1gEPS0_RS0_PS2_", "n::B::{unnamed type#1}::g(n::B*, n::B&, n::B**)"),
    ] {
        assert_eq!(shown(symbol), name);
    }
    // GNU's reads no symbol of more than 1,024 bytes.
    let long = format!("_ZN{}E", "10namespaces".repeat(100));
    assert_eq!(shown(&long), vec!["namespaces"; 100].join("::"));
}

#[test]
fn a_damaged_symbol_has_a_name_of_bounded_length_or_none() {
    for (symbol, _) in names() {
        for at in (2..symbol.len()).filter(|&at| symbol.is_char_boundary(at)) {
            let (front, back) = symbol.split_at(at);
            let mut damaged = vec![front.to_owned(), format!("{front}{}", &back[1..])];
            damaged
                .extend(["S_", "T_", "I", "E", "DpT_", "9", "Z"].map(|part| format!("{front}{part}{back}")));
            for symbol in damaged {
                assert!(demangle(&symbol, 200).is_none_or(|name| name.len() <= 200), "{symbol}");
            }
        }
    }
}

#[test]
fn a_symbol_with_an_endless_name_has_none() {
    let pairs = "0123456789ABCDEFGHIJKLMNOPQRS".chars().map(|at| format!("S_IS{at}_S{at}_E"));
    let pairs = pairs.collect::<String>();
    for symbol in [
        format!("_Z1fSt4pairIiiE{pairs}"),
        // Finding the pack in it prints nothing.
        format!("_Z1fIJEEvSt4pairIiiE{pairs}DpSR_"),
        // Ambiguous productions, nested in themselves.
        format!("_ZN1A{}i{}Ev", "cvT_I".repeat(200), "E".repeat(200)),
        format!("_Z1fDT{}i", "sr1AIX".repeat(60)),
        format!("_Z1f{}i", "P".repeat(60_000)),
        format!("_Z1f{}v{}", "PFv".repeat(10_000), "E".repeat(10_000)),
        format!("_Z{}i{}vv", "1fI".repeat(10_000), "E".repeat(10_000)),
        format!("_Z1fIX{}Li1EEEvv", "nt".repeat(10_000)),
        format!("_Z1f{}", "1A".repeat(1 << 16)),
    ] {
        assert_eq!(demangle(&symbol, LONG), None);
    }
}

#[test]
fn a_name_above_the_given_length_is_none() {
    assert_eq!(demangle("_Z1fv", 3).as_deref(), Some("f()"));
    assert_eq!(demangle("_Z1fv", 2), None);
}

fn symbols(file: &Path) -> Vec<String> {
    let tables = [&["--defined-only"][..], &["--defined-only", "--dynamic"]];
    let of = |options: &[&str]| Command::new("nm").args(options).arg(file).output();
    let listed = tables.iter().filter_map(|options| of(options).ok());
    let listed: String = listed.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).collect();
    let symbols = listed.lines().filter_map(|line| line.rsplit(' ').next()?.split('@').next());
    let mut symbols: Vec<_> = symbols.filter(|name| name.starts_with("_Z")).map(str::to_owned).collect();
    symbols.sort_unstable();
    symbols.dedup();
    symbols
}

/// The names of c++filt, which keeps the abbreviations of libstdc++: `std::string`.
fn by_gnu(symbols: &[String]) -> Option<Vec<String>> {
    let mut command = Command::new("c++filt");
    command.args(["--no-verbose", "--format=gnu-v3"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().ok()?;
    let mut stdin = running.stdin.take()?;
    let lines = symbols.join("\n") + "\n";
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = running.wait_with_output().ok()?.stdout;
    writer.join().unwrap().unwrap();
    Some(String::from_utf8(output).ok()?.lines().map(str::to_owned).collect())
}

/// If c++filt and nm are installed: the names of libstdc++, and of the files listed in PERFX_DEMANGLE, are
/// those of c++filt, unless it leaves them mangled.
#[test]
fn names_of_installed_libraries_are_those_of_cxxfilt() {
    let listed = std::env::var("PERFX_DEMANGLE").unwrap_or_default();
    let standard = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";
    for file in listed.split_whitespace().chain([standard]).map(Path::new) {
        let symbols = symbols(file);
        let Some(names) = by_gnu(&symbols).filter(|names| !names.is_empty()) else {
            eprintln!("skipped: c++filt, nm or {} is not installed", file.display());
            continue;
        };
        assert_eq!(names.len(), symbols.len());
        let wrong: Vec<_> = symbols
            .iter()
            .zip(&names)
            .filter(|&(symbol, name)| name != symbol && *name != shown(symbol))
            .take(10)
            .collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", file.display());
        println!("{}: {} names are equal", file.display(), symbols.len());
    }
}
