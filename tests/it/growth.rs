//! Every command takes time and memory in proportion to its input, for any contents: each command of the
//! table in [`crate::every_pass`] runs on each family of hostile recordings, with n items and with 4 n. A
//! command that is in the table, or a pass in the registry, is covered.
//!
//! A run takes a fixed part of the product of commands and families: see `one_of`. `tests/bench/growth.sh`
//! runs all of them at real sizes with the release build (PERFX_GROWTH_SCALE times as many items), and prints
//! a table.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfx_format::features::{GroupDesc, write_group_desc};
use perfx_format::header::Features;
use perfx_format::jitdump::{Dump, Line, Load, Move, Writer};
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::write::RecordingWriter;
use perfx_format::{COMM_EXEC, Event, Feature, Inode, MappedFile, RecordType as T, sample_type as st};
use perfx_jit::{Functions, Image, Target, arenas};

use crate::every_pass::{WITHOUT_INPUT, commands, number};
use crate::hostile::{Family, OF_PROGRAMS};
use crate::maker::{LE, Maker, PLAIN, USER, event, tracepoint, tracing_data};
use crate::support::{Stdin, Tier, each, one_of, perfx_command, run, temp};
use crate::{args, tiers};

fn plain(folder: &Path, records: impl FnOnce(&mut Maker)) {
    let mut maker = Maker::new(&folder.join("in.data"), &[event(PLAIN, vec![1])]);
    maker.comm(1, "first", 0);
    (1..20).for_each(|page| maker.mmap(1, 0x10000 * page, 0x1000, "/nowhere/x"));
    records(&mut maker);
    maker.writer.finish().unwrap();
}

/// With events that each have as many ids, and a sample of each id.
fn identified(folder: &Path, events: u64, ids: u64) {
    let ids_of = |event| (1 + ids * event..=ids * (event + 1)).collect();
    let events: Vec<_> = (0..events).map(|number| event(PLAIN | st::IDENTIFIER, ids_of(number))).collect();
    let mut maker = Maker::new(&folder.join("in.data"), &events);
    events.iter().flat_map(|event| &event.ids).for_each(|&id| maker.sample_of(id, 1, 0x10010));
    maker.writer.finish().unwrap();
}

/// A recording of processes that mapped the dump `jit-7.dump`, and a process with a perf map, beside it.
fn with_dump(folder: &Path, dump: Writer, map: &str, forks: u32) {
    fs::write(folder.join("jit-7.dump"), dump.into_bytes()).unwrap();
    fs::write(folder.join("perf-1.map"), map).unwrap();
    plain(folder, |maker| {
        let file = MappedFile::Inode(Inode { major: 8, minor: 1, inode: 7, generation: 0 });
        maker.mmap2(7, 0x10_0000, 0x1000, file, "/tmp/jit-7.dump");
        maker.mmap(1, 1 << 40, 1 << 46, "//anon");
        for number in 0..forks {
            maker.fork(8 + number, 7 + number);
            maker.mmap(8 + number, 0x1000 * u64::from(number), 0x1000, "/nowhere/own");
        }
        maker.sample(7, 0x10_0010);
    });
}

/// A recording of a program with these functions, beside it, and samples at each of them.
fn with_program(folder: &Path, n: u64, name: impl Fn(u64) -> String) {
    let (mut dump, base) = (Writer::new(LE, 62, 7), 0x10_0000);
    for index in 0..n {
        let (address, name) = (base + 16 * index, name(index));
        dump.debug_info(
            1,
            address,
            &[Line { address, line: 1 + index as u32, column: 1, file: b"/src/a.c" }],
        );
        dump.load(1, &Load { name: name.as_bytes(), ..jit_load(7, index, address, 16, &[0x90; 16]) });
    }
    let bytes = dump.into_bytes();
    let functions = Functions::of(&Dump::new(&bytes).unwrap());
    let [arena] = &arenas(&functions.list)[..] else { panic!("one arena") };
    let image = Image::new(&functions, arena, Target::of(functions.header, None));
    fs::create_dir_all(folder.join("nowhere")).unwrap();
    let file = File::create(folder.join("nowhere/program")).unwrap();
    let written = image.write(&file, 0).unwrap();
    plain(folder, |maker| {
        let start = 1 << 40;
        maker.mmap2(1, start, written.len, MappedFile::BuildId(&written.build_id), "/nowhere/program");
        (0..n).for_each(|index| maker.sample(1, start + image.place_of(base) + 16 * index));
    });
}

