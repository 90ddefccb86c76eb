//! Completes the call chains of samples from their recorded registers and stacks, and the mapped files.
//!
//! An [`Unwinder`] holds the data of the recording; [`Convert`] works on one thread. It is the rewrite of the
//! pass `convert-callchain`, and computes single call chains for selecting samples by their callers.

mod arch;
mod convert;
mod exidx;
mod images;
mod rules;
mod walk;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use perfx_format::header::Features;
use perfx_format::{Attr, Bytes, Endian, Event, sample_type as st, with_user_callchains, without_parts};
use perfx_model::address_space::AddressSpaces;
use perfx_model::guests::Guests;
use perfx_model::mapped_files::MappedFiles;
use perfx_resolve::{IdOptions, RecordedIds, recorded_on};

use arch::Architectures;
use convert::{has_link_register, has_only_link_register};
use images::Images;
use walk::Shared;

pub use convert::{Convert, Kept, StacksNeeded, has_stacks};

/// The mappings of a recording.
#[derive(Debug)]
pub struct Mapped {
    /// The mappings of each process over time.
    pub spaces: Arc<AddressSpaces>,
    /// The files of these mappings.
    pub files: MappedFiles,
    /// The build-ids in the recording.
    pub ids: RecordedIds,
    /// Its virtual machines.
    pub guests: Guests,
}

/// Completes the call chains of the samples of a recording.
pub struct Unwinder {
    shared: Arc<Shared>,
    guests: Arc<Guests>,
}

fn architectures(features: &Features, endian: Endian) -> Architectures {
    Architectures::of_machine(recorded_on(features, endian).arch.as_deref().unwrap_or_default())
}

/// True if samples of an event have user stacks, or aarch64's link register, to complete call chains.
pub fn is_needed(events: &[Event], features: &Features, endian: Endian) -> bool {
    let inserts = architectures(features, endian).has_link_register();
    events.iter().map(Event::attr).any(|attr| {
        has_stacks(attr.sample_type) || inserts && has_link_register(attr.sample_type, attr.sample_regs_user)
    })
}

/// True if readers complete call chains from the link registers of samples.
pub fn has_callers_in_registers(events: &[Event], features: &Features, endian: Endian) -> bool {
    architectures(features, endian).has_link_register()
        && events
            .iter()
            .any(|event| has_link_register(event.attr().sample_type, event.attr().sample_regs_user))
}

/// The reason why no user stack of a recording with these features can be unwound; `None` if they can.
pub fn why_not(features: &Features, endian: Endian) -> Option<String> {
    if architectures(features, endian).all().next().is_some() {
        return None;
    }
    Some(match recorded_on(features, endian).arch {
        Some(arch) => {
            let (arch, known) = (arch.escape_default(), Architectures::NAMES);
            format!("user stacks of {arch} can't be unwound, only those of {known}")
        }
        None => "feature ARCH is missing, so it is unknown how to unwind the user stacks".to_owned(),
    })
}

impl Unwinder {
    /// An unwinder for a recording with these mappings, features and byte order. `search` has the places of
    /// its files, and `made` the files made by earlier passes.
    pub fn new(
        mapped: Mapped,
        search: IdOptions,
        (features, endian): (&Features, Endian),
        made: HashMap<PathBuf, Bytes>,
    ) -> Unwinder {
        let Mapped { spaces, files, ids, guests } = mapped;
        let recorded_on = recorded_on(features, endian);
        let archs = architectures(features, endian);
        let images = Images::new((archs, endian), spaces, files, ids, search, &recorded_on, made);
        Unwinder { shared: Arc::new(Shared::new(images)), guests: Arc::new(guests) }
    }

    /// A worker for one thread; `kept` are the registers and stacks that rewritten samples keep.
    pub fn on_thread(&self, kept: Kept) -> Convert {
        Convert::new(self.shared.clone(), self.guests.clone(), kept)
    }

    /// Changes an attr to that of samples rewritten by [`Convert`].
    pub fn convert_attr(&self, attr: &mut [u8], kept: Kept, endian: Endian) {
        let Attr { sample_type, sample_regs_user, .. } = Attr::decode(attr, endian);
        if has_stacks(sample_type) {
            let left_out = match kept {
                Kept::Nothing { .. } => st::REGS_USER | st::STACK_USER,
                Kept::Unresolved => 0,
                Kept::Registers => st::STACK_USER,
            };
            with_user_callchains(attr, left_out, endian);
        } else if self.shared.images.archs.has_link_register()
            && matches!(kept, Kept::Nothing { .. })
            && has_only_link_register(sample_type, sample_regs_user)
        {
            without_parts(attr, st::REGS_USER, endian);
        }
    }
}
