//! Runs work on many threads, with results in the order of the items and a bounded number of items in memory.
//!
//! The parts that do not depend on the types of items and results ([`Turns`], [`run`]) are compiled once:
//! generic copies took a third of the build.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};

use crossbeam_channel::bounded;

use crate::error::{Context as _, Error, Result};

/// For every item calls `work` on one of the `workers` (one thread each), then `done` on the calling thread,
/// in the order of the items. With a single worker and `alone`, everything runs on the calling thread.
///
/// # Errors
///
/// The first error of `done`, or a thread cannot be started.
pub fn ordered<T: Send, R: Send, W: Send, E: From<Error>>(
    items: impl Iterator<Item = T> + Send,
    workers: &mut [W],
    alone: bool,
    work: impl Fn(&mut W, T) -> R + Sync,
    mut done: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    if alone {
        let Some(worker) = workers.first_mut() else { return Ok(()) };
        for item in items {
            done(work(worker, item))?;
        }
        return Ok(());
    }
    mapped(items, workers, work, |results| {
        for result in results {
            done(result)?;
        }
        Ok(())
    })
}

/// Calls `then`, on the calling thread, with the results of `work` in the order of the items; `work` runs on
/// the `workers`, one thread each, or fewer if not all can be started.
pub(crate) fn mapped<T: Send, R: Send, W: Send, O, E: From<Error>>(
    mut items: impl Iterator<Item = T> + Send,
    workers: &mut [W],
    work: impl Fn(&mut W, T) -> R + Sync,
    then: impl FnOnce(&mut (dyn Iterator<Item = R> + Send)) -> Result<O, E>,
) -> Result<O, E> {
    // One item is produced while each worker has one and the calling thread uses a result.
    let slots: Vec<Mutex<Slot<T, R>>> = (0..workers.len() + 2).map(|_| Mutex::new(Slot::Empty)).collect();
    let (slots, work) = (&slots[..], &work);
    let mut produce = |slot: usize| {
        let item = items.next();
        let is_item = item.is_some();
        *locked(&slots[slot]) = item.map_or(Slot::Empty, Slot::Item);
        is_item
    };
    let workers = workers.iter_mut().map(|worker| -> Box<dyn FnMut(usize) + Send> {
        Box::new(move |slot| {
            let item = std::mem::replace(&mut *locked(&slots[slot]), Slot::Empty);
            if let Slot::Item(item) = item {
                let result = work(worker, item);
                *locked(&slots[slot]) = Slot::Result(result);
            }
        })
    });
    let workers = workers.collect();
    let (mut then, mut output) = (Some(then), None);
    run(slots.len(), &mut produce, workers, &mut |turns| {
        let mut results = std::iter::from_fn(|| {
            let slot = turns.next()?;
            let result = std::mem::replace(&mut *locked(&slots[slot]), Slot::Empty);
            turns.free();
            if let Slot::Result(result) = result { Some(result) } else { None }
        });
        output = then.take().map(|then| then(&mut results));
    })?;
    output.unwrap_or_else(|| Err(Error::new("no thread ran").into()))
}

enum Slot<T, R> {
    Empty,
    Item(T),
    Result(R),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the slots, which are used in turn: item `n` has slot `n` modulo their number.
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of items that were produced, begun by a worker, and used.
    produced: usize,
    begun: usize,
    used: usize,
    finished: Vec<bool>,
    has_ended: bool,
    has_stopped: bool,
}

impl Turns {
    fn new(slots: usize) -> Turns {
        let state = State { finished: vec![false; slots], ..State::default() };
        Turns { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until `ready` returns a value, or the work ends.
    fn wait<T>(&self, ready: impl Fn(&mut State) -> Option<Option<T>>) -> Option<T> {
        let mut state = locked(&self.state);
        loop {
            if state.has_stopped {
                return None;
            }
            if let Some(found) = ready(&mut state) {
                return found;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut locked(&self.state));
        self.changed.notify_all();
    }

    fn empty(&self) -> Option<usize> {
        self.wait(|state| {
            let slots = state.finished.len();
            (state.produced - state.used < slots).then(|| Some(state.produced % slots))
        })
    }

    /// The slot of the next item without a worker; `None` at the end.
    fn begin(&self) -> Option<usize> {
        self.wait(|state| {
            if state.begun < state.produced {
                state.begun += 1;
                return Some(Some((state.begun - 1) % state.finished.len()));
            }
            state.has_ended.then_some(None)
        })
    }

    /// The slot of the next result; `None` at the end.
    fn next(&self) -> Option<usize> {
        self.wait(|state| {
            let slot = state.used % state.finished.len();
            if state.used < state.produced && state.finished[slot] {
                return Some(Some(slot));
            }
            (state.has_ended && state.used == state.produced).then_some(None)
        })
    }

    fn free(&self) {
        self.change(|state| {
            let slot = state.used % state.finished.len();
            state.finished[slot] = false;
            state.used += 1;
        });
    }
}

/// Ends all waiting when dropped, also by a panic.
struct Stop<'a>(&'a Turns);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.has_stopped = true);
    }
}

