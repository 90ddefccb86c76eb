//! Finds the names in records of every kind and in feature sections, and replaces them.
//!
//! | record | byte | name |
//! |---|---|---|
//! | MMAP, MMAP2 | see [`Mmap`] | [`Path`](NameKind::Path) |
//! | COMM | 16 | [`Comm`](NameKind::Comm) |
//! | CGROUP | 16 | [`Cgroup`](NameKind::Cgroup) |
//! | KSYMBOL | 24 | [`Symbol`](NameKind::Symbol) |
//! | EVENT_UPDATE of type 2 | 24 | [`Event`](NameKind::Event) |
//! | HEADER_BUILD_ID | 36 | [`Path`](NameKind::Path) |
//! | HEADER_EVENT_TYPE | 16, at most 64 bytes | [`Event`](NameKind::Event) |
//! | THREAD_MAP | 24 and every 24 bytes, 16 bytes each | [`Comm`](NameKind::Comm) |
//! | HEADER_FEATURE | | those of the feature |
//!
//! | feature | name |
//! |---|---|
//! | BUILD_ID | [`Path`](NameKind::Path) |
//! | HOSTNAME | [`Host`](NameKind::Host) |
//! | CMDLINE | [`Argument`](NameKind::Argument), the program first |
//! | EVENT_DESC | [`Event`](NameKind::Event) |
//! | GROUP_DESC | [`Group`](NameKind::Group) |
//!
//! The names of BPF programs are in features and records of their own, and TRACING_DATA has the names of
//! tracepoints and tasks: see [`TracingData`](crate::features::TracingData).

use crate::decode::{MmapBuildId, mmap_build_id};
use crate::features::{BuildIds, put_str};
use crate::header::EVENT_TYPE_SIZE;
use crate::record::build_id::BuildIdEntry;
use crate::record::builder::set_size;
use crate::record::cgroup::CGROUP_PATH;
use crate::record::event_update::{UPDATED_NAME, name_update};
use crate::record::header_records::{EVENT_TYPE_NAME, feature_section};
use crate::record::ksymbol::KSYMBOL_NAME;
use crate::record::task::COMM_NAME;
use crate::write::feature_record;
use crate::{
    Cursor, Endian, Feature, HEADER_SIZE, Layouts, Mmap, PATH_MAX, Record, RecordType, Result, until_nul,
};

/// The suffix that the kernel adds to the name of a mapped file that was deleted.
pub const DELETED: &[u8] = b" (deleted)";

/// The name without [`DELETED`].
pub fn without_deleted(name: &[u8]) -> &[u8] {
    name.strip_suffix(DELETED).unwrap_or(name)
}

/// True for the names of memory without a file: `[vdso]`, `//anon`, memfds and other shared memory.
///
/// ```
/// use perfx_format::names::is_memory;
///
/// assert!(is_memory(b"[heap]") && is_memory(b"/memfd:pool (deleted)") && !is_memory(b"/usr/bin/perf"));
/// ```
pub fn is_memory(name: &[u8]) -> bool {
    let memory: [&[u8]; 7] =
        [b"[", b"//", b"anon_inode:", b"/dev/zero", b"/anon_hugepage", b"/SYSV", b"/memfd:"];
    memory.iter().any(|prefix| name.starts_with(prefix))
}

/// True for memory whose code a perf map may list, by the names that perf has for it (tools/perf/util/map.c), and
/// for the memory file in which .NET keeps its code.
pub fn is_listed_memory(name: &[u8]) -> bool {
    let memory: [&[u8]; 7] =
        [b"//anon", b"/dev/zero", b"/anon_hugepage", b"[stack", b"/SYSV", b"[heap]", b"/memfd:doublemapper"];
    memory.iter().any(|prefix| name.starts_with(prefix))
}

/// True for memory in which JIT compilers put code.
pub fn is_jit_memory(name: &[u8]) -> bool {
    let memory: [&[u8]; 3] = [b"//anon", b"[anon:", b"/memfd:"];
    memory.iter().any(|prefix| name.starts_with(prefix))
}

