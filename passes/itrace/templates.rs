//! Keeps templates of samples: those of one event, thread and CPU usually differ in few fields.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use perfx_auxtrace::Task;
use perfx_format::sample::Stencil;

/// Samples of one event, thread and CPU can share a template if the CPU mode and the size of raw data are
/// equal.
pub(super) type TemplateKey = (u16, usize);

/// A template; `None` if fields of the samples have no fixed places.
type Template = Option<Arc<Stencil>>;

/// The templates of all threads, by event, thread and CPU.
#[derive(Clone, Default, Debug)]
pub(super) struct Templates {
    /// The last one of each event.
    last: [Option<(TemplateKey, Template)>; EVENTS],
    known: HashMap<(usize, Task, u32, TemplateKey), Template, RandomState>,
}

/// The number of events.
const EVENTS: usize = 3;

/// Maximum number of templates.
const MOST: usize = 1 << 10;

impl Templates {
    /// The thread or the CPU may be another from now on.
    pub(super) fn switch(&mut self) {
        self.last = Default::default();
    }

    /// True if the last template of an event cannot be used.
    #[inline(always)]
    pub(super) fn lacks(&self, event: usize, key: TemplateKey) -> bool {
        self.last[event].as_ref().is_none_or(|(last, _)| *last != key)
    }

    /// Makes a template the last one of an event; `make` makes it if it is new.
    pub(super) fn set(
        &mut self,
        event: usize,
        (task, cpu): (Task, u32),
        key: TemplateKey,
        make: impl FnOnce() -> Option<Stencil>,
    ) {
        let whole = (event, task, cpu, key);
        let template = match self.known.get(&whole) {
            Some(known) => known.clone(),
            None => {
                if self.known.len() == MOST {
                    self.known.clear();
                }
                let made = make().map(Arc::new);
                self.known.insert(whole, made.clone());
                made
            }
        };
        self.last[event] = Some((key, template));
    }

    /// The last template of an event, if there is one.
    #[inline(always)]
    pub(super) fn last(&self, event: usize) -> Option<&Arc<Stencil>> {
        self.last[event].as_ref()?.1.as_ref()
    }
}
