//! libipt reads the same packets.

#[path = "program.rs"]
mod libipt;

use std::path::Path;

use perfx_format::read::Recording;
use perfx_format::record::aux::Auxtrace;

use self::libipt::Libipt;
use super::errata::Errata;
use super::packet::{PSB, Packet, Packets};
use crate::bytes::Trace;

/// A packet as libipt.c writes it; `None` if libipt does not know it.
fn line(offset: u64, packet: &Packet) -> Option<String> {
    let address = |kind, ip: Option<u64>| (kind, ip.unwrap_or(0), u64::from(ip.is_some()));
    let (kind, a, b) = match *packet {
        Packet::Tnt { bits, count } => ("tnt", bits, count.into()),
        Packet::Tip(ip) => address("tip", ip),
        Packet::Pge(ip) => address("pge", ip),
        Packet::Pgd(ip) => address("pgd", ip),
        Packet::Fup(ip) => address("fup", ip),
        Packet::Psb => ("psb", 0, 0),
        Packet::PsbEnd => ("psbend", 0, 0),
        Packet::Overflow => ("ovf", 0, 0),
        Packet::Tsc(tsc) => ("tsc", tsc, 0),
        Packet::Tma { ctc, fast } => ("tma", ctc.into(), fast.into()),
        Packet::Mtc(ctc) => ("mtc", ctc.into(), 0),
        Packet::Cyc(count) => ("cyc", count, 0),
        Packet::Cbr(ratio) => ("cbr", ratio.into(), 0),
        Packet::Pip { cr3, guest } => ("pip", cr3, guest.into()),
        Packet::Ptwrite { value, has_fup } => ("ptw", value, has_fup.into()),
        Packet::Mwait(hints) => ("mwait", hints, 0),
        Packet::Exstop { has_fup } => ("exstop", has_fup.into(), 0),
        Packet::TraceStop => ("stop", 0, 0),
        Packet::Pwre(_) | Packet::Pwrx(_) => ("power", 0, 0),
        Packet::Exec { bits, .. } => {
            ("exec", [0, 16, 32, 64].iter().position(|size| *size == bits)? as u64, 0)
        }
        Packet::Tsx { inside, aborted } => ("tsx", inside.into(), aborted.into()),
        Packet::Other | Packet::Bbp { .. } | Packet::Bip { .. } | Packet::Evd { .. } => ("other", 0, 0),
        Packet::Bad | Packet::Cut => ("bad", 0, 0),
        Packet::Bep { .. } | Packet::Cfe { .. } => return None,
    };
    Some(format!("{offset:x} {kind} {a:x} {b:x}"))
}

fn ours(bytes: &[u8]) -> Vec<String> {
    let trace = Trace::new(vec![bytes], Vec::new());
    let mut lines = Vec::new();
    let mut next = trace.find(&PSB, 0);
    while let Some(psb) = next {
        let mut packets = Packets::new(&trace, psb, Errata::default());
        loop {
            let offset = packets.offset();
            let Some(packet) = packets.next() else { break };
            if packet == Packet::Psb && offset > psb {
                break;
            }
            lines.extend(line(offset, &packet));
            if matches!(packet, Packet::Bad | Packet::Cut) {
                break;
            }
        }
        next = trace.find(&PSB, psb + 1);
    }
    lines
}

#[test]
fn libipt_reads_the_same_packets() {
    let Some(libipt) = Libipt::build("packets") else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/trace");
    for name in
        ["user", "noret", "times", "ptwrite", "defer", "overflow", "halve", "switch", "cpus", "kernel", "cut"]
    {
        let mut recording = Recording::open(folder.join(name).with_extension("data")).unwrap();
        let mut records = recording.records();
        while let Some(record) = records.next_record().unwrap() {
            if Auxtrace::of(&record).is_none() {
                continue;
            }
            let whole = record.payload().to_vec();
            for at in (0..whole.len()).step_by(29) {
                let mut bytes = whole.clone();
                // The first byte stays.
                bytes[at] ^= if at == 0 { 0 } else { (at % 255 + 1) as u8 };
                let (ours, theirs) = (ours(&bytes), libipt.lines(&bytes, &[], false));
                assert_eq!(parts(&ours).len(), parts(&theirs).len(), "{name} at {at}");
                for (ours, theirs) in parts(&ours).into_iter().zip(parts(&theirs)) {
                    if let Some((ours, theirs)) =
                        ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs)
                    {
                        let is_stricter =
                            theirs.contains(" bad ") && LENIENT.iter().any(|kind| ours.contains(kind));
                        assert!(is_stricter, "{name} at {at}: {ours} and {theirs}");
                    } else {
                        assert_eq!(ours.len(), theirs.len(), "{name} at {at}");
                    }
                }
            }
        }
    }
}

/// Packets with reserved bits: libipt requires 0, perf and perfx ignore them.
const LENIENT: [&str; 6] = [" tma ", " cbr ", " exec ", " tsx ", " power ", " other "];

/// From each PSB to the next.
fn parts(lines: &[String]) -> Vec<&[String]> {
    lines.chunk_by(|_, next| !next.contains(" psb ")).collect()
}