/// Calls `produce` with the slots in turn until it returns false, a worker with each filled one, and `then`.
fn run(
    slots: usize,
    produce: &mut (dyn FnMut(usize) -> bool + Send),
    workers: Vec<Box<dyn FnMut(usize) + Send + '_>>,
    then: &mut dyn FnMut(&Turns),
) -> Result<()> {
    let turns = &Turns::new(slots);
    thread::scope(|scope| {
        // Dropped before the scope waits for its threads.
        let _stop = Stop(turns);
        spawn(
            scope,
            Box::new(move || {
                let panics = Stop(turns);
                while let Some(slot) = turns.empty() {
                    let is_item = produce(slot);
                    turns.change(|state| match is_item {
                        true => state.produced += 1,
                        false => state.has_ended = true,
                    });
                    if !is_item {
                        break;
                    }
                }
                std::mem::forget(panics);
            }),
        )?;
        for (number, mut worker) in workers.into_iter().enumerate() {
            let spawned = spawn(
                scope,
                Box::new(move || {
                    let panics = Stop(turns);
                    while let Some(slot) = turns.begin() {
                        worker(slot);
                        turns.change(|state| state.finished[slot] = true);
                    }
                    std::mem::forget(panics);
                }),
            );
            match spawned {
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
                Ok(_) => {}
            }
        }
        then(turns);
        Ok(())
    })
}

/// Starts a thread of a scope, if possible.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: Box<dyn FnOnce() -> T + Send + 'scope>,
) -> Result<ScopedJoinHandle<'scope, T>> {
    started(thread::Builder::new().spawn_scoped(scope, run))
}

/// Returns the thread, or an error where `spawn` of std would panic.
pub(crate) fn started<T>(spawned: io::Result<T>) -> Result<T> {
    spawned.context("can't start a thread; use fewer with -@ 1")
}

/// Returns the same items; with several threads, one produces the next item while the current one is used.
///
/// # Errors
///
/// The thread cannot be started.
pub fn ahead<T: Send + 'static>(
    items: impl Iterator<Item = T> + Send + 'static,
    threads: usize,
) -> Result<Box<dyn Iterator<Item = T> + Send>> {
    if threads <= 1 {
        return Ok(Box::new(items));
    }
    // A rendezvous channel: at most two items exist at a time, not three.
    let (sender, receiver) = bounded(0);
    let mut thread = Some(started(thread::Builder::new().spawn(move || {
        for item in items {
            if sender.send(item).is_err() {
                break;
            }
        }
    }))?);
    Ok(Box::new(std::iter::from_fn(move || {
        let item = receiver.recv().ok();
        if item.is_none()
            && let Some(Err(panic)) = thread.take().map(JoinHandle::join)
        {
            resume_unwind(panic);
        }
        item
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_for_any_number_of_threads() {
        for threads in [1, 4] {
            let mut seen = Vec::new();
            let work = |_: &mut (), n: u64| {
                thread::sleep(std::time::Duration::from_micros(n * 7 % 50));
                n * 2
            };
            let mut workers = vec![(); threads];
            ordered(0..200, &mut workers, threads == 1, work, |n| {
                seen.push(n);
                Ok::<_, Error>(())
            })
            .unwrap();
            assert_eq!(seen, (0..200).map(|n| n * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let mut workers = vec![(); 3];
        let result = ordered(
            0..,
            &mut workers,
            false,
            |_, n: u64| n,
            |n| {
                crate::ensure!(n < 10, "ten");
                Ok(())
            },
        );
        assert_eq!(result.unwrap_err().to_string(), "ten");
    }
}
