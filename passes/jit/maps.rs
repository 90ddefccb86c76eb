//! Plans the images of perf maps (`perf-PID.map`), for processes without a jitdump. A perf map has no times
//! and no code, so its images have only symbols and are mapped wherever the process mapped memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use perfx_format::OrderKey;
use perfx_format::jitdump::Header;
use perfx_jit::{Arena, Functions, Target, arenas};
use perfx_pipeline::{Level, Result, Session, bail, counted};

use super::options::JitLayout;
use super::plan::{Planner, Written};
use super::recorded::Memory;

/// Many overlapping mappings of memory could otherwise add too many.
const MAPPINGS_MAX: usize = 1 << 20;

impl Planner<'_> {
    pub(super) fn perf_maps(&mut self, session: &Session) -> Result<()> {
        let dumped: BTreeSet<u32> = self.mapped.keys().copied().collect();
        let mut by_pid = BTreeMap::<u32, Vec<&Memory>>::new();
        for memory in self.recorded.memory.iter().filter(|memory| !dumped.contains(&memory.map.pid)) {
            by_pid.entry(memory.map.pid).or_default().push(memory);
        }
        self.places.only_process = by_pid.keys().next().copied().filter(|_| by_pid.len() == 1);
        for (pid, mut memory) in by_pid {
            // An earlier program with this pid had another map, now lost.
            let newest = memory.iter().map(|memory| memory.map.key).max().unwrap_or(OrderKey::END);
            let (last, count) = (self.recorded.span(pid, newest), memory.len());
            memory.retain(|memory| memory.map.key >= last.start);
            let earlier = (count - memory.len()) as u64;
            match self.places.perf_map(pid) {
                Ok((text, place)) => {
                    let shown = place.display().to_string();
                    if earlier > 0 {
                        let mappings = counted(earlier, "mapping", "mappings");
                        let line = format!(
                            "{shown} is of the last program with this pid: the code in {mappings} of memory of earlier ones \
                             has no names"
                        );
                        self.plan.report.say(Level::Loss, line);
                    }
                    self.perf_map(pid, &text, &memory, &shown, session)?;
                }
                Err(why) => self.without_map.push(why),
            }
        }
        Ok(())
    }

    fn perf_map(
        &mut self,
        pid: u32,
        text: &[u8],
        memory: &[&Memory],
        shown: &str,
        session: &Session,
    ) -> Result<()> {
        self.allow_gaps(text.len());
        let header = Header { endian: self.endian, machine: 0, is_of_v8: false, pid, time: 0, flags: 0 };
        let functions = Functions::of_perf_map(text, header);
        let (count, skipped) = (functions.list.len() as u64, functions.damage.broken + functions.impossible);
        let mut line = format!("{shown}: {}", counted(count, "function", "functions"));
        if skipped > 0 {
            line += &format!("; skipped {} that name no code", counted(skipped, "line", "lines"));
        }
        self.plan.report.say(Level::Detail, line);
        let mut arenas = arenas(&functions.list);
        if self.options.layout == JitLayout::Function {
            arenas = arenas.into_iter().flat_map(Arena::into_functions).collect();
        }
        // Disjoint, and in order of address.
        let ranges: Vec<Range<u64>> = arenas.iter().map(|arena| arena.range(&functions.list)).collect();
        // `Some(None)`: an image that could not be written.
        let mut images: Vec<Option<Option<Written<'_, '_>>>> = arenas.iter().map(|_| None).collect();
        let target = Target::of(header, self.arch.as_deref());
        for memory in memory {
            let from = ranges.partition_point(|range| range.end <= memory.map.start);
            for (at, range) in ranges.iter().enumerate().skip(from) {
                if range.start >= memory.map.end {
                    break;
                }
                if images[at].is_none() {
                    self.functions += arenas[at].members.len() as u64;
                    images[at] = Some(self.image(pid, target, &functions, &arenas[at], session)?);
                }
                let Some(Some(image)) = &images[at] else { continue };
                let range = range.start.max(memory.map.start)..range.end.min(memory.map.end);
                let place = image.image.place_of(range.start);
                let bytes =
                    image.file.mmap2((pid, memory.tid), range, place, &memory.trailer, self.endian)?;
                if self.plan.after.len() == MAPPINGS_MAX {
                    bail!("{shown}: the process mapped memory over its code more than {MAPPINGS_MAX} times");
                }
                self.plan.after.push((memory.map.origin, bytes));
            }
        }
        self.perf_maps += u64::from(images.iter().any(Option::is_some));
        Ok(())
    }
}
