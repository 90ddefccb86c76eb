//! Decides which raw data of samples stays: of the kernel's own tracepoints, numbers and the names of tasks;
//! of perf's off-cpu samples, the parts of a sample; of others, only the common fields of tracepoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use perfx_format::Attr;
use perfx_format::features::TracingData;
use perfx_format::record::off_cpu::OFF_CPU_NAME;
use perfx_format::tracepoint::{NamedField, TraceField, TraceFieldKind, TraceFormat};

use super::known::is_listed;

fn is_of_kernel(system: &[u8]) -> bool {
    is_listed("system", system) || is_listed("other system", system)
}

/// The systems of users' tracepoints, whose names and fields may reveal something: all except the kernel's,
/// because users can name the system of a probe or program event as they like.
pub(super) fn made_by_users<'a>(
    formats: &[TraceFormat<'a>],
    data: Option<&TracingData<'a>>,
) -> BTreeSet<&'a [u8]> {
    let made = formats.iter().filter(|format| is_made_by_users(format)).map(|format| format.system);
    let systems = data.into_iter().flat_map(|data| &data.systems).map(|(system, _)| *system);
    made.chain(systems.filter(|system| !is_of_kernel(system))).collect()
}

fn is_made_by_users(format: &TraceFormat<'_>) -> bool {
    let is_probe = |field: NamedField<'_>| field.name == "__probe_ip" || field.name == "__probe_func";
    !is_of_kernel(format.system) || format.fields().any(is_probe)
}

