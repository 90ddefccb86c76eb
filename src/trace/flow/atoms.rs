//! Walks the code with one atom for every branch, also for direct ones, as CoreSight traces it.

use super::{BlockId, Flow, Image, Kind, Reason, Sink, Step};

impl<I: Image> Flow<I> {
    /// Goes on to the branch of the next atom and executes it. True if its target is in a later packet: then
    /// [`Flow::arrive`] or [`Flow::go_back`] executes it.
    #[inline(always)]
    pub(crate) fn atom<S: Sink>(&mut self, is_taken: bool, sink: &mut S) -> Result<bool, Reason> {
        loop {
            let kind = self.blocks[self.at].kind;
            match kind {
                Kind::Conditional if is_taken => self.jump(sink),
                Kind::Conditional | Kind::Barrier => self.pass(sink),
                Kind::Jump if is_taken => self.jump(sink),
                Kind::Call if is_taken => {
                    self.push_call();
                    self.jump(sink);
                }
                Kind::IndirectCall if is_taken => {
                    self.push_call();
                    return Ok(true);
                }
                Kind::IndirectJump | Kind::Return | Kind::SystemReturn if is_taken => return Ok(true),
                Kind::Next | Kind::SystemCall => {
                    self.go_straight(sink)?;
                    continue;
                }
                Kind::NoCode => return Err(Reason::NoCode),
                Kind::BadCode => return Err(Reason::BadCode),
                // Some trace units do not treat a jump to the next instruction as a branch.
                Kind::Jump if self.blocks[self.at].target == self.blocks[self.at].next => self.pass(sink),
                _ => return Err(Reason::Mismatch),
            }
            return Ok(false);
        }
    }

    /// Executes the current block, whose branch goes to `ip`.
    #[inline(always)]
    pub(crate) fn arrive<S: Sink>(&mut self, ip: u64, sink: &mut S) {
        let to = self.find(ip);
        self.take(to, sink);
    }

    pub(crate) fn leave<S: Sink>(&mut self, sink: &mut S) {
        self.step(self.blocks[self.at].count, None, sink);
        self.set_ip(None);
    }

    pub(crate) fn block(&self) -> Option<BlockId> {
        self.is_known().then_some(self.at)
    }

    pub(crate) fn last(&self) -> u64 {
        self.blocks[self.at].last
    }

    /// Goes straight on to `ip`; there is no branch before it. True if the instruction before it is a system
    /// call, which is not executed here.
    pub(crate) fn reach<S: Sink>(&mut self, ip: u64, sink: &mut S) -> Result<bool, Reason> {
        loop {
            if let Some(count) = self.blocks.before(self.at, ip) {
                self.partly(count, ip, sink);
                return Ok(false);
            }
            let block = &self.blocks[self.at];
            match block.kind {
                Kind::SystemCall if block.next == ip => return Ok(true),
                Kind::NoCode | Kind::BadCode if block.next == ip => {
                    let count = block.count;
                    self.partly(count, ip, sink);
                    return Ok(false);
                }
                Kind::Next | Kind::SystemCall => self.go_straight(sink)?,
                Kind::NoCode => return Err(Reason::NoCode),
                Kind::BadCode => return Err(Reason::BadCode),
                _ => return Err(Reason::Mismatch),
            }
        }
    }

    /// Goes on to the branch at `ip`; no branch before it was taken. Its atom follows.
    pub(crate) fn reach_branch<S: Sink>(&mut self, ip: u64, sink: &mut S) -> Result<(), Reason> {
        loop {
            let block = &self.blocks[self.at];
            match block.kind {
                Kind::NoCode => return Err(Reason::NoCode),
                Kind::BadCode => return Err(Reason::BadCode),
                Kind::Next => {}
                _ if block.last == ip => return Ok(()),
                Kind::Conditional | Kind::Barrier | Kind::SystemCall => {}
                _ => return Err(Reason::Mismatch),
            }
            self.go_straight(sink)?;
        }
    }

    /// Executes `count` instructions, after which execution is at `ip`. Only the last one can be conditional.
    pub(crate) fn count_to<S: Sink>(&mut self, mut count: u32, ip: u64, sink: &mut S) -> Result<(), Reason> {
        while count > 0 {
            let block = &self.blocks[self.at];
            let (kind, to) = (block.kind, block.target);
            let Some(rest) = count.checked_sub(block.count) else {
                self.blocks.before(self.at, ip).filter(|before| *before == count).ok_or(Reason::Mismatch)?;
                self.partly(count, ip, sink);
                return Ok(());
            };
            match kind {
                Kind::NoCode => return Err(Reason::NoCode),
                Kind::BadCode => return Err(Reason::BadCode),
                Kind::Jump | Kind::Call => {
                    self.steps = self.steps.checked_sub(1).ok_or(Reason::Endless)?;
                    self.jump(sink);
                }
                Kind::Next | Kind::SystemCall | Kind::Barrier => self.go_straight(sink)?,
                _ if rest > 0 => return Err(Reason::NoPath),
                Kind::Conditional if to == ip => self.jump(sink),
                Kind::Conditional => self.pass(sink),
                _ => self.arrive(ip, sink),
            }
            count = rest;
        }
        if self.ip() == Some(ip) { Ok(()) } else { Err(Reason::Mismatch) }
    }

    /// Executes the first instructions of the current block, up to `ip`.
    fn partly<S: Sink>(&mut self, count: u32, ip: u64, sink: &mut S) {
        if count > 0 {
            self.step(count, None, sink);
            self.at = self.find(ip);
        }
    }

    /// Executes the current block, whose end has no packet, and goes on after it.
    fn go_straight<S: Sink>(&mut self, sink: &mut S) -> Result<(), Reason> {
        self.steps = self.steps.checked_sub(1).ok_or(Reason::Endless)?;
        let to = self.fall(self.at);
        let step = Step { block: self.at, count: self.blocks[self.at].count, to: None };
        sink.straight(&self.blocks, &self.point, step);
        self.at = to;
        Ok(())
    }
}
