//! Lets threads use what they share one after the other, in the order of their numbers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What threads share.
#[derive(Debug)]
pub(super) struct Sequencer<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// How many threads wait for their turns.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State<T> {
    /// The number whose turn it is.
    number: u64,
    /// A number may never be done.
    is_abandoned: bool,
    shared: T,
}

impl<T> Sequencer<T> {
    /// The number 0 comes first.
    pub(super) fn new(shared: T) -> Sequencer<T> {
        let state = State { number: 0, is_abandoned: false, shared };
        Sequencer { state: Mutex::new(state), changed: Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // After a panic the turns are abandoned, and nothing comes of what is shared.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what is shared, whoever's turn it is.
    pub(super) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().shared)
    }

    /// Blocks until it is the turn of `number`, then calls `work`; its flag is true if this thread waited or another is
    /// waiting. It is the next number's turn then if this one `is_done`. Returns `None` if its turn may never come.
    pub(super) fn take<R>(
        &self,
        number: u64,
        is_done: bool,
        work: impl FnOnce(&mut T, bool) -> R,
    ) -> Option<R> {
        // Another thread holds the lock as long as it is its turn.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let free = self.state.try_lock().ok();
        let mut has_waited = free.is_none();
        let mut state = free.unwrap_or_else(|| self.lock());
        while state.number != number && !state.is_abandoned {
            has_waited = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let others = self.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
        if state.is_abandoned {
            return None;
        }
        let made = work(&mut state.shared, has_waited || others > 0);
        if is_done {
            state.number += 1;
            self.changed.notify_all();
        }
        Some(made)
    }

    /// A number may never be done: no thread waits any more.
    pub(super) fn abandon(&self) {
        self.lock().is_abandoned = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn numbers_have_their_turns_in_order() {
        let turn = Sequencer::new(Vec::new());
        thread::scope(|scope| {
            for number in (0..20).rev() {
                let turn = &turn;
                scope.spawn(move || {
                    turn.take(number, false, |seen, _| seen.push(number));
                    turn.take(number, true, |seen, _| seen.push(number));
                });
            }
        });
        assert_eq!(turn.look(Clone::clone), (0..40).map(|at| at / 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_thread_learns_that_threads_hold_each_other_up() {
        let turn = Sequencer::new(());
        assert_eq!(turn.take(0, true, |(), is_held_up| is_held_up), Some(false));
        thread::scope(|scope| {
            let later = scope.spawn(|| turn.take(2, true, |(), is_held_up| is_held_up));
            while turn.waiting.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            assert_eq!(turn.take(1, true, |(), is_held_up| is_held_up), Some(true));
            assert_eq!(later.join().unwrap(), Some(true));
        });
    }

    #[test]
    fn no_thread_waits_for_one_that_has_panicked() {
        let turn = Sequencer::new(());
        let ended = thread::scope(|scope| {
            let turn = &turn;
            let others =
                (1..4).map(|number| scope.spawn(move || turn.take(number, true, |(), _| ()).is_none()));
            let others: Vec<_> = others.collect();
            let panics = AssertUnwindSafe(|| turn.take(0, true, |(), _| panic!("a fault of the program")));
            assert!(catch_unwind(panics).is_err());
            turn.abandon();
            others.into_iter().all(|other| other.join().unwrap())
        });
        assert!(ended);
    }
}
