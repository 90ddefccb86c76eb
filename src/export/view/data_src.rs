//! Shows where the data of a sample came from, as `perf script` does.

use perfx_format::sample::DataSrc;

/// The names of fields of [`DataSrc`] and of their constants, and perf's words for these.
const SNOOPS: [(&str, &str, &str); 7] = [
    ("snoop", "NA", "N/A"),
    ("snoop", "NONE", "None"),
    ("snoop", "HIT", "Hit"),
    ("snoop", "MISS", "Miss"),
    ("snoop", "HITM", "HitM"),
    ("snoopx", "FWD", "Fwd"),
    ("snoopx", "PEER", "Peer"),
];
const TLBS: [(&str, &str, &str); 5] = [
    ("dtlb", "NA", "N/A"),
    ("dtlb", "L1", "L1"),
    ("dtlb", "L2", "L2"),
    ("dtlb", "WK", "Walker"),
    ("dtlb", "OS", "Fault"),
];
/// The distance of the data, shown before its level.
const HOPS: [(&str, &str, &str); 5] = [
    ("remote", "1", "Remote "),
    ("hops", "HOPS_0", "core, same node "),
    ("hops", "HOPS_1", "node, same socket "),
    ("hops", "HOPS_2", "socket, same board "),
    ("hops", "HOPS_3", "board "),
];
/// The levels that newer processors report; each sample has one.
const LEVELS: [(&str, &str, &str); 14] = [
    ("lvl_num", "L1", "L1"),
    ("lvl_num", "L2", "L2"),
    ("lvl_num", "L3", "L3"),
    ("lvl_num", "L4", "L4"),
    ("lvl_num", "L2_MHB", "L2 MHB"),
    ("lvl_num", "MSC", "Memory-side Cache"),
    ("lvl_num", "L0", "L0"),
    ("lvl_num", "UNC", "Uncached"),
    ("lvl_num", "CXL", "CXL"),
    ("lvl_num", "IO", "I/O"),
    ("lvl_num", "ANY_CACHE", "Any cache"),
    ("lvl_num", "LFB", "LFB/MAB"),
    ("lvl_num", "RAM", "RAM"),
    ("lvl_num", "PMEM", "PMEM"),
];
/// The levels that older processors report; a sample may have several.
const OLD_LEVELS: [(&str, &str, &str); 11] = [
    ("lvl", "L1", "L1"),
    ("lvl", "LFB", "LFB/MAB"),
    ("lvl", "L2", "L2"),
    ("lvl", "L3", "L3"),
    ("lvl", "LOC_RAM", "Local RAM"),
    ("lvl", "REM_RAM1", "Remote RAM (1 hop)"),
    ("lvl", "REM_RAM2", "Remote RAM (2 hops)"),
    ("lvl", "REM_CCE1", "Remote Cache (1 hop)"),
    ("lvl", "REM_CCE2", "Remote Cache (2 hops)"),
    ("lvl", "IO", "I/O"),
    ("lvl", "UNC", "Uncached"),
];

