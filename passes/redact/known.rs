//! Recognises texts that occur in recordings of every machine: names given by the kernel and perf, values of
//! features. A word missing from a list costs a name; rules for words' form would let personal ones through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use perfx_format::Feature;
use perfx_format::features::NrCpus;

use crate::scrub::{Key, is_word};

static WORDS: LazyLock<BTreeMap<&str, BTreeSet<&[u8]>>> = LazyLock::new(|| {
    let sections = include_str!("words.txt").split("\n[").skip(1);
    let words = |text: &'static str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.flat_map(str::split_ascii_whitespace).map(str::as_bytes).collect()
    };
    sections.filter_map(|section| section.split_once(']')).map(|(name, text)| (name, words(text))).collect()
});

pub(super) fn is_listed(section: &str, word: impl AsRef<[u8]>) -> bool {
    WORDS[section].contains(word.as_ref())
}

const VENDORS: &[&str] =
    &["GenuineIntel", "AuthenticAMD", "HygonGenuine", "CentaurHauls", "  Shanghai  ", "IBM", "g"];

/// Units of counters of perf and the kernel's PMUs.
const UNITS: &[&[u8]] = &[
    b"", b"msec", b"ms", b"ns", b"usec", b"sec", b"Joules", b"Bytes", b"bytes", b"KiB", b"MiB", b"GiB",
    b"MB/s", b"MiB/s", b"GB/s", b"%", b"cycles", b"Cycles", b"W", b"C", b"V", b"A", b"RPM", b"Hz", b"MHz",
];

const MEMORY: &[&[u8]] = &[
    b"vdso", b"vdso32", b"vdsox32", b"vsyscall", b"vvar", b"vvar_vclock", b"heap", b"stack", b"uprobes",
    b"vectors", b"sigpage", b"aio", b"unknown", b"kernel", b"hypervisor", b"guest.kernel", b"timens",
    b"mmap", b"bpf", b"kernel.vmlinux", b"shadow stack",
];

/// Names of the kernel, followed by the symbol at its start; a guest's also has a pid.
const KERNELS: &[&[u8]] = &[b"[kernel.kallsyms]", b"[guest.kernel.kallsyms]", b"[kernel.vmlinux]"];

/// Files without a path, after `anon_inode:`.
const ANON_INODES: &[&[u8]] = &[
    b"[perf_event]", b"[io_uring]", b"[eventfd]", b"[eventpoll]", b"[timerfd]", b"[signalfd]",
    b"[userfaultfd]", b"[fanotify]", b"[pidfd]", b"inotify", b"bpf-map", b"bpf-prog", b"bpf_link", b"btf",
    b"kvm-vm", b"kvm-vcpu", b"i915.gem", b"sync_file", b"dmabuf", b"[vfio-device]", b"[secretmem]",
];

/// Workqueues, which follow in the names of the kernel's workers.
const QUEUES: &[&str] = &[
    "events", "events_unbound", "events_highpri", "events_long", "events_freezable",
    "events_power_efficient", "mm_percpu_wq", "kblockd", "writeback", "netns", "cgroup_destroy", "cgroup_wq",
    "rcu_gp", "rcu_par_gp", "slub_flushwq", "kthrotld", "ata_sff", "inet_frag_wq", "ipv6_addrconf",
];

/// Threads that exist once per CPU or node, whose number follows.
const NUMBERED_THREADS: &[&str] = &[
    "swapper/", "ksoftirqd/", "migration/", "cpuhp/", "idle_inject/", "irq/", "rcub/", "rcuc/", "rcuop/",
    "rcuos/", "rcuog/", "kswapd", "kcompactd", "watchdog/", "watchdogd",
];

/// True if no number has more digits than a date; longer ones may be anything, such as card numbers.
fn has_short_numbers(text: impl AsRef<[u8]>) -> bool {
    text.as_ref().split(|byte| !byte.is_ascii_digit()).all(|digits| digits.len() <= "20250101".len())
}

/// True if the text has only short numbers, signs, and words that this section has or `or` accepts.
fn has_words(text: &str, section: &str, or: impl Fn(&str) -> bool) -> bool {
    text.split(|letter: char| !letter.is_ascii_alphanumeric()).all(|word| {
        let mut parts = word.split(|letter: char| letter.is_ascii_digit());
        let is_short = has_short_numbers(word);
        or(word)
            || is_short && parts.all(|part| part.is_empty() || is_listed(section, part.to_ascii_lowercase()))
    }) && text.is_ascii()
}

