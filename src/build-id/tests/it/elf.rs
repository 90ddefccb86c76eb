//! Build-ids are found in ELF files of every shape, and no bytes make the reader panic, hang or waste memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::made::{ORDINARY, Shape, elf, elf_of_notes, note, shapes};
use build_id::{BuildId, Endianness, Error, from_elf, from_notes, of_file, open, open_unlinked};

const ID: [u8; 20] = *b"\x0119 more bytes of id";

fn ok(image: &[u8]) -> Option<BuildId> {
    from_elf(image).unwrap()
}

fn says(image: &[u8]) -> String {
    from_elf(image).unwrap_err().to_string()
}

/// Copies the image to an address with the wrong alignment for headers.
fn at_odd_address(image: &[u8]) -> Vec<u8> {
    [&[0xee], image].concat()
}

#[test]
fn either_class_and_order_by_sections_or_program_headers() {
    for shape in shapes() {
        for len in [1, 8, 16, 20] {
            let image = elf(shape, &ID[..len]);
            assert_eq!(ok(&image), BuildId::new(&ID[..len]), "{shape:?}");
            assert_eq!(ok(&at_odd_address(&image)[1..]), BuildId::new(&ID[..len]), "{shape:?}");
        }
    }
}

#[test]
fn an_id_longer_than_20_bytes_is_none() {
    assert_eq!(ok(&elf(ORDINARY, &[])), None);
    assert_eq!(ok(&elf(ORDINARY, &[1; 21])), None);
    assert_eq!(ok(&elf(ORDINARY, &[0; 20])), None);
    assert_eq!(ok(&elf_of_notes(ORDINARY, &[], 4)), None);
    assert_eq!(ok(&elf(Shape { sections: false, segments: false, ..ORDINARY }, &ID)), None);
}

#[test]
fn other_notes_are_skipped() {
    for shape in shapes() {
        for padding in [4, 8] {
            let notes = [
                note(shape, b"Xen\0", 3, &[5; 20], padding),
                note(shape, b"GNU\0", 1, &[5; 20], padding),
                note(shape, b"", 3, b"", padding),
                note(shape, b"long name\0", 3, b"odd", padding),
                note(shape, b"GNU\0", 3, &[0; 20], padding),
                note(shape, b"GNU\0", 3, &ID, padding),
                note(shape, b"GNU\0", 3, &[6; 20], padding),
            ]
            .concat();
            let endian = if shape.big_endian { Endianness::Big } else { Endianness::Little };
            assert_eq!(from_notes(&notes, endian), BuildId::new(&ID));
            // The headers may state a wrong padding.
            for align in [0, 1, 4, 8, 16] {
                assert_eq!(ok(&elf_of_notes(shape, &notes, align)), BuildId::new(&ID), "{shape:?}");
            }
        }
    }
}

#[test]
fn a_truncated_note_is_not_found() {
    let notes = [note(ORDINARY, b"GNU\0", 1, b"abi ", 4), note(ORDINARY, b"GNU\0", 3, &ID, 4)].concat();
    for len in 0..notes.len() {
        assert_eq!(from_notes(&notes[..len], Endianness::Little), None, "{len}");
    }
    let notes = note(ORDINARY, b"GNU\0", 3, &ID[..17], 1);
    assert_eq!(from_notes(&notes, Endianness::Little), BuildId::new(&ID[..17]));
}

#[test]
fn a_file_that_is_not_elf_is_identified() {
    assert_eq!(says(b""), "not an ELF file");
    assert_eq!(says(b"\x7fELF\x02\x01"), "not an ELF file");
    assert_eq!(says(b"#!/bin/sh\necho hello\n"), "not an ELF file");
    assert_eq!(says(b"\xfd7zXZ\0 and so on, long enough"), "compressed (xz), not read");
    assert_eq!(says(b"\x1f\x8b and so on, long enough"), "compressed (gzip), not read");
    assert_eq!(says(b"\x28\xb5\x2f\xfd and so on, long enough"), "compressed (zstd), not read");
    let mut image = elf(ORDINARY, &ID);
    image[4] = 3;
    assert_eq!(says(&image), "damaged ELF file: its class is 3, neither 32 nor 64 bit");
}

#[test]
fn damage_is_an_error_only_if_it_hides_the_id() {
    let section_table_at = 0x28;
    let mut image = elf(ORDINARY, &ID);
    image[section_table_at + 6] = 0xff;
    assert_eq!(ok(&image), BuildId::new(&ID));
    let mut image = elf(Shape { segments: false, ..ORDINARY }, &ID);
    image[section_table_at + 6] = 0xff;
    assert!(says(&image).starts_with("damaged ELF file: "));
}

