//! Selects samples, for programs that read a recording ([`SelectedSamples`]), and for the passes that cut
//! one: [`Filter`] keeps the selected samples and the records that readers need to understand them, and
//! [`Split`] makes parts.

mod aux;
mod choice;
mod choose;
mod chooser;
mod chosen;
mod code;
mod cut;
mod fields;
mod find_functions;
mod functions;
mod gathered;
mod hints;
mod kept_kinds;
mod meant;
mod owner;
mod pass;
mod select;
mod sideband;
mod split;
mod time;
mod unused;

pub use choice::{EventList, FilterArgs, FilterOptions, SelectArgs, WindowArgs, named_events};
pub use code::{ChosenCode, ChosenStack};
pub use meant::{is_meant, meant, shortened, unknown, whole};
pub use owner::Property;
pub use pass::Filter;
pub use select::{KeptRecords, SelectedSamples};
pub use split::{Part, PartName, Split, SplitBy, parse_bytes};