pub(super) fn is_for_users(system: &[u8]) -> bool {
    let known: [&[u8]; 6] = [b"probe", b"uprobes", b"kprobes", b"eprobes", b"synthetic", b"user_events"];
    known.contains(&system) || system.starts_with(b"probe_") || system.starts_with(b"sdt_")
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stays {
    All,
    OffCpu,
    Fields(Arc<[Kept]>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    Bytes(TraceField),
    /// The name of a task, to be replaced by a pseudonym.
    Comm(TraceField),
    /// The position of data, which stays only if it is the name of a task, as a pseudonym.
    Located {
        field: TraceField,
        relative: bool,
        is_comm: bool,
    },
}

/// Decides for an event; `fields` are those of its tracepoint.
pub(super) fn stays(attr: &Attr, name: &[u8], fields: Option<&Arc<[Kept]>>) -> Stays {
    match attr.is_bpf_output() && name.split(|&byte| byte == b':').next() == Some(OFF_CPU_NAME) {
        true => Stays::OffCpu,
        false => Stays::Fields(fields.cloned().unwrap_or_default()),
    }
}

/// The fields of a tracepoint that stay.
pub(super) fn kept(format: &TraceFormat<'_>) -> Arc<[Kept]> {
    let is_known = is_listed("system", format.system);
    let by_users = is_made_by_users(format);
    let kept = |named: NamedField<'_>| {
        let NamedField { name, field, kind, .. } = named;
        let is_comm = name.ends_with("comm") && !by_users;
        match kind {
            _ if named.is_common() => Some(Kept::Bytes(field)),
            TraceFieldKind::Bytes if is_comm => Some(Kept::Comm(field)),
            TraceFieldKind::Located { relative } => Some(Kept::Located { field, relative, is_comm }),
            TraceFieldKind::Numbers | TraceFieldKind::Pointer if is_known => Some(Kept::Bytes(field)),
            _ => None,
        }
    };
    format.fields().filter_map(kept).collect()
}

pub(super) fn redacted(
    raw: &[u8],
    kept: &[Kept],
    endian: perfx_format::Endian,
    mut comm: impl FnMut(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let mut new = vec![0; raw.len()];
    let mut put = |at: usize, bytes: &[u8]| {
        let end = at.checked_add(bytes.len());
        if let Some(place) = end.and_then(|end| new.get_mut(at..end)) {
            place.copy_from_slice(bytes);
        }
    };
    let bytes = |at: usize, size: usize| raw.get(at..at.checked_add(size)?);
    for kept in kept {
        match *kept {
            Kept::Bytes(TraceField { offset, size }) => {
                put(offset, bytes(offset, size).unwrap_or_default());
            }
            Kept::Comm(TraceField { offset, size }) => {
                let name = perfx_format::until_nul(bytes(offset, size).unwrap_or_default());
                let new = comm(name);
                // Truncated pseudonyms could be equal, so one without room for its NUL is left out.
                put(offset, if new.len() < size { &new } else { &[] });
            }
            Kept::Located { field, relative, is_comm } => {
                let Some(TraceField { offset, size }) = field.located(relative, raw, endian) else {
                    continue;
                };
                put(field.offset, bytes(field.offset, field.size).unwrap_or_default());
                if let Some(name) = bytes(offset, size).filter(|_| is_comm) {
                    let new = comm(perfx_format::until_nul(name));
                    put(offset, if new.len() < size { &new } else { &[] });
                }
            }
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use perfx_format::Endian;
    use perfx_format::features::trace_formats;

    use super::*;

    fn section(system: &str, text: &str) -> Vec<u8> {
        let head = [
            b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0",
            &b"header_page\0"[..],
            &[0; 8],
            b"header_event\0",
            &[0; 8],
        ];
        let head = head.concat();
        let (head, systems) = (&head[..], vec![(system.as_bytes(), vec![text.as_bytes()])]);
        let data = [head, &[0; 12], &[0; 8]].concat();
        let mut read = TracingData::read(&data).unwrap();
        read.systems = systems;
        read.write().unwrap()
    }

    fn tracepoint() -> Attr {
        let mut attr = Attr::default();
        attr.type_ = 2;
        attr
    }

    const TEXT: &str = "name: x\nID: 0\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char next_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:__data_loc char[] filename;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc char[] comm;\toffset:28;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:32;\tsize:4;\tsigned:1;\n\
        \tfield:__u8 saddr[4];\toffset:36;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"\"\n";

    fn raw() -> Vec<u8> {
        let mut raw = vec![9; 8];
        raw.extend(b"a-thread\0left..!");
        raw.extend([40, 0, 8, 0]);
        raw.extend([48, 0, 16, 0]);
        raw.extend([1, 2, 3, 4, 10, 0, 0, 1]);
        raw.extend(b"/secret\0a-thread\0left..!pad.");
        raw
    }

    #[test]
    fn numbers_and_tasks_of_the_kernels_tracepoints_stay() {
        for (system, pid) in [("sched", [1, 2, 3, 4]), ("net", [0; 4])] {
            let section = section(system, TEXT);
            let formats = trace_formats(&section, Endian::Little);
            let kept = kept(&formats[0]);
            let new = redacted(&raw(), &kept, Endian::Little, |name| {
                assert_eq!(name, b"a-thread");
                b"task".to_vec()
            });
            let mut expected = vec![9, 9, 0, 0, 9, 9, 9, 9];
            expected.extend(b"task\0\0\0\0\0\0\0\0\0\0\0\0");
            expected.extend([40, 0, 8, 0, 48, 0, 16, 0]);
            expected.extend(pid);
            expected.extend([0; 4 + 8]);
            expected.extend(b"task\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
            assert_eq!(new, expected, "{system}");
        }
    }

    #[test]
    fn no_other_raw_data_stays() {
        let mut attr = Attr::default();
        attr.type_ = 1;
        attr.config = 10;
        assert_eq!(stays(&attr, b"secret", None), Stays::Fields([].into()));
        assert_eq!(stays(&attr, b"offcpu-time:u", None), Stays::OffCpu);
        assert_eq!(stays(&tracepoint(), b"offcpu-time", None), Stays::Fields([].into()));
        assert_eq!(redacted(b"secret", &[], Endian::Big, |name| name.to_vec()), [0; 6]);
        let section = section("probe_x", TEXT);
        let formats = trace_formats(&section, Endian::Little);
        let kept = kept(&formats[0]);
        let new = redacted(&raw(), &kept, Endian::Little, |_| panic!("a name of a user's tracepoint"));
        assert!(new[8..24].iter().chain(&new[32..]).all(|&byte| byte == 0), "{new:?}");
        for end in 0..raw().len() {
            let mut raw = raw();
            raw[28..32].fill(0xff);
            redacted(&raw[..end], &kept, Endian::Little, |name| name.to_vec());
        }
    }
}