fn jit_load(pid: u32, index: u64, address: u64, size: u64, code: &[u8]) -> Load<'_> {
    Load { pid, tid: pid, address, size, index, name: b"jitted", code }
}

const FAMILIES: [Family; 31] = [
    ("one pid, again and again", 5000, |folder, n| {
        plain(folder, |maker| {
            for _ in 0..n {
                maker.fork(7, 1);
                maker.sample(7, 0x10010);
                maker.task(T::EXIT, 7, 1);
            }
        });
    }),
    ("children of one process", 5000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n as u32 {
                maker.fork(100 + number, 1);
                maker.sample(100 + number, 0x10010);
            }
        });
    }),
    ("each forked by the one before", 5000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n as u32 {
                maker.fork(100 + number, if number > 0 { 99 + number } else { 1 });
                maker.mmap(100 + number, 0x1000_0000 + 0x2000 * u64::from(number), 0x1000, "/nowhere/own");
            }
            (0..n).for_each(|number| maker.sample(99 + n as u32, 0x10010 + 0x10000 * (number % 20)));
        });
    }),
    ("each forked by the next at the same time", 5000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n as u32 {
                maker.time = 1000;
                maker.fork(100 + number, 101 + number);
                maker.sample(100 + number, 0x10010);
            }
        });
    }),
    ("execs", 4000, |folder, n| {
        plain(folder, |maker| {
            for _ in 0..n {
                maker.comm(7, "again", COMM_EXEC);
                maker.mmap(7, 0x10000, 0x1000, "/nowhere/x");
                maker.sample(7, 0x10010);
            }
        });
    }),
    ("mappings in one another", 3000, |folder, n| {
        plain(folder, |maker| {
            (0..n)
                .for_each(|number| maker.mmap(1, 0x1000 * (number + 1), 0x2000 * (n - number), "/nowhere/x"));
            (0..n).for_each(|number| maker.sample(1, 0x1000 * (1 + number * 7919 % (2 * n))));
        });
    }),
    ("maps and forks in turns", 3000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n {
                maker.mmap(1, 0x1000 * (number + 1), 0x1000, "/nowhere/x");
                maker.fork(100 + number as u32, 1);
                maker.sample(100 + number as u32, 0x1000 * (1 + number / 2));
            }
        });
    }),
    ("files", 2000, |folder, n| {
        plain(folder, |maker| {
            (0..n).for_each(|number| maker.mmap(1, 0x1000 * number, 0x1000, &format!("/nowhere/{number}")));
            (0..n).for_each(|number| maker.sample(1, 0x1010 + 0x1000 * number));
        });
    }),
    ("names of one thread", 5000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n {
                maker.comm(7, &format!("name{number}"), 0);
                maker.sample(7, 0x10010);
            }
        });
    }),
    ("processes with one sample", 5000, |folder, n| {
        plain(folder, |maker| (0..n).for_each(|number| maker.sample(100 + number as u32, 0x10010)));
    }),
    ("samples of one time", 5000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n {
                maker.time = 1000;
                maker.sample(1 + number as u32 % 1000, number);
            }
        });
    }),
    ("the latest first", 5000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n {
                maker.time = 1000 + n - number;
                maker.sample(1, 0x10010);
            }
        });
    }),
    ("rounds", 5000, |folder, n| {
        plain(folder, |maker| {
            for _ in 0..n {
                maker.sample(1, 0x10010);
                maker.writer.write_parts(T::FINISHED_ROUND, 0, &[]).unwrap();
            }
        });
    }),
    ("processes in turns, and a mapping behind them", 3000, |folder, n| {
        plain(folder, |maker| {
            (0..100).for_each(|number| maker.sample(1 + number, 0x10010));
            for number in 0..n {
                maker.put(T::LOST, 0, 1 + number as u32 % 100, &[&1u64.to_le_bytes(), &1u64.to_le_bytes()]);
            }
            maker.mmap(1, 0x20000, 0x1000, "/last");
        });
    }),
    ("events", 100, |folder, n| identified(folder, n, 1)),
    ("ids of an event", 3000, |folder, n| identified(folder, 2, n / 2)),
    ("ids of many events", 1500, |folder, n| identified(folder, 30, n / 30)),
    ("build-ids of a file", 2000, |folder, n| {
        let mut section = Vec::new();
        for number in 0..n {
            let mut id = [1; 20];
            id[..8].copy_from_slice(&number.to_le_bytes());
            let entry = BuildIdEntry { misc: USER, pid: -1, id: &id, filename: b"/nowhere/x" };
            entry.write_section(LE, &mut section).unwrap();
        }
        let mut maker = Maker::new(&folder.join("in.data"), &[event(PLAIN, vec![1])]);
        for number in 0..n as u32 {
            maker.mmap(1 + number, 0x1000, 0x1000, "/nowhere/x");
            maker.sample(1 + number, 0x1010);
        }
        maker.writer.set_feature(Feature::BUILD_ID, section).unwrap();
        maker.writer.finish().unwrap();
    }),
    ("code that the kernel creates and removes", 3000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n {
                let address = 0xffff_ffff_0000_0000 + 64 * number;
                let (len, kind, unregister) = (64u32.to_le_bytes(), 1u16.to_le_bytes(), number as u16 % 2);
                let mut name = format!("bpf_prog_{number}").into_bytes();
                name.resize(24, 0);
                let body = [&address.to_le_bytes()[..], &len, &kind, &unregister.to_le_bytes(), &name];
                maker.put(T::KSYMBOL, 1, 1, &body);
                maker.put(T::SAMPLE, 1, 1, &[&address.to_le_bytes()]);
            }
        });
    }),
    ("names of an event", 5000, |folder, n| {
        plain(folder, |maker| {
            for number in 0..n {
                let words = [2, 1 + number % 7].map(u64::to_le_bytes);
                let mut name = format!("name{number}").into_bytes();
                name.resize(16, 0);
                maker.writer.write_parts(T::EVENT_UPDATE, 0, &[words.as_flattened(), &name]).unwrap();
                maker.sample(1, 0x10010);
            }
        });
    }),
    ("events of a tracepoint with a long format", 250, |folder, n| {
        let field = |number| format!("\tfield:int number{number};\toffset:8;\tsize:4;\tsigned:1;\n");
        let fields: String = (0..100).map(field).collect();
        let format = format!("name: made\nID: 7\nformat:\n{fields}\nprint fmt: \"{}\"\n", "%%".repeat(7000));
        let events: Vec<Event> = (1..=n).map(|id| tracepoint(7, id)).collect();
        let mut maker = Maker::new(&folder.join("in.data"), &events);
        (1..=n).for_each(|id| maker.trace(id, 1, &[7; 12]));
        maker.writer.set_feature(Feature::TRACING_DATA, tracing_data("made", &[&format])).unwrap();
        maker.writer.finish().unwrap();
    }),
    ("groups that share their events", 3000, |folder, n| {
        let events: Vec<Event> = (1..=n).map(|id| event(PLAIN | st::IDENTIFIER, vec![id])).collect();
        let group = |leader| GroupDesc { name: GroupDesc::NO_NAME, leader, members: n as u32 };
        let groups: Vec<_> = (0..n as u32).map(|number| group(number % 2)).collect();
        let mut maker = Maker::new(&folder.join("in.data"), &events);
        maker.sample_of(1, 1, 0x10010);
        maker.writer.set_feature(Feature::GROUP_DESC, write_group_desc(&groups, LE)).unwrap();
        maker.writer.finish().unwrap();
    }),
    ("event types of simpleperf", 3000, |folder, n| {
        let events: Vec<Event> = (1..=n).map(|id| event(PLAIN | st::IDENTIFIER, vec![id])).collect();
        let types: String = (0..n).map(|number| format!("name{number},1,{}\n", 100 + number)).collect();
        let mut maker = Maker::new(&folder.join("in.data"), &events);
        maker.sample_of(1, 1, 0x10010);
        let section = format!("event_type_info\0{types}\0").into_bytes();
        maker.writer.set_feature(Feature::META_INFO, section).unwrap();
        maker.writer.finish().unwrap();
    }),
    ("events among the records of a pipe", 100, |folder, n| {
        let file = File::create(folder.join("in.data")).unwrap();
        let first = [event(PLAIN, vec![1])];
        let mut file =
            RecordingWriter::to_pipe(file, &first, &Features::new(), LE).unwrap().finish().unwrap();
        let mut put = |kind: T, body: &[u8]| {
            let size = (8 + body.len()) as u16;
            let header = [&kind.0.to_le_bytes()[..], &USER.to_le_bytes(), &size.to_le_bytes()];
            file.write_all(&[&header.concat(), body].concat()).unwrap();
        };
        for id in 2..n + 2 {
            put(T::HEADER_ATTR, &[event(PLAIN, Vec::new()).raw(), &id.to_le_bytes()].concat());
            put(T::SAMPLE, [0x10010, 1 << 32 | 1, 1000 + id].map(u64::to_le_bytes).as_flattened());
        }
    }),
    ("code without code", 400, |folder, n| {
        let mut dump = Writer::new(LE, 62, 7);
        (1..n).for_each(|index| dump.load(1000 + index, &jit_load(7, index, index << 24, 16 << 20, &[])));
        let map: String =
            (0..n).map(|number| format!("{:x} fffff {number}\n", (1u64 << 40) + (number << 20))).collect();
        with_dump(folder, dump, &map, 0);
    }),
    ("code far apart", 2000, |folder, n| {
        let mut dump = Writer::new(LE, 62, 7);
        (1..n).for_each(|index| dump.load(1000 + index, &jit_load(7, index, index << 20, 1, &[0x90])));
        with_dump(folder, dump, "", 0);
    }),
    ("code that moves", 2000, |folder, n| {
        let mut dump = Writer::new(LE, 62, 7);
        let (pid, tid, size, index, old_address) = (7, 7, 0x4000, 1, 0x10_0000);
        dump.load(1000, &jit_load(pid, index, old_address, size, &[0x90; 0x4000]));
        for number in 1..n {
            let new_address = old_address + size * (number % 1000);
            dump.moved(1000 + number, &Move { pid, tid, old_address, new_address, size, index });
        }
        with_dump(folder, dump, "", 0);
    }),
    ("code over code", 2000, |folder, n| {
        let mut dump = Writer::new(LE, 62, 7);
        let code: Vec<[u8; 8]> = (0..n).map(u64::to_le_bytes).collect();
        for (index, code) in (0..n).zip(&code) {
            dump.load(1000 + index, &jit_load(7, index, 0x10_0000 + index % 7, 8, code));
        }
        with_dump(folder, dump, "", 0);
    }),
    ("functions of a program", 2000, |folder, n| with_program(folder, n, |index| format!("function{index}"))),
    ("long names of C++ functions", 500, |folder, n| {
        // a::a::…::b<int, int, …>(int, int, …)
        with_program(folder, n, |index| {
            format!("_ZN{}1bI{}E{index}Ev{}", "1a".repeat(20), "i".repeat(40), "i".repeat(40))
        });
    }),
    ("code of each in a chain of forks", 2000, |folder, n| {
        let mut dump = Writer::new(LE, 62, 7);
        for index in 0..n {
            let pid = 7 + index as u32;
            dump.load(1_000_000 + index, &jit_load(pid, index, 0x10_0000 + 64 * index, 1, &[0x90]));
        }
        with_dump(folder, dump, "", n as u32);
    }),
];

fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().chain(&OF_PROGRAMS)
}

/// Commands that need additional arguments for their main work.
const MORE: [(&str, &[&str]); 8] = [
    ("view", &["--header-only"]),
    ("perf", &["evlist", "--group", "--input"]),
    ("inject", &["--jit", "--jit-map", "--foreign", "--jit-dir", "HERE", "-o", "OUT"]),
    ("inject", &["--jit", "--jit-layout", "function", "--foreign", "--jit-dir", "HERE", "-o", "OUT"]),
    ("view", &["--where", "number1 > 0", "--foreign"]),
    ("split", &["--by", "event", "--max-parts", "100000", "-o", "OUT"]),
    ("filter", &["--symbol", "function1", "--foreign", "--root", "HERE", "-o", "OUT"]),
    ("export", &["profgen", "--foreign", "--root", "HERE", "--binary", "HERE/nowhere/program", "-o", "OUT"]),
];

/// User and system time of a command, s; or the error. It may use `memory` bytes of private memory.
fn measured(command: &str, args: &[String], input: &Path, memory: u64) -> Result<f64, String> {
    let folder = temp();
    // Beside it, an index or a report may appear.
    let here = folder.path().join("in.data");
    fs::hard_link(input, &here).or_else(|_| fs::copy(input, &here).map(drop)).unwrap();
    let place = |arg: &str| match arg {
        "OUT" => folder.path().join("out").into(),
        "OTHER" => here.clone().into(),
        arg => OsString::from(arg.replace("HERE", input.parent().unwrap().to_str().unwrap())),
    };
    let script = format!(
        r#"ulimit -d {}; "$@" >/dev/null 2>err; code=$?; tail -c 300 err >&2; times; exit $code"#,
        memory >> 10
    );
    let mut shell = Command::new("sh");
    shell.current_dir(folder.path()).args(args!["-c", script, "sh", perfx_command().get_program(), command]);
    shell.args(args.iter().map(|arg| place(arg)));
    if !WITHOUT_INPUT.contains(&command) {
        shell.arg(&here).args((command == "merge").then_some(&here));
    }
    let ran = run(&mut shell, Stdin::Null);
    // Some commands refuse some of the families.
    if !matches!(ran.code, Some(0 | 1 | 3))
        || ran.stderr.contains("panicked")
        || ran.stderr.contains("memory")
    {
        return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
    }
    // The second line is of the children: 0m1.230s 0m0.010s.
    let text = ran.text();
    let parse = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    };
    let times = text.lines().nth(1).and_then(|line| line.split_whitespace().map(parse).sum());
    times.ok_or_else(|| format!("no times: {text}"))
}

