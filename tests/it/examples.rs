//! Lists options of each pass, with which the tests of all passes run it.

use perfx_passes::PassSpec;

/// The name of a pass, and options in the syntax of `perfx run -p`; `recorded/NAME` is a recording of
/// `tests/data`.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("aslr", &["", "key=a secret"]),
    (
        "build-ids",
        &[
            "foreign",
            r"all:foreign:known=b0 /tmp/perfx-data/work/burn\,ab [kernel.kallsyms]\,fe /usr/bin/init",
            r"all:feature-only:foreign:known=0123456789abcdef [vdso]\,77 /bin/a",
        ],
    ),
    ("compress", &["", "level=7:compressed2", "solid:ratio"]),
    ("convert-callchain", &["foreign", "foreign:drop-unresolved:root=recorded/../sysroot"]),
    ("decompress", &["", "salvage"]),
    (
        "filter",
        &[
            "time=20%-60%",
            r"time=+1ms\,",
            "pid=100:keep-all-sideband",
            "exclude-comm=a.*:drop-unused",
            "dso=.*lib.*:exclude-cpu=1",
            "event=.*clock.*:drop-unused",
            "machine=host:exclude-cgroup=/.*",
            "kind=SAMPLE:exclude-kind=EXIT:drop-unused",
            "where=common_pid > 1",
            r"netns=1\,2:pidns=3",
            "symbol=.*a.*:foreign",
            "leaf=.*read.*:exclude-symbol=.*lock.*:foreign",
        ],
    ),
    ("itrace", &["", "events=i2ibl2M", "events=i100ibcrle:foreign", "events=bg4l2pwxs5e:foreign"]),
    (
        "jit",
        &[
            "output=jit-images:dir=recorded/../jit:foreign",
            "output=jit-images:dir=recorded/../jit:foreign:layout=function:perf-maps",
        ],
    ),
    (
        "join",
        &["with=recorded/switch.p61.data:mix", r"with=recorded/switch.p61.data\,offset=-5:offset=7:mix"],
    ),
    (
        "merge",
        &[
            r"guest=recorded/switch.p61.data\,pid=77\,offset=-1000000\,scale=1\,vcpu=0\:31314\,vcpu=1\:31315\,vcpu=2\:31316\,vcpu=3\:31317\,vcpu=4\:31318\,vcpu=5\:31319\,vcpu=6\:31320\,vcpu=7\:31321:samples:all",
        ],
    ),
    (
        "mmap2-build-ids",
        &[
            "foreign",
            r"hit:foreign:known=b0 /tmp/perfx-data/work/burn\,ab [kernel.kallsyms]\,fe /usr/bin/init",
        ],
    ),
    ("normalize", &["for=perf-5.10", "for=perf-6.1", "for=quipper", "for=hotspot"]),
    ("off-cpu", &["", "blocked"]),
    ("recover", &["", "guess"]),
    (
        "redact",
        &["", "key=a secret", r"keep=raw\,stacks\,aux\,unknown", r"key=x:keep=paths\,comms\,bpf\,build-ids"],
    ),
    ("reindex-aux", &["", "add"]),
    ("reindex-build-ids", &["", "add"]),
    ("reindex-ids", &[""]),
    ("reindex-times", &["", "add"]),
    (
        "remap",
        &[
            "path=/tmp/perfx-data=/home/user/a/longer/path",
            "strip-prefix=/usr/lib:path=/tmp=/t:path=/bin=",
            "path=/=/sysroot",
        ],
    ),
    ("repair", &["", "fault=size-unaligned:fault=string-unterminated"]),
    ("retime", &["offset=1000000000", "scale=2.5", "zero"]),
    ("sched-stat", &[""]),
    ("sort", &[""]),
    ("strip", &["aux", "switches", "event=.*clock.*", "aux:switches:event=dummy.*"]),
    ("thin", &["every=3", "rate=100", "fraction=0.3:seed=7", "every=2:event=.*clock.*"]),
];

/// Options of a pass. One that is not in the list fails the tests.
pub(crate) fn examples(pass: &PassSpec) -> &'static [&'static str] {
    let listed = EXAMPLES.iter().find(|(name, _)| *name == pass.name);
    listed.unwrap_or_else(|| panic!("pass {} is not in tests/it/examples.rs", pass.name)).1
}
