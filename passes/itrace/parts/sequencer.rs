//! Lets threads use a shared value in the order of their numbers.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct Sequencer<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// The number whose turn it is.
    number: u64,
    /// The turn of some number never ends.
    is_abandoned: bool,
    shared: T,
}

impl<T> Sequencer<T> {
    /// Number 0 has the first turn.
    pub(super) fn new(shared: T) -> Sequencer<T> {
        let state = State { number: 0, is_abandoned: false, shared };
        Sequencer { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // After a panic the turns are abandoned, and the shared value is not used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the shared value out of turn.
    pub(super) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().shared)
    }

    /// Blocks until it is the turn of `number`, then calls `work`; ends the turn if it `is_done`. Does
    /// nothing if the turn may never come.
    pub(super) fn take(&self, number: u64, is_done: bool, work: impl FnOnce(&mut T)) {
        let mut state = self.lock();
        while state.number != number && !state.is_abandoned {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_abandoned {
            return;
        }
        work(&mut state.shared);
        if is_done {
            state.number += 1;
            self.changed.notify_all();
        }
    }

    /// Releases the waiting threads: some turn may never end.
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
                    turn.take(number, false, |seen| seen.push(number));
                    turn.take(number, true, |seen| seen.push(number));
                });
            }
        });
        assert_eq!(turn.look(Clone::clone), (0..40).map(|at| at / 2).collect::<Vec<_>>());
    }

    #[test]
    fn no_thread_waits_for_one_that_has_panicked() {
        let turn = Sequencer::new(());
        let ended = thread::scope(|scope| {
            let turn = &turn;
            let has_had = |number| {
                move || {
                    let mut has_had = false;
                    turn.take(number, true, |()| has_had = true);
                    has_had
                }
            };
            let others: Vec<_> = (1..4).map(|number| scope.spawn(has_had(number))).collect();
            let panics = AssertUnwindSafe(|| turn.take(0, true, |()| panic!("a fault of the program")));
            assert!(catch_unwind(panics).is_err());
            turn.abandon();
            others.into_iter().all(|other| !other.join().unwrap())
        });
        assert!(ended);
    }
}