/// The maximum factor of time for 4 n items, without the constant part; s.
const MOST_TIMES: f64 = 7.0;
const ALWAYS: f64 = 0.1;

/// Private memory that a command with two threads may use for any input, and for each byte of it. This
/// includes unshared code and data of the program, stacks, and malloc's reserves.
const MEMORY: u64 = (64 + 2 * 8 + 32) << 20;
const MEMORY_OF_BYTE: u64 = 48;

tiers!(time_and_memory_grow_in_proportion_to_the_input);
fn time_and_memory_grow_in_proportion_to_the_input(tier: Tier) {
    let scale: u64 = env::var("PERFX_GROWTH_SCALE").map_or(1, |times| times.parse().expect("a number"));
    let only = env::var("PERFX_GROWTH_ONLY").unwrap_or_default();
    let more = MORE.iter().map(|(command, args)| {
        ((*command).to_owned(), args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    });
    let rooted = |(command, mut args): (String, Vec<String>)| {
        // Files beside the recording replace those of this machine.
        if let Some(at) = args.iter().position(|arg| arg == "--foreign") {
            args.splice(at + 1..at + 1, ["--root", "HERE"].map(str::to_owned));
        }
        (command, args)
    };
    let commands: Vec<_> = commands().into_iter().map(rooted).chain(more).collect();
    let cases: Vec<_> = families()
        .flat_map(|family| commands.iter().map(move |(command, args)| (family, command, args)))
        .filter(|(family, command, args)| {
            number((family.0, command, args)).is_multiple_of(tier.pick(24, 1) * one_of())
                && format!("{}: {command} {}", family.0, args.join(" ")).contains(&only)
        })
        .collect();
    let folder = temp();
    let made = |(name, n, make): &Family, times: u64| -> PathBuf {
        let place = folder.path().join(format!("{name} {times}"));
        if !place.exists() {
            fs::create_dir(&place).unwrap();
            make(&place, n * times * scale);
        }
        place.join("in.data")
    };
    for (family, ..) in &cases {
        made(family, 1);
        made(family, 4);
    }
    let table = env::var_os("PERFX_GROWTH_TABLE").map(|path| File::create(path).unwrap());
    each(
        &cases,
        |(family, command, args)| format!("{}: {command} {}", family.0, args.join(" ")),
        |(family, command, args)| {
            let (few, many) = (made(family, 1), made(family, 4));
            let time = |input: &Path| {
                let sizes = fs::read_dir(input.parent().unwrap())
                    .unwrap()
                    .map(|file| file.unwrap().metadata().unwrap().len());
                measured(command, args, input, MEMORY + MEMORY_OF_BYTE * sizes.sum::<u64>())
            };
            let (mut short, mut long) = (time(&few)?, time(&many)?);
            let is_too_long = |short: f64, long: f64| long > MOST_TIMES * short + ALWAYS;
            // Other load makes the caches cold, and the processor slow.
            for _ in 0..3 {
                if is_too_long(short, long) {
                    (short, long) = (short.max(time(&few)?), long.min(time(&many)?));
                }
            }
            if let Some(mut table) = table.as_ref() {
                let args = args.join(" ");
                let row = format!("| {} | {command} {args} | {short:.2} | {long:.2} |\n", family.0);
                table.write_all(row.as_bytes()).unwrap();
            }
            let too_long = format!("{short:.2} s for n items, and {long:.2} s for 4 n");
            if is_too_long(short, long) { Err(too_long) } else { Ok(()) }
        },
    );
}

#[test]
fn families_are_recordings() {
    let folder = temp();
    for (name, _, make) in families() {
        make(folder.path(), 60);
        let input = folder.path().join("in.data");
        let ran = run(perfx_command().arg("stats").arg(&input), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
    }
}