fn is_commit(word: &str) -> bool {
    let digits = word.strip_prefix('g').unwrap_or_default();
    (7..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_model(word: &str) -> bool {
    let mut parts = word.split(|letter: char| letter.is_ascii_digit());
    word.len() <= 8 && parts.clone().count() > 1 && parts.all(|part| part.len() <= 2)
}

pub(super) fn is_folder(name: &str) -> bool {
    has_words(name, "folder", |_| false)
}

fn is_release(text: &str) -> bool {
    has_words(text, "release", is_commit)
}

pub(super) fn is_known(feature: Feature, field: &str, text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    let made_of = |signs: &str| {
        has_short_numbers(text) && text.chars().all(|sign| sign.is_ascii_digit() || signs.contains(sign))
    };
    let is_cpus = || made_of(",-") || made_of("abcdefABCDEFx,") && field == "mask";
    is_word("name", text.as_bytes())
        || text.is_empty()
        || match feature {
            Feature::OSRELEASE | Feature::VERSION => is_release(text),
            Feature::ARCH => is_listed("machine", text),
            Feature::CPUDESC => has_words(text, "cpu", is_model),
            Feature::CPUID => text.split([',', '-']).all(|part| {
                let digits = part.strip_prefix("0x").unwrap_or(part);
                // Ids of RISC-V have the highest bit set.
                let number = digits.strip_prefix("8000").unwrap_or(digits).trim_start_matches('0');
                VENDORS.contains(&part)
                    || digits.len() <= 18
                        && number.len() <= 8
                        && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'.')
            }),
            Feature::CPU_TOPOLOGY | Feature::NUMA_TOPOLOGY => is_cpus(),
            Feature::CACHE if field == "type" => ["Data", "Instruction", "Unified"].contains(&text),
            Feature::CACHE => made_of("KMG") || is_cpus(),
            Feature::PMU_MAPPINGS => is_pmu(text.as_bytes()),
            Feature::HYBRID_TOPOLOGY if field == "cpus" => is_cpus(),
            Feature::HYBRID_TOPOLOGY => is_pmu(text.as_bytes()),
            Feature::CPU_PMU_CAPS | Feature::PMU_CAPS => {
                is_listed("capability", text) || made_of("") || field == "name" && is_pmu(text.as_bytes())
            }
            Feature::CPU_DOMAIN_INFO if field == "name" => is_listed("domain", text),
            Feature::CPU_DOMAIN_INFO => is_cpus(),
            _ => false,
        }
}

/// Replaces an unknown text. The first numbers of a release stay.
pub(super) fn replaced(key: &Key, feature: Feature, text: &[u8]) -> Vec<u8> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let numbers = text.iter().take_while(|byte| is_number(byte)).count();
    match feature {
        Feature::OSRELEASE | Feature::VERSION if numbers > 0 && has_short_numbers(&text[..numbers]) => {
            [&text[..numbers], b"-local"].concat()
        }
        _ => key.word("name", text),
    }
}

pub(super) fn is_pmu(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| has_words(name, "pmu", |_| false))
}

pub(super) fn is_unit(unit: &[u8]) -> bool {
    UNITS.contains(&unit)
}

pub(super) fn is_ftrace(name: &[u8]) -> bool {
    is_listed("ftrace", name)
}

pub(super) fn is_ftrace_text(text: &[u8]) -> bool {
    let is_word = |word: &str| {
        let mut parts = word.split(|letter: char| letter.is_ascii_digit());
        parts.all(|part| is_listed("ftrace word", part.to_ascii_lowercase()))
    };
    str::from_utf8(text).is_ok_and(|text| has_short_numbers(text) && has_words(text, "header", is_word))
}

pub(super) fn is_count_of_cpus(cpus: NrCpus) -> bool {
    const MOST: u32 = 1 << 16;
    cpus.available <= MOST && cpus.online <= MOST
}

/// True for header_page and header_event of TRACING_DATA as kernels write them.
pub(super) fn is_header(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| has_words(text, "header", |_| false))
}

pub(super) enum Memory<'a> {
    Known,
    /// A revealing name: the text before it, the name, and the text after it.
    Named(&'a [u8], &'a [u8], &'a [u8]),
    File,
}

