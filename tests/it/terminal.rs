//! On a terminal the program behaves as users expect: no binary data, colours, and a progress bar; in a pipe
//! there are none of these.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

use crate::cli::{PIPE, everything, perfx, place};
use crate::support::{Fixture, Ran, Stdin, perfx_command};

/// Which of its streams is a terminal; the other is a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terminal {
    Stdout,
    Stderr,
}

/// A terminal with this number of columns, or an unknown one (0): the end that shows it, and the end for a
/// program.
fn terminal(columns: u16) -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    (File::from(terminal), File::options().read(true).write(true).open(name).unwrap())
}

/// Writes to a program's standard input.
type Feed<'f> = &'f (dyn Fn(&mut ChildStdin) + Sync);

/// Runs a command to its end; without `feed`, standard input is /dev/null. The terminal's contents replace
/// the stream's.
fn show(command: Command, on: Terminal, feed: Option<Feed<'_>>) -> Ran {
    show_at(0, command, on, feed)
}

/// Like `show`, on a terminal with this many columns.
fn show_at(columns: u16, mut command: Command, on: Terminal, feed: Option<Feed<'_>>) -> Ran {
    let (mut shows, inner) = terminal(columns);
    let stdin = if feed.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    match on {
        Terminal::Stdout => command.stdout(inner),
        Terminal::Stderr => command.stderr(inner),
    };
    let mut child = command.spawn().unwrap();
    // The command holds the other end, and reading continues as long as it is open.
    drop(command);
    let mut shown = Vec::new();
    let stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        if let (Some(feed), Some(mut stdin)) = (feed, stdin) {
            scope.spawn(move || feed(&mut stdin));
        }
        let reader = scope.spawn(|| {
            // Linux signals the end of a terminal by an error.
            let _ = shows.read_to_end(&mut shown);
        });
        let output = child.wait_with_output().unwrap();
        reader.join().unwrap();
        output
    });
    let (stdout, stderr) = match on {
        Terminal::Stdout => (shown, output.stderr),
        Terminal::Stderr => (output.stdout, shown),
    };
    Ran { code: output.status.code(), stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
}

fn command_in(folder: &TempDir, line: &str) -> Command {
    let mut command = perfx_command();
    command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command.current_dir(folder.path()).args(line.split_whitespace());
    command
}

/// Runs a command line with a terminal as standard output, and without colours.
fn on_a_terminal(folder: &TempDir, stdin: Stdin<'_>, line: &str) -> Ran {
    let mut command = command_in(folder, line);
    command.env("NO_COLOR", "1");
    match stdin {
        Stdin::Pipe(bytes) => {
            show(command, Terminal::Stdout, Some(&|stdin: &mut ChildStdin| stdin.write_all(bytes).unwrap()))
        }
        _ => show(command, Terminal::Stdout, None),
    }
}

#[test]
fn a_terminal_never_gets_a_recording_but_a_file_beside_the_input() {
    let folder = place();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::copy(folder.path().join("perf.data"), folder.path().join("sub/my.rec.data")).unwrap();
    fs::copy(folder.path().join("perf.data"), folder.path().join("bare")).unwrap();
    for (line, output) in [
        ("copy", "perf.copy.data"),
        ("inject -b --foreign", "perf.inject.data"),
        ("run -p build-ids:foreign", "perf.run.data"),
        ("copy sub/my.rec.data", "sub/my.rec.copy.data"),
        ("copy bare", "bare.copy"),
    ] {
        let ran = on_a_terminal(&folder, Stdin::Null, line);
        assert_eq!((ran.code, ran.text().as_str()), (Some(0), ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("wrote {output}: ")), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("because standard output is a terminal"), "{line}: {}", ran.stderr);
        assert_eq!(perfx(&folder, &format!("dump {output}")).code, Some(0), "{line}");
        // The second time, the file exists.
        let again = on_a_terminal(&folder, Stdin::Null, line);
        assert_eq!(again.code, Some(1), "{line}: {}", again.stderr);
        assert!(again.stderr.contains("exists; -f overwrites it"), "{line}: {}", again.stderr);
    }
    let before = everything(folder.path());
    let refused = on_a_terminal(&folder, Stdin::Null, "copy -o -");
    assert_eq!((refused.code, refused.text().as_str()), (Some(2), ""), "{}", refused.stderr);
    assert!(everything(folder.path()) == before);
    let piped = on_a_terminal(&folder, Stdin::Pipe(&Fixture::new(PIPE).bytes()), "copy -f");
    assert_eq!((piped.code, piped.text().as_str()), (Some(0), ""), "{}", piped.stderr);
    assert!(
        piped.stderr.contains("wrote perf.copy.data: ") || piped.stderr.contains("/perf.copy.data: "),
        "{}",
        piped.stderr
    );
    // Text may go to a terminal.
    assert!(on_a_terminal(&folder, Stdin::Null, "dump").text().starts_with("header"));
}

