//! Describes a recording: [`stats()`] counts its records, and [`stats_of()`] some of them; [`du()`] and
//! [`du_of()`] count bytes; [`diff()`] compares two. The results are types that serde prints as JSON and
//! schemars describes.
//!
//! Decoded values are shown the same on every machine, so that snapshots and scripts can depend on it:
//!
//! | value | text | JSON |
//! |---|---|---|
//! | `Number`, `Signed` | `12`, `-1` | a string: many readers lose digits of numbers above 2^53, and one rule for all is easier to remember |
//! | `Hex` | `0x1f` | a string, `"0x1f"` |
//! | `Float` | `0.5`, `1e-9` | a number; `"NaN"`, `"inf"` and `"-inf"` are strings |
//! | `Text`, `Name` | unchanged; in `"` if it is empty or has white space, `"`, control or format characters or invalid UTF-8, with `\"`, `\\`, and `\xNN` for each byte that cannot be shown | a string; text that is not UTF-8 is `{"bytes": "hex"}` |
//! | `Bytes` | hex digits; more than 32 bytes are `<100 bytes 000102…>` unless all are requested | a string of hex digits, all of them |
//! | `List` | `[1 2 3]` | an array |
//! | `Map` | `{a=1 b=2}` | an object; a second entry with the same name is `name_2` |

pub mod clock;
mod count;
mod diff;
mod du;
pub mod json;
mod live;
pub mod render;
mod stats;
pub mod trace;

pub use count::{Count, TimeSpan};
pub use diff::{Diff, Difference, FirstRecord, RecordPlace, Shown, Side, diff};
pub use du::{Du, EventBytes, FeatureBytes, Hole, KindBytes, Part, Process, du, du_of, stats_and_du};
pub use live::LiveCount;
pub use perfx_pipeline::{Error, Result};
pub use stats::{
    AuxBuffer, AuxCount, CompressedCount, EventCount, KindCount, LargestRecord, LostCount, NewValues,
    PacketCounts, SampleCount, Stats, Times, TornRecord, stats, stats_of,
};