/// The name of the kernel as a DSO.
pub const KERNEL_NAME: &[u8] = b"[kernel.kallsyms]";

/// The offset of the first entry in a THREAD_MAP record, and the size of each: u64 pid, char comm\[16\].
const THREAD_MAP_ENTRIES: usize = 16;
const THREAD_MAP_ENTRY: usize = 24;
const THREAD_MAP_COMM: usize = 8;

/// The object of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum NameKind {
    /// A mapped file, or memory like `[vdso]` and `//anon`.
    Path,
    /// A thread.
    Comm,
    /// A cgroup, by its path.
    Cgroup,
    /// Code that the kernel creates at run time.
    Symbol,
    /// An event.
    Event,
    /// A group of events; `{anon_group}` if the user gave no name.
    Group,
    /// The recorded machine.
    Host,
    /// A word of the command line that made the recording.
    Argument,
}

/// A name in a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    /// The object that it names.
    pub kind: NameKind,
    /// The name, which need not be UTF-8.
    pub text: &'a [u8],
    /// The build-id of the path in the same record or entry.
    pub build_id: Option<&'a [u8]>,
}

impl<'a> Name<'a> {
    fn new(kind: NameKind, text: &'a [u8]) -> Name<'a> {
        Name { kind, text, build_id: None }
    }
}

/// Replaces the names in a record; `new` returns the new name, or `None` to keep one. Returns `None` if the
/// record does not change. The bytes after the name and its padding stay: the sample_id trailer, and unknown
/// fields. New names in fields of fixed size are cut to fit.
///
/// ```
/// use perfx_format::names::{NameKind, rename_record};
/// use perfx_format::{Comm, Endian, Layouts, Origin, Record};
///
/// let bytes = Comm { pid: 7, tid: 7, name: b"secret" }.write(0, &[], Endian::Little).expect("it is short");
/// let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little)?;
/// let new = rename_record(&record, &Layouts::new(&[]), |name| {
///     (name.kind == NameKind::Comm).then(|| b"comm-1".to_vec())
/// })?;
/// let expected = Comm { pid: 7, tid: 7, name: b"comm-1" }.write(0, &[], Endian::Little);
/// assert_eq!(new, expected);
/// # Ok::<(), perfx_format::Error>(())
/// ```
///
/// # Errors
///
/// With its new name the record would be larger than a record can be, or the path longer than perf reads.
pub fn rename_record(
    record: &Record<'_>,
    layouts: &Layouts,
    mut new: impl FnMut(Name<'_>) -> Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>> {
    let too_long = || record.error("with its new name it would be larger than perf reads");
    let made = match record.kind() {
        RecordType::THREAD_MAP => in_fields(record, thread_map_comms(record), NameKind::Comm, new),
        RecordType::HEADER_EVENT_TYPE => {
            let end = record.bytes().len().min(HEADER_SIZE + 8 + EVENT_TYPE_NAME);
            let field = (end > HEADER_SIZE + 8).then_some((HEADER_SIZE + 8, end));
            in_fields(record, field.into_iter().collect(), NameKind::Event, new)
        }
        RecordType::HEADER_FEATURE => {
            let Some((number, section)) = feature_section(record) else { return Ok(None) };
            let feature = u8::try_from(number).ok().map(Feature);
            let renamed = feature
                .and_then(|feature| Some((feature, rename_feature(feature, section, record.endian(), new)?)));
            let changed = renamed.filter(|(_, renamed)| renamed.section != section);
            let Some((feature, Renamed { section, .. })) = changed else { return Ok(None) };
            Some(feature_record(feature, &section, record.endian()).ok_or_else(too_long)?)
        }
        RecordType::HEADER_BUILD_ID => {
            let entry = BuildIdEntry::read(record.bytes(), record.endian());
            let Some(entry) = entry else { return Ok(None) };
            let build_id = Some(entry.id);
            let Some(filename) = new(Name { build_id, ..Name::new(NameKind::Path, entry.filename) }) else {
                return Ok(None);
            };
            let layout = layouts.layout_of_build_id(record);
            let trailer = layout.and_then(|layout| layout.trailer_of(record)).unwrap_or_default();
            let mut made = Vec::new();
            let entry = BuildIdEntry { filename: &filename, ..entry };
            let fits = filename.len() < PATH_MAX;
            fits.then(|| entry.write_record(trailer, record.endian(), &mut made))
                .flatten()
                .ok_or_else(too_long)?;
            Some(made)
        }
        _ => {
            let Some((kind, at)) = name_at(record) else { return Ok(None) };
            let end = name_end(record, layouts, at);
            let old = until_nul(record.bytes().get(at..end).unwrap_or_default());
            let build_id = match mmap_build_id(record, layouts) {
                Some(MmapBuildId::BuildId(id)) => Some(id),
                _ => None,
            };
            let Some(text) = new(Name { build_id, ..Name::new(kind, old) }) else { return Ok(None) };
            if kind == NameKind::Path && text.len() >= PATH_MAX {
                return Err(too_long());
            }
            Some(with_name(record, (at, end), old, &text).ok_or_else(too_long)?)
        }
    };
    Ok(made.filter(|made| made != record.bytes()))
}

/// The names in entries of event types, which perf before 3.3 stored, replaced as in [`rename_record`].
pub fn rename_event_types(types: &mut [u8], mut new: impl FnMut(Name<'_>) -> Option<Vec<u8>>) {
    for entry in types.chunks_exact_mut(EVENT_TYPE_SIZE) {
        let field = &mut entry[EVENT_TYPE_SIZE - EVENT_TYPE_NAME..];
        let renamed = new(Name::new(NameKind::Event, until_nul(field)));
        renamed.into_iter().for_each(|name| fill(field, NameKind::Event, &name));
    }
}

/// The name at the end of a record, before its trailer: its kind and its offset.
fn name_at(record: &Record<'_>) -> Option<(NameKind, usize)> {
    let (kind, at) = match record.kind() {
        RecordType::MMAP | RecordType::MMAP2 => (NameKind::Path, Mmap::of(record)?.name_at()),
        RecordType::COMM => (NameKind::Comm, COMM_NAME),
        RecordType::CGROUP => (NameKind::Cgroup, CGROUP_PATH),
        RecordType::KSYMBOL => (NameKind::Symbol, KSYMBOL_NAME),
        RecordType::EVENT_UPDATE => name_update(record).map(|_| (NameKind::Event, UPDATED_NAME))?,
        _ => return None,
    };
    (at < record.bytes().len()).then_some((kind, at))
}

/// The end of the bytes in which a name may be: the trailer, if present. Records from programs other than the
/// kernel may lack it; then the name fills the record, with its NUL and less than 8 bytes of padding.
fn name_end(record: &Record<'_>, layouts: &Layouts, at: usize) -> usize {
    let bytes = record.bytes();
    let trailer = if record.kind().is_kernel() { layouts.trailer_size(record) } else { 0 };
    let end = bytes.len().saturating_sub(trailer);
    let ends_at = |end: usize| bytes.get(at..end).and_then(|name| name.iter().position(|&byte| byte == 0));
    let fills = ends_at(bytes.len()).is_some_and(|name| bytes.len() - at - name <= 8);
    if end > at && (ends_at(end).is_some() || !fills) { end } else { bytes.len() }
}

/// The record with another name in these bytes, in which the `old` name is.
fn with_name(record: &Record<'_>, (at, end): (usize, usize), old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let bytes = record.bytes();
    let after = (at + old.len() + 1).next_multiple_of(8).min(end);
    let mut made = bytes.get(..at)?.to_vec();
    made.extend_from_slice(until_nul(new));
    made.resize((made.len() + 1).next_multiple_of(8), 0);
    made.extend_from_slice(bytes.get(after..)?);
    set_size(&mut made, record.endian())?;
    Some(made)
}

fn thread_map_comms(record: &Record<'_>) -> Vec<(usize, usize)> {
    let entries = record.bytes().len().saturating_sub(THREAD_MAP_ENTRIES) / THREAD_MAP_ENTRY;
    let stated = usize::try_from(record.u64(HEADER_SIZE).unwrap_or(0)).unwrap_or(usize::MAX);
    let start = |entry: usize| THREAD_MAP_ENTRIES + entry * THREAD_MAP_ENTRY;
    (0..entries.min(stated)).map(|entry| (start(entry) + THREAD_MAP_COMM, start(entry + 1))).collect()
}

fn in_fields(
    record: &Record<'_>,
    fields: Vec<(usize, usize)>,
    kind: NameKind,
    mut new: impl FnMut(Name<'_>) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut bytes = record.bytes().to_vec();
    for (start, end) in fields {
        let field = bytes.get_mut(start..end)?;
        let renamed = new(Name::new(kind, until_nul(field)));
        renamed.into_iter().for_each(|name| fill(field, kind, &name));
    }
    Some(bytes)
}

/// Puts a name and a NUL into a field. The name of a thread is cut to fit, as by the kernel. Any other name
/// that does not fit is left out, because a part of it is another name.
fn fill(field: &mut [u8], kind: NameKind, name: &[u8]) {
    let (name, most) = (until_nul(name), field.len().saturating_sub(1));
    let fitting = if kind == NameKind::Comm { name.len().min(most) } else { 0 };
    let name = if name.len() <= most { name } else { &name[..fitting] };
    field.fill(0);
    field[..name.len()].copy_from_slice(name);
}

/// A section with other names.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Renamed {
    /// Its bytes. From the first damage on, they are the old ones.
    pub section: Vec<u8>,
    /// True if all fields could be read, and only zeros follow them.
    pub whole: bool,
}

/// Replaces the names in a feature section, like [`rename_record`]. `None` if the feature has no names.
pub fn rename_feature(
    feature: Feature,
    section: &[u8],
    endian: Endian,
    mut new: impl FnMut(Name<'_>) -> Option<Vec<u8>>,
) -> Option<Renamed> {
    if feature == Feature::BUILD_ID {
        return Some(change_build_ids(section, endian, |entry| {
            let name = Name { build_id: Some(entry.id), ..Name::new(NameKind::Path, entry.filename) };
            let filename = new(name).filter(|name| name != entry.filename)?;
            Some((filename, entry.id.to_vec()))
        }));
    }
    let mut copier = Copier { cursor: Cursor::new(section, endian), out: Vec::new(), new: &mut new };
    let done = match feature {
        Feature::HOSTNAME => copier.text(NameKind::Host),
        Feature::CMDLINE => copier.each(|copier| copier.text(NameKind::Argument)),
        Feature::GROUP_DESC => copier.each(|copier| {
            copier.text(NameKind::Group)?;
            copier.copy(8)
        }),
        Feature::EVENT_DESC => copier.event_desc(),
        _ => return None,
    };
    let Copier { cursor, mut out, .. } = copier;
    let rest = cursor.rest();
    out.extend_from_slice(rest);
    Some(Renamed { section: out, whole: done.is_some() && rest.iter().all(|&byte| byte == 0) })
}

/// Changes the entries of a BUILD_ID section for which `change` returns another file name and id. An
/// unchanged entry keeps its size, but only zeros follow its name.
pub fn change_build_ids(
    section: &[u8],
    endian: Endian,
    mut change: impl FnMut(&BuildIdEntry<'_>) -> Option<(Vec<u8>, Vec<u8>)>,
) -> Renamed {
    let mut entries = BuildIds::new(section, endian);
    let mut out = Vec::with_capacity(section.len());
    loop {
        let rest = entries.rest();
        let Some((bytes, entry)) = entries.split() else {
            out.extend_from_slice(rest);
            return Renamed { section: out, whole: rest.iter().all(|&byte| byte == 0) };
        };
        let Some((filename, id)) = change(&entry) else {
            out.extend_from_slice(bytes);
            continue;
        };
        // Entries without a pid have another layout; no program has written them since 2010.
        let fits = !entries.without_pid() && filename.len() < PATH_MAX;
        let end = out.len() + bytes.len();
        let written = if !fits {
            None
        } else if filename == entry.filename && id == entry.id {
            out.extend_from_slice(&bytes[..entry.size().min(bytes.len())]);
            out.resize(end, 0);
            Some(())
        } else {
            BuildIdEntry { filename: &filename, id: &id, ..entry }.write_section(endian, &mut out)
        };
        if written.is_none() {
            out.extend_from_slice(rest);
            return Renamed { section: out, whole: false };
        }
    }
}

/// Copies a section field by field. `None` means that the next field does not fit.
struct Copier<'a, 'f> {
    cursor: Cursor<'a>,
    out: Vec<u8>,
    new: &'f mut dyn FnMut(Name<'_>) -> Option<Vec<u8>>,
}

impl Copier<'_, '_> {
    fn copy(&mut self, count: usize) -> Option<()> {
        self.out.extend_from_slice(self.cursor.bytes(count)?);
        Some(())
    }

    fn number(&mut self) -> Option<usize> {
        let number = self.cursor.u32()?;
        self.out.extend_from_slice(&self.cursor.endian().bytes_u32(number));
        usize::try_from(number).ok()
    }

    fn each(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let count = self.number()?;
        (0..count).try_for_each(|_| item(self))
    }

    /// A STR: u32 length, then that many bytes.
    fn text(&mut self, kind: NameKind) -> Option<()> {
        let mut ahead = self.cursor;
        let length = usize::try_from(ahead.u32()?).ok()?;
        let bytes = ahead.bytes(length)?;
        match (self.new)(Name::new(kind, until_nul(bytes))) {
            Some(name) => {
                put_str(&name, ahead.endian(), &mut self.out);
                self.cursor = ahead;
                Some(())
            }
            None => self.copy(4 + length),
        }
    }

    fn event_desc(&mut self) -> Option<()> {
        let count = self.number()?;
        let attr_size = self.number()?;
        (0..count).try_for_each(|_| {
            self.copy(attr_size)?;
            let ids = self.number()?;
            self.text(NameKind::Event)?;
            self.copy(ids.checked_mul(8)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{EventDesc, GroupDesc, write_event_desc, write_group_desc, write_str};
    use crate::record::builder::build;
    use crate::{Attr, Comm, Event, MappedFile, Mmap2, Origin, sample_type as st};

    const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

    fn view(bytes: &[u8], endian: Endian) -> Record<'_> {
        Record::new(bytes, &[], Origin::Synthetic, endian).unwrap()
    }

    fn trailed(endian: Endian) -> Layouts {
        // Bit 18 is sample_id_all.
        let attr = Attr { sample_type: st::TID | st::TIME, flags: 1 << 18, ..Attr::default() };
        Layouts::new(&[Event::made(&attr, vec![1], endian)])
    }

    #[test]
    fn a_new_name_of_any_length_leaves_the_rest_of_the_record() {
        for endian in BOTH {
            let layouts = trailed(endian);
            let trailer = [7; 16];
            for old in [&b"[a]"[..], b"/bin/sh", b"/a/name/of/some/length"] {
                for new in [&b""[..], b"/seven.", b"/eight..", &[b'x'; 300]] {
                    let mmap2 = |name| {
                        let file = MappedFile::BuildId(&[9; 20]);
                        let (misc, pid, tid, start, len, pgoff, prot, flags) = (2, 1, 1, 0x1000, 2, 3, 5, 2);
                        let trailer = &trailer;
                        Mmap2 { misc, pid, tid, start, len, pgoff, file, prot, flags, name, trailer }
                            .write(endian)
                            .unwrap()
                    };
                    let bytes = mmap2(old);
                    let made = rename_record(&view(&bytes, endian), &layouts, |name| {
                        let id = name.build_id.map(<[u8]>::len);
                        assert_eq!((name.kind, name.text, id), (NameKind::Path, old, Some(20)));
                        Some(new.to_vec())
                    });
                    assert_eq!(made.unwrap().unwrap(), mmap2(new));
                    let comm = |name| Comm { pid: 1, tid: 2, name }.write(0, &trailer, endian).unwrap();
                    let bytes = comm(old);
                    let made = rename_record(&view(&bytes, endian), &layouts, |_| Some(new.to_vec()));
                    assert_eq!(made.unwrap().unwrap(), comm(new));
                    let mut entry = Vec::new();
                    let named = |filename| BuildIdEntry::new(2, -1, &[3; 20], filename);
                    named(old).write_record(&trailer, endian, &mut entry).unwrap();
                    let made = rename_record(&view(&entry, endian), &layouts, |_| Some(new.to_vec()));
                    let mut expected = Vec::new();
                    named(new).write_record(&trailer, endian, &mut expected).unwrap();
                    assert_eq!(made.unwrap().unwrap(), expected);
                }
            }
        }
    }

    #[test]
    fn every_kind_with_a_name_is_found_and_an_equal_name_changes_nothing() {
        let endian = Endian::Little;
        let kinds = [
            (RecordType::COMM, 16, NameKind::Comm),
            (RecordType::CGROUP, 16, NameKind::Cgroup),
            (RecordType::KSYMBOL, 24, NameKind::Symbol),
            (RecordType::EVENT_UPDATE, 24, NameKind::Event),
            (RecordType::HEADER_EVENT_TYPE, 16, NameKind::Event),
            (RecordType::MMAP, 40, NameKind::Path),
            (RecordType::HEADER_BUILD_ID, 36, NameKind::Path),
        ];
        for (record_kind, at, kind) in kinds {
            let mut body = vec![0; at - 8];
            if record_kind == RecordType::EVENT_UPDATE {
                body[0] = 2;
            }
            body.extend(b"a name\0");
            body.resize(body.len().next_multiple_of(8), 0);
            let bytes = build(record_kind, 0, &[&body], endian).unwrap();
            let layouts = Layouts::new(&[]);
            let mut seen = Vec::new();
            let same = rename_record(&view(&bytes, endian), &layouts, |name| {
                seen.push((name.kind, name.text.to_vec()));
                Some(name.text.to_vec())
            });
            assert_eq!(seen, [(kind, b"a name".to_vec())], "{record_kind}");
            assert!(record_kind == RecordType::HEADER_BUILD_ID || same.unwrap().is_none(), "{record_kind}");
            let new = rename_record(&view(&bytes, endian), &layouts, |_| Some(b"another".to_vec())).unwrap();
            let new = new.unwrap();
            assert_eq!((until_nul(&new[at..]), new.len() % 8), (&b"another"[..], 0), "{record_kind}");
            for cut in 8..bytes.len() {
                let mut short = bytes[..cut].to_vec();
                set_size(&mut short, endian);
                #[expect(clippy::let_underscore_must_use, reason = "it must not panic")]
                let _ = rename_record(&view(&short, endian), &trailed(endian), |_| Some(b"another".to_vec()));
            }
        }
    }

    #[test]
    fn names_of_threads_are_cut_to_their_fields() {
        for endian in BOTH {
            let entries: [&[u8]; 4] =
                [&endian.bytes_u64(7), b"cat\0............", &endian.bytes_u64(8), b"sixteen-letters."];
            let count = endian.bytes_u64(2);
            let bytes = build(RecordType::THREAD_MAP, 0, &[&count, &entries.concat()], endian).unwrap();
            let mut seen = Vec::new();
            let new = rename_record(&view(&bytes, endian), &Layouts::new(&[]), |name| {
                seen.push(name.text.to_vec());
                Some([name.text, b"-and-more-letters"].concat())
            });
            let new = new.unwrap().unwrap();
            assert_eq!(seen, [b"cat".to_vec(), b"sixteen-letters.".to_vec()]);
            assert_eq!(&new[24..40], b"cat-and-more-le\0");
            assert_eq!((new.len(), &new[48..64]), (bytes.len(), &b"sixteen-letters\0"[..]));
        }
    }

    #[test]
    fn a_name_without_room_is_an_error() {
        let (endian, layouts) = (Endian::Little, Layouts::new(&[]));
        let comm = Comm { pid: 1, tid: 1, name: b"sh" }.write(0, &[], endian).unwrap();
        let error = rename_record(&view(&comm, endian), &layouts, |_| Some(vec![b'x'; 65536])).unwrap_err();
        assert_eq!(error.what(), "with its new name it would be larger than perf reads");
        let mmap = build(RecordType::MMAP, 0, &[&[0; 40]], endian).unwrap();
        assert!(rename_record(&view(&mmap, endian), &layouts, |_| Some(vec![b'x'; PATH_MAX])).is_err());
    }

    #[test]
    fn every_name_of_a_feature_is_replaced_and_later_bytes_stay() {
        let upper = |name: Name<'_>| Some(name.text.to_ascii_uppercase());
        for endian in BOTH {
            let attr = [5; 64];
            let events = |names: [&'static [u8]; 2]| {
                names.map(|name| EventDesc { attr: &attr, name, ids: vec![1, 2] })
            };
            let groups = |name: &'static [u8]| [GroupDesc { name, leader: 0, members: 2 }];
            let list = |words: [&[u8]; 2]| {
                [endian.bytes_u32(2).to_vec(), write_str(words[0], endian), write_str(words[1], endian)]
                    .concat()
            };
            let ids = |name: &[u8]| {
                let mut section = Vec::new();
                BuildIdEntry::new(2, -1, &[3; 20], name).write_section(endian, &mut section).unwrap();
                section
            };
            let cases = [
                (Feature::HOSTNAME, write_str(b"box", endian), write_str(b"BOX", endian)),
                (Feature::CMDLINE, list([b"perf", b"record"]), list([b"PERF", b"RECORD"])),
                (
                    Feature::EVENT_DESC,
                    write_event_desc(64, &events([b"cycles", b"x"]), endian).unwrap(),
                    write_event_desc(64, &events([b"CYCLES", b"X"]), endian).unwrap(),
                ),
                (
                    Feature::GROUP_DESC,
                    write_group_desc(&groups(b"both"), endian),
                    write_group_desc(&groups(b"BOTH"), endian),
                ),
                (Feature::BUILD_ID, ids(b"/bin/a"), ids(b"/BIN/A")),
            ];
            for (feature, mut old, mut expected) in cases {
                let new = rename_feature(feature, &old, endian, upper).unwrap();
                assert_eq!(new, Renamed { section: expected.clone(), whole: true }, "{feature}");
                let kept = rename_feature(feature, &old, endian, |_| None).unwrap();
                assert_eq!(kept, Renamed { section: old.clone(), whole: true }, "{feature}");
                for cut in 0..old.len() {
                    let cut = rename_feature(feature, &old[..cut], endian, |_| None).unwrap();
                    assert!(old.starts_with(&cut.section), "{feature}");
                }
                old.extend(b"tail");
                expected.extend(b"tail");
                let new = rename_feature(feature, &old, endian, upper).unwrap();
                assert_eq!(new, Renamed { section: expected, whole: false }, "{feature}");
            }
            assert_eq!(rename_feature(Feature::NRCPUS, &[0; 8], endian, upper), None);
        }
    }
}