#[test]
fn only_terminals_with_colours_get_colours() {
    let folder = place();
    let escape = '\u{1b}';
    let shown = |on: Terminal, color: Option<(&str, &str)>, line: &str| {
        let mut command = command_in(&folder, line);
        command.env("TERM", "xterm-256color");
        // In CI, colours are enabled on any terminal.
        for name in ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        if let Some((name, value)) = color {
            command.env(name, value);
        }
        show(command, on, None)
    };
    for (line, stream) in [
        ("copy missing.data -o out", Terminal::Stderr),
        ("copy --frobnicate", Terminal::Stderr),
        ("--help", Terminal::Stdout),
        ("dump perf.data", Terminal::Stdout),
        ("passes", Terminal::Stdout),
    ] {
        let coloured = |color, line: &str| {
            let ran = shown(stream, color, line);
            let (terminal, pipe) = match stream {
                Terminal::Stdout => (ran.text(), ran.stderr),
                Terminal::Stderr => (ran.stderr.clone(), ran.text()),
            };
            assert!(!pipe.contains(escape) || line.contains("always"), "{line}");
            terminal.contains(escape)
        };
        assert!(coloured(None, line), "{line}");
        assert!(!coloured(Some(("NO_COLOR", "1")), line), "{line}");
        assert!(!coloured(Some(("TERM", "dumb")), line), "{line}");
        assert!(!coloured(None, &format!("{line} --color never")), "{line}");
        assert!(!coloured(None, &format!("--color=never {line}")), "{line}");
        assert!(coloured(Some(("NO_COLOR", "1")), &format!("--color always {line}")), "{line}");
        // Without a terminal there are no colours, unless requested.
        let plain = perfx(&folder, line);
        assert!(!plain.text().contains(escape) && !plain.stderr.contains(escape), "{line}");
        let asked = perfx(&folder, &format!("--color always {line}"));
        assert!(asked.text().contains(escape) || asked.stderr.contains(escape), "{line}");
    }
}

#[test]
fn a_terminal_shows_progress_after_two_seconds() {
    // The front of a pipe is read in one piece of 4 MiB.
    let pipe = Fixture::new(PIPE).repeated(12 << 20);
    let (front, rest) = pipe.split_at(pipe.len() / 2);
    let slow = |options: &str, on: Terminal, pause: u64| {
        let folder = place();
        let command = command_in(&folder, &format!("copy - {options} -o out"));
        show(
            command,
            on,
            Some(&|stdin: &mut ChildStdin| {
                stdin.write_all(front).unwrap();
                thread::sleep(Duration::from_millis(pause));
                stdin.write_all(rest).unwrap();
            }),
        )
    };
    thread::scope(|scope| {
        for (options, on, pause, is_shown) in [
            ("", Terminal::Stderr, 3000, true),
            ("-v", Terminal::Stderr, 3000, true),
            ("", Terminal::Stderr, 200, false),
            ("--no-progress", Terminal::Stderr, 3000, false),
            ("-q", Terminal::Stderr, 3000, false),
            ("", Terminal::Stdout, 3000, false),
        ] {
            scope.spawn(move || {
                let ran = slow(options, on, pause);
                let what = format!("{options} {pause}: {:?}", ran.stderr);
                assert_eq!(ran.code, Some(0), "{what}");
                assert_eq!(ran.stderr.contains("B/s"), is_shown, "{what}");
                if is_shown {
                    // The bar is erased before the report, which begins on a new line.
                    let (bar, report) = ran.stderr.rsplit_once("B/s").unwrap();
                    assert!(bar.contains('\r'), "{what}");
                    let erased = report.find("\u{1b}[2K").expect("the line is erased");
                    assert!(report[erased..].contains("perfx: read"), "{what}");
                }
            });
        }
    });
}

/// A name could turn the text around it, and hide parts of it.
#[test]
fn invisible_characters_of_names_are_escaped_on_a_terminal_only() {
    let folder = place();
    let mut bytes = Fixture::new("recorded/several.p61.data").bytes();
    while let Some(at) = bytes.windows(4).position(|part| part == b"crew") {
        bytes[at..at + 4].copy_from_slice("\u{202e}x".as_bytes());
    }
    fs::write(folder.path().join("named.data"), bytes).unwrap();
    let line = "export folded --foreign named.data";
    let shown = on_a_terminal(&folder, Stdin::Null, line);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    assert!(shown.text().contains("\n\\u{202e}x;") && !shown.text().contains('\u{202e}'), "{}", shown.text());
    let piped = perfx(&folder, line).text();
    assert!(piped.contains("\n\u{202e}x;"), "{piped}");
    assert_eq!(shown.text().replace("\\u{202e}", "\u{202e}").replace("\r\n", "\n"), piped);
}

/// Lines of tables were broken on a terminal of 80 columns, so that their columns could not be read.
#[test]
fn tables_fit_a_terminal_and_are_whole_in_a_pipe() {
    let input = Fixture::new("recorded/buildid-default.p61.data").path;
    let command = || {
        let mut command = perfx_command();
        command.args(["list", "dsos"]).arg(&input);
        command
    };
    let whole = crate::support::run(&mut command(), Stdin::Null).text();
    let narrow = show_at(60, command(), Terminal::Stdout, None).text().replace('\r', "");
    assert!(whole.lines().any(|line| line.chars().count() > 60) && !whole.contains('…'), "{whole}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(narrow.contains("/usr/lib/") && narrow.contains("…") && narrow.contains(".so"), "{narrow}");
    let numbers = |text: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    };
    assert_eq!(numbers(&narrow), numbers(&whole));
    // A terminal without a known width.
    assert_eq!(show(command(), Terminal::Stdout, None).text().replace('\r', ""), whole);
}