impl<'a> Memory<'a> {
    pub(super) fn of(path: &'a [u8]) -> Memory<'a> {
        let known = |is_known: bool, other: Memory<'a>| {
            if is_known && has_short_numbers(path) { Memory::Known } else { other }
        };
        if path.is_empty() || [&b"//anon"[..], b"//toolong", b"//enomem", b"/anon_hugepage"].contains(&path) {
            return Memory::Known;
        }
        if let Some(name) = path.strip_prefix(b"/dev/") {
            let name = str::from_utf8(name).unwrap_or("/");
            let bare = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
            return known(is_listed("device", bare), Memory::File);
        }
        if let Some(inner) = path.strip_prefix(b"anon_inode:") {
            let bare = inner.split(|&byte| byte == b':').next().unwrap_or_default();
            let number = inner.get(bare.len() + 1..).unwrap_or_default();
            let is_known = ANON_INODES.contains(&bare) && number.iter().all(u8::is_ascii_digit);
            return known(is_known, Memory::Named(&path[..11], inner, b""));
        }
        let Some(inner) = path.strip_prefix(b"[") else { return Memory::File };
        if let Some(symbol) = KERNELS.iter().find_map(|kernel| path.strip_prefix(*kernel)) {
            let is_known = [&b""[..], b"_text", b"_stext"].contains(&symbol);
            let front = &path[..path.len() - symbol.len()];
            return known(is_known, Memory::Named(front, symbol, b""));
        }
        let end: &[u8] = if inner.ends_with(b"]") { b"]" } else { b"" };
        let inner = &inner[..inner.len() - end.len()];
        let colon = inner.iter().position(|&byte| byte == b':').filter(|_| inner.starts_with(b"anon"));
        if let Some(colon) = colon {
            return Memory::Named(&path[..colon + 2], &inner[colon + 1..], end);
        }
        // `[stack:7]` and `[guest.kernel.kallsyms.7]`.
        let is_numbered = [&b"stack:"[..], b"guest.kernel.kallsyms."].iter().any(|front| {
            inner.strip_prefix(*front).is_some_and(|number| number.iter().all(u8::is_ascii_digit))
        });
        let is_known = !end.is_empty() && (MEMORY.contains(&inner) || is_numbered);
        known(is_known, Memory::Named(&path[..1], inner, end))
    }
}

/// The beginning of a thread's name that only identifies a thread of the kernel or of perf.
pub(super) fn thread(name: &[u8]) -> Option<&[u8]> {
    numbered_thread(name).filter(|thread| has_short_numbers(thread))
}

fn numbered_thread(name: &[u8]) -> Option<&[u8]> {
    let text = str::from_utf8(name).ok()?;
    if is_listed("thread", text) {
        return Some(name);
    }
    if let Some(worker) = text.strip_prefix("kworker/") {
        // `0:1H-events`, `u8:3+flush`, `R-rcu_g`.
        let letters = |letter: char| letter.is_ascii_digit() || "uHIR:".contains(letter);
        let queue = worker.trim_start_matches(letters);
        let front = worker.len() - queue.len();
        let is_known = front > 0
            && (queue.len() <= 1
                || queue.starts_with(['-', '+'])
                    && QUEUES.iter().any(|known| known.starts_with(&queue[1..])));
        let kept = if is_known { name.len() } else { name.len() - queue.len() };
        return (front > 0).then_some(&name[..kept]);
    }
    let numbered = NUMBERED_THREADS.iter().find_map(|thread| text.strip_prefix(thread));
    let rest = numbered?.trim_start_matches(|letter: char| letter.is_ascii_digit());
    // An interrupt's number is followed by a device's name.
    let is_thread = rest.len() < numbered?.len() && (rest.is_empty() || rest.starts_with('-'));
    is_thread.then(|| &name[..name.len() - rest.len()])
}