/// Pseudo-random numbers, the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let mut numbers = Numbers(0x9e3779b97f4a7c15);
    for shape in shapes() {
        let notes = [note(shape, b"long name\0", 1, b"odd", 8), note(shape, b"GNU\0", 3, &ID, 8)].concat();
        let image = elf_of_notes(shape, &notes, 8);
        for len in 0..image.len() {
            let _ = from_elf(&image[..len]);
            let _ = from_notes(&image[len..], Endianness::Big);
        }
        for at in 0..image.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, image[at] ^ 1, image[at].wrapping_add(1)] {
                let mut image = image.clone();
                image[at] = value;
                let _ = from_elf(&image);
                // Several changes at once, and a truncated image.
                for _ in 0..4 {
                    let at = numbers.next(image.len());
                    image[at] = numbers.next(256) as u8;
                    let _ = from_elf(&image);
                }
                let _ = from_elf(&image[..numbers.next(image.len())]);
                let _ = from_notes(&image[numbers.next(image.len())..], Endianness::Little);
            }
        }
    }
}

#[test]
fn a_file_gives_what_its_bytes_give() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    for shape in shapes() {
        let image = elf(shape, &ID);
        for len in (0..=image.len()).rev() {
            fs::write(&path, &image[..len]).unwrap();
            match (of_file(&path), from_elf(&image[..len])) {
                (Ok(a), Ok(b)) => assert_eq!(a, b),
                (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
                (a, b) => panic!("{a:?} of the file, {b:?} of the bytes"),
            }
        }
    }
}

/// The result for a sparse file of 1 TiB that starts with this many copies of one PT_NOTE header.
fn sparse(segments: u16, notes_len: u64, id: &[u8]) -> Result<Option<BuildId>, Error> {
    let notes_at = 1u64 << 38;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    let mut start = elf(Shape { sections: false, ..ORDINARY }, id);
    start[56..58].copy_from_slice(&segments.to_le_bytes());
    let mut segment = start[64..120].to_vec();
    segment[8..16].copy_from_slice(&notes_at.to_le_bytes());
    segment[32..40].copy_from_slice(&notes_len.to_le_bytes());
    file.set_len(1 << 40).unwrap();
    file.write_all_at(&start[..64], 0).unwrap();
    file.write_all_at(&segment.repeat(usize::from(segments)), 64).unwrap();
    file.write_all_at(&note(ORDINARY, b"GNU\0", 3, id, 4), notes_at).unwrap();
    of_file(&path)
}

#[test]
fn only_headers_and_notes_of_a_large_file_are_read() {
    assert_eq!(sparse(1, 36, &ID).unwrap(), BuildId::new(&ID));
    assert_eq!(sparse(1, 1 << 20, &[0; 20]).unwrap(), None);
}

#[test]
fn an_excessive_size_is_refused() {
    // One large claim, one absurd one, and many to the same few bytes.
    for (segments, notes_len) in [(1, 128 << 20), (1, 1 << 39), (1000, 256 << 10)] {
        let result = sparse(segments, notes_len, &[0; 20]);
        assert!(matches!(result, Err(Error::Damaged(_))), "{segments} times {notes_len}: {result:?}");
    }
}

#[test]
fn only_a_regular_file_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let says = |path: &Path| of_file(path).unwrap_err().to_string();
    assert_eq!(says(&fifo), "not a regular file but a FIFO, not read");
    assert_eq!(says(dir.path()), "not a regular file but a directory, not read");
    assert_eq!(says(Path::new("/dev/zero")), "not a regular file but a device, not read");
    assert_eq!(says(&dir.path().join("none")), "No such file or directory (os error 2)");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &link).unwrap();
    assert!(open(&link).is_ok());
    assert_eq!(
        open_unlinked(&link).unwrap_err().to_string(),
        "not a regular file but a symbolic link, not read"
    );
}

/// The build-ids that readelf(1) reports for these files, or nothing if it is not installed.
fn readelf(files: &[PathBuf]) -> Vec<(PathBuf, Option<String>)> {
    let Ok(output) = Command::new("readelf").args(["--wide", "--notes"]).args(files).output() else {
        return Vec::new();
    };
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    // readelf prints `File: NAME` only if there are several files.
    let parts: Vec<_> = output.split("\nFile: ").skip(1).collect();
    assert_eq!(parts.len(), files.len());
    let id =
        |part: &&str| part.split("Build ID: ").nth(1).map(|rest| rest.lines().next().unwrap().to_owned());
    files.iter().cloned().zip(parts.iter().map(id)).collect()
}

#[test]
fn readelf_agrees_on_the_files_of_this_machine() {
    let mut files = vec![std::env::current_exe().unwrap()];
    for folder in ["/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        files.extend(entries.filter(|path| of_file(path).is_ok()).take(300));
    }
    for (file, id) in readelf(&files) {
        let found = of_file(&file).unwrap().map(|id| id.to_string());
        assert_eq!(found, id, "{}", file.display());
    }
}

#[test]
fn stripped_and_debug_files_have_the_same_id() {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let id = of_file(&exe).unwrap();
    let mut files = Vec::new();
    for option in ["--strip-all", "--strip-debug", "--only-keep-debug", "--strip-section-headers"] {
        let file = dir.path().join(option);
        // Older binutils do not know the last option, and binutils may not be installed.
        if Command::new("objcopy").arg(option).arg(&exe).arg(&file).output().is_ok_and(|o| o.status.success())
        {
            assert_eq!(of_file(&file).unwrap(), id, "{option}");
            files.push(file);
        }
    }
    eprintln!("compared {files:?}");
}
