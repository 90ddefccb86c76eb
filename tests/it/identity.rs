//! Promise 1: without a pass the data section is byte-identical, and a file in perf's own layout is
//! byte-identical as a whole.

use std::fs;

use crate::index::several_batches;
use crate::parse::{Contents, Order};
use crate::support::{Fixture, Form, Tier, all, each, each_fixture, perfx, recorded, same_bytes, temp};
use crate::{args, tiers};

/// False for recordings that were incomplete when perf was killed, or truncated: `validation.rs` tests them.
fn is_whole(fixture: &Fixture) -> bool {
    !["cut-", "killed", "pipe-cut"].iter().any(|part| fixture.name.contains(&format!("recorded/{part}")))
}

/// A copy in the recording's own form, and the exit code; `None` if it is refused.
fn copied(fixture: &Fixture) -> Result<Option<(Vec<u8>, i32)>, String> {
    let folder = temp();
    let out = folder.path().join("out.data");
    let form = if fixture.form == Form::Pipe { "pipe" } else { "file" };
    let ran = perfx(args!["copy", "--to", form, "-o", out, fixture.path]);
    match ran.code {
        Some(1) => Ok(None),
        Some(code @ (0 | 3)) => Ok(Some((fs::read(&out).unwrap(), code))),
        _ => Err(format!("{ran:?}")),
    }
}

#[test]
fn recordings_of_perf_are_copied_byte_by_byte() {
    let fixtures: Vec<_> = recorded()
        .into_iter()
        .filter(|fixture| fixture.form != Form::Directory && is_whole(fixture))
        .collect();
    each_fixture(&fixtures, |fixture| {
        let (copy, code) = copied(fixture)?.ok_or("was refused")?;
        if code != 0 {
            return Err(format!("exit code {code}"));
        }
        same_bytes("the copy", &fixture.bytes(), &copy)
    });
}

tiers!(every_file_keeps_its_data_and_perfs_own_layout_is_kept_as_a_whole);
fn every_file_keeps_its_data_and_perfs_own_layout_is_kept_as_a_whole(tier: Tier) {
    let data = |file: &[u8]| file[Order::of(file).section(file, 40)].to_vec();
    let fixtures: Vec<_> = tier.of(all()).into_iter().filter(|fixture| fixture.form == Form::File).collect();
    each_fixture(&fixtures, |fixture| {
        let Some((copy, code)) = copied(fixture)? else { return Ok(()) };
        let file = fixture.bytes();
        same_bytes("the data section", &data(&file), &data(&copy))?;
        // With exit code 3, parts of the input are not where the header points, which is reported.
        let why = if code == 0 { Contents::file(&file).not_canonical(&file) } else { Some("it is damaged") };
        match why {
            None => same_bytes("a canonical file", &file, &copy)?,
            Some(why) if code == 0 && file == copy => return Err(format!("{why}, yet it stayed so")),
            Some(_) => {}
        }
        match Contents::file(&copy).not_canonical(&copy) {
            Some(why) => Err(format!("what was written is not canonical: {why}")),
            None => Ok(()),
        }
    });
}

#[test]
fn a_pipe_is_copied_byte_by_byte_up_to_where_it_is_cut() {
    let fixtures: Vec<_> = all().into_iter().filter(|fixture| fixture.form == Form::Pipe).collect();
    each_fixture(&fixtures, |fixture| {
        let Some((copy, code)) = copied(fixture)? else { return Ok(()) };
        let mut pipe = fixture.bytes();
        let mut whole = 16;
        if let Some(last) = crate::parse::records(&pipe[16..], Order::of(&pipe)).last() {
            whole += last.at + last.bytes.len();
        }
        // Header records inside compressed ones are reported, and copied anyway.
        let is_said = whole < pipe.len() || fixture.name.ends_with("-inside.data");
        if (code == 3) != is_said {
            return Err(format!("exit code {code}, though {whole} of {} bytes are whole", pipe.len()));
        }
        pipe.truncate(whole);
        // The only rewritten bytes: the magic of perf 3.2 and before.
        if &pipe[..8] == b"PERFFILE" {
            let magic = if pipe[15] == 0 { b"PERFILE2" } else { b"2ELIFREP" };
            pipe[..8].copy_from_slice(magic);
        }
        same_bytes("the copy", &pipe, &copy)
    });
}

tiers!(a_dump_does_not_depend_on_the_run);
fn a_dump_does_not_depend_on_the_run(tier: Tier) {
    let fixtures: Vec<_> =
        tier.of(all()).into_iter().filter(|fixture| fixture.recorded_by() == Some("p61")).collect();
    each_fixture(&fixtures, |fixture| {
        let [one, two] = [(); 2].map(|()| perfx(args!["dump", "--raw", fixture.path]));
        same_bytes("a second dump", &one.stdout, &two.stdout)
    });
}

#[test]
fn unchanged_ranges_keep_their_offset_in_a_page() {
    // Otherwise file systems that share blocks could not share it with the input.
    let folder = temp();
    let input = folder.path().join("in.data");
    several_batches(&input);
    let time_of = |number: u64| (number * 1000 + 5_000_000).to_le_bytes();
    let place = |file: &[u8], number| {
        file.windows(8).position(|word| word == time_of(number)).ok_or(format!("sample {number} is missing"))
    };
    // Records before this sample grow or are left out. Others grow after sample 50,000.
    let cases = [(["remap", "--path", "/bin=/another"], 40_001), (["filter", "--time", "50%-100%"], 200_001)];
    each(
        &cases,
        |case| format!("{case:?}"),
        |(command, number)| {
            let folder = temp();
            let [out, again] = ["out.data", "again.data"].map(|name| folder.path().join(name));
            perfx(args![command[0], command[1], command[2], "-o", out, input]).done()?;
            let [before, after] = [&input, &out].map(|path| fs::read(path).unwrap());
            let (from, to) = (place(&before, *number)?, place(&after, *number)?);
            if from == to || from % 4096 != to % 4096 {
                return Err(format!("sample {number} moved from {from} to {to}"));
            }
            perfx(args![command[0], command[1], command[2], "-@", "1", "-o", again, input]).done()?;
            same_bytes("on one thread", &after, &fs::read(&again).unwrap())?;
            perfx(args!["copy", "-f", "-o", again, out]).done()?;
            same_bytes("a copy", &after, &fs::read(&again).unwrap())?;
            fs::copy(&input, &again).unwrap();
            perfx(args![command[0], command[1], command[2], "--in-place", again]).done()?;
            same_bytes("in place", &after, &fs::read(&again).unwrap())
        },
    );
}