pub(super) fn is_symbol(name: &[u8]) -> bool {
    let Ok(name) = str::from_utf8(name) else { return false };
    let number = name.strip_prefix("bpf_trampoline_").unwrap_or("x");
    let words = name.strip_prefix("__bpf_prog_").unwrap_or("x");
    is_listed("symbol", name)
        || number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
        || has_words(words, "bpf word", |_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_of_every_machine_stay() {
        for (feature, field, text) in [
            (Feature::OSRELEASE, "text", "6.1.0-37-cloud-amd64"),
            (Feature::OSRELEASE, "text", "5.14.0-427.13.1.el9_4.x86_64"),
            (Feature::OSRELEASE, "text", "6.6.87.2-microsoft-standard-WSL2"),
            (Feature::VERSION, "text", "6.9.rc3.g1a2b3c4d5e6f"),
            (Feature::ARCH, "text", "ppc64le"),
            (Feature::CPUDESC, "text", "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"),
            (Feature::CPUDESC, "text", "AMD EPYC 7B13 64-Core Processor"),
            (Feature::CPUDESC, "text", "13th Gen Intel(R) Core(TM) i7-13700K"),
            (Feature::CPUID, "text", "GenuineIntel,6,106,6"),
            (Feature::CPUID, "text", "0x00000000410fd0c0"),
            (Feature::CPU_TOPOLOGY, "packages", "0-3,8"),
            (Feature::CACHE, "type", "Unified"),
            (Feature::CACHE, "size", "32768K"),
            (Feature::PMU_MAPPINGS, "name", "uncore_imc_free_running_0"),
            (Feature::PMU_MAPPINGS, "name", "cstate_pkg"),
            (Feature::PMU_CAPS, "value", "32"),
            (Feature::CPU_DOMAIN_INFO, "mask", "0000000f,ffffffff"),
        ] {
            assert!(is_known(feature, field, text.as_bytes()), "{feature} {text}");
            assert!(!is_known(feature, field, b"MARKER of a host"), "{feature}");
            let new = replaced(&Key::default(), feature, b"6.1-secret");
            assert!(is_known(feature, field, &new), "{feature} {}", new.escape_ascii());
        }
        assert_eq!(replaced(&Key::default(), Feature::OSRELEASE, b"6.1.2-acme"), b"6.1.2-local");
    }

    /// Regression: numbers of any length stayed.
    #[test]
    fn long_numbers_do_not_stay() {
        for (feature, text) in [
            (Feature::OSRELEASE, "6.1.0-4111111111111111"),
            (Feature::OSRELEASE, "4111111111111111"),
            (Feature::VERSION, "6.9.g1a2b3c4d5e6f.4111111111111111"),
            (Feature::CPUDESC, "Intel(R) Xeon(R) 4111111111111111 CPU"),
            (Feature::CPUID, "GenuineIntel-6-4111111111111111-1"),
            (Feature::CPUID, "4111111111111111"),
            (Feature::NUMA_TOPOLOGY, "0-4111111111111111"),
            (Feature::PMU_MAPPINGS, "cpu_4111111111111111"),
            (Feature::PMU_CAPS, "4111111111111111"),
        ] {
            assert!(!is_known(feature, "text", text.as_bytes()), "{text}");
            let new = replaced(&Key::default(), feature, text.as_bytes());
            assert!(has_short_numbers(&new) || is_word("name", &new), "{}", new.escape_ascii());
        }
        for text in ["0x489-0x8000000000000007-0x0", "0x00000000410fd0c0"] {
            assert!(is_known(Feature::CPUID, "text", text.as_bytes()), "{text}");
        }
        for path in ["[stack:4111111111111111]", "/dev/zero4111111111111111", "/dev/nvidia4111111111111111"] {
            assert!(!matches!(Memory::of(path.as_bytes()), Memory::Known), "{path}");
        }
        assert!(is_ftrace_text(b"name: print\nID: 5\n") && !is_ftrace_text(b"name: print\nID: 411111111\n"));
    }

    #[test]
    fn kernel_threads_lose_names_added_by_drivers() {
        for (name, expected) in [
            ("kworker/0:1-ev", Some("kworker/0:1-ev")),
            ("kworker/u8:3+fl", Some("kworker/u8:3")),
            ("kworker/R-rcu_g", Some("kworker/R-rcu_g")),
            ("kworker/secret", None),
            ("swapper/11", Some("swapper/11")),
            ("swapper-of-bob", None),
            ("irq/27-secret", Some("irq/27")),
            ("rcu_secret", None),
            ("rcu_preempt", Some("rcu_preempt")),
            ("kswapd0", Some("kswapd0")),
            ("perf-secret", None),
            ("irq/411111111111", None),
            ("swapper/4111111111", None),
            ("kswapd411111111", None),
            ("kworker/411111111:0", None),
        ] {
            assert_eq!(thread(name.as_bytes()), expected.map(str::as_bytes), "{name}");
        }
        assert!(is_symbol(b"bpf_trampoline_6442_1") && is_symbol(b"__bpf_prog_enter_sleepable_recur"));
        assert!(!is_symbol(b"bpf_trampoline_secret") && !is_symbol(b"__bpf_prog_secret"));
    }
}
