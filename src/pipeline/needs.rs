//! The requirements of a pass: which records, which walks, and what to do about damage.

use std::ops::Range;
use std::sync::Arc;

use perfx_format::{Feature, Kinds};

use crate::damage::Damage;

/// The records of a batch that a rewrite needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Interest {
    /// The kinds in its [`Needs::records`]; all others are copied.
    AsDeclared,
    /// Only these kinds. All others are dropped unseen and not counted, so the pass must report them.
    DropRest(Kinds),
    /// All records in these ranges of positions, which are ascending and begin and end at record boundaries;
    /// elsewhere only these kinds. All others are dropped as in `DropRest`.
    DropOutside(Arc<[Range<usize>]>, Kinds),
    /// Only these kinds; all others are copied. Passes after it still see the records that they need.
    KeepRest(Kinds),
}

/// The requirements of a pass.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The kinds passed to its [`Rewrite::record`](crate::Rewrite::record). All others are copied unseen.
    pub records: Kinds,
    /// The kinds passed to each of its surveys. The last ones may turn out to be unnecessary.
    pub surveys: Vec<Kinds>,
    /// Its rewrite needs COMPRESSED records expanded. The output is then not compressed.
    pub decompressed: bool,
    /// The layout of every record must be known.
    pub ids: bool,
    /// Features that are out of date after the pass; they are dropped unless the pass sets them.
    pub stale: &'static [Feature],
    /// No other pass can read its output, so it must be the last.
    pub last: bool,
    /// Later passes must survey the output of this pass, which goes to a temporary file in between. False
    /// only for a pass that changes nothing that a survey could learn: no time, id or mapping, and no dropped
    /// record.
    pub barrier: bool,
    /// Its surveys need not see the changes of earlier passes. They only serve pipe data, which has the
    /// result at its front; for a file, the pass collects it during the rewrite.
    pub surveys_input: bool,
    /// The reaction to unreadable records. With several passes, the strictest applies.
    pub damage: Damage,
}

impl Default for Needs {
    fn default() -> Self {
        Needs {
            records: Kinds::NONE,
            surveys: Vec::new(),
            decompressed: false,
            ids: false,
            stale: &[],
            last: false,
            barrier: true,
            surveys_input: false,
            damage: Damage::Tolerate,
        }
    }
}