/// The operation and the level, snoop, TLB, lock and block of the data, in perf's words. perf cuts texts of
/// more than 80 bytes and pads others to the longest one so far.
pub(super) fn text(source: DataSrc) -> String {
    let parts: Vec<_> = source.parts().collect();
    let has = |field: &str, constant: &str| {
        parts.iter().any(|(name, value)| *name == field && value.split('|').any(|one| one == constant))
    };
    let worded = |words: &[(&str, &str, &'static str)]| -> Vec<&'static str> {
        words.iter().filter(|(field, constant, _)| has(field, constant)).map(|(.., word)| *word).collect()
    };
    let known = |words: &[(&str, &str, &'static str)]| match worded(words).join(" or ") {
        empty if empty.is_empty() => "N/A".to_owned(),
        words => words,
    };

    let operations = ["NA", "LOAD", "STORE", "PFETCH", "EXEC"];
    let op = match operations.into_iter().find(|operation| has("op", operation)) {
        Some("NA") => "N/A",
        op => op.unwrap_or("No"),
    };
    let found = match (has("lvl", "HIT"), has("lvl", "MISS")) {
        (true, _) => "hit",
        (false, true) => "miss",
        (false, false) => "",
    };
    let level = match (worded(&LEVELS).first(), worded(&OLD_LEVELS)) {
        (Some(level), _) => format!("{}{level} {found}", worded(&HOPS).concat()),
        (None, levels) if levels.is_empty() => "N/A".to_owned(),
        (None, levels) => format!("{} {found}", levels.join(" or ")),
    };
    let in_tlb = [("dtlb", "HIT", " hit"), ("dtlb", "MISS", " miss")];
    let tlb = known(&TLBS) + &worded(&in_tlb).concat();
    let lock = match (has("lock", "NA"), has("lock", "LOCKED")) {
        (true, _) => "N/A",
        (false, true) => "Yes",
        (false, false) => "No",
    };
    let blocks = worded(&[("blk", "DATA", " Data"), ("blk", "ADDR", " Addr")]).concat();
    let block = if has("blk", "NA") || blocks.is_empty() { " N/A" } else { &blocks };
    format!("|OP {op}|LVL {level}|SNP {}|TLB {tlb}|LCK {lock}|BLK {block}", known(&SNOOPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_perf() {
        let shown = [
            (0x0, "|OP No|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (0x1c0, "|OP No|LVL L1 hit|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (0x5080021, "|OP N/A|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A"),
            (0x102600000000, "|OP No|LVL Remote node, same socket L3 |SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (0x5c79d014b7769, "|OP N/A|LVL PMEM hit|SNP N/A or Miss or Peer|TLB Fault|LCK N/A|BLK  N/A"),
            (
                0x1859cb9810331,
                "|OP N/A|LVL PMEM |SNP HitM or Peer|TLB L1 or Walker hit miss|LCK N/A|BLK  N/A",
            ),
            (0x360147980358d, "|OP N/A|LVL board I/O miss|SNP HitM|TLB L1 or L2 hit miss|LCK N/A|BLK  N/A"),
            (0x6128e023033d, "|OP N/A|LVL Remote board L4 |SNP Hit|TLB L1 or L2 or Walker|LCK No|BLK  N/A"),
            (0x7c31802420a57, "|OP N/A|LVL LFB/MAB hit|SNP Miss|TLB N/A|LCK Yes|BLK  N/A"),
            (0x36110504e8c60, "|OP No|LVL board Uncached hit|SNP N/A or Miss|TLB L2 miss|LCK No|BLK  N/A"),
            (
                0x540d52b0b8c12,
                "|OP LOAD|LVL I/O |SNP N/A or Fwd or Peer|TLB L1 or Fault hit|LCK N/A|BLK  N/A",
            ),
            (0x4a602a14566e6, "|OP LOAD|LVL board L1 hit|SNP Miss|TLB L1 or Walker|LCK N/A|BLK  Data Addr"),
            (0x144423605c5cd, "|OP N/A|LVL L1 hit|SNP Fwd|TLB N/A or L1 miss|LCK Yes|BLK  Addr"),
            (0xc4154b2e8ab3, "|OP N/A|LVL I/O miss|SNP N/A or Hit|TLB L2 or Fault hit|LCK N/A|BLK  Addr"),
            (
                0x61b0a82116c71,
                "|OP N/A|LVL socket, same board L2 MHB hit|SNP None|TLB Walker|LCK Yes|BLK  N/A",
            ),
            (0x787323328ad08, "|OP PFETCH|LVL Remote CXL |SNP N/A or Hit|TLB L1 miss|LCK N/A|BLK  N/A"),
            (0x204a841485039, "|OP N/A|LVL Remote L4 |SNP N/A or Miss or Peer|TLB L2|LCK N/A|BLK  Addr"),
            (
                0x125340a652b4f,
                "|OP N/A|LVL Remote board I/O hit|SNP Hit or Miss|TLB N/A hit|LCK Yes|BLK  N/A",
            ),
            (0x3c7287311d8a3, "|OP N/A|LVL Remote L4 miss|SNP None|TLB L1 or L2 miss|LCK N/A|BLK  N/A"),
            (
                0x442d2c314c86e,
                "|OP LOAD|LVL CXL hit|SNP None or Fwd or Peer|TLB L2 or Walker|LCK N/A|BLK  Data",
            ),
            (0x200041722ebbe, "|OP LOAD|LVL L2 miss|SNP Hit|TLB N/A miss|LCK N/A|BLK  N/A"),
            (0x3020507346324, "|OP STORE|LVL L2 |SNP None or Hit|TLB N/A or Fault|LCK N/A|BLK  Data"),
            (0x2072658a43d4e, "|OP LOAD|LVL Remote L3 hit|SNP Hit or HitM|TLB L2 hit miss|LCK No|BLK  N/A"),
            (0x480180418008d, "|OP N/A|LVL LFB/MAB miss|SNP N/A or None|TLB N/A|LCK No|BLK  N/A"),
            (0x6cc242240a87f, "|OP N/A|LVL Remote core, same node L2 hit|SNP Miss|TLB L1|LCK Yes|BLK  Addr"),
        ];
        for (source, expected) in shown {
            assert_eq!(text(DataSrc(source)), expected, "{source:#x}");
        }
    }
}
