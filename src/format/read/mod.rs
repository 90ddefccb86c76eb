//! Opens any form of recording (file, pipe data, directory) and cuts its data into batches of records.

mod batch;
mod batches;
mod cutter;
mod directory;
mod expand;
mod fragment;
mod framed;
mod index;
mod pipe_head;
mod recording;
mod records;
mod resync;
mod sample_span;
pub mod sort;
mod stream;
mod time_order;

pub use batch::{BATCH_SIZE, Batch, Opened};
pub use batches::{BatchExtent, Batches, Progress, SpeculativeBatch, Window};
pub use directory::KCORE_DIR;
pub use expand::{Chain, DecodeUnit, DecodeUnits, Expand, Pieces, expand_alone};
pub use fragment::{Fragment, Lost, Stray};
pub use index::{Index, IndexedBatch};
pub use recording::{Form, Recording, StoredBytes};
pub use records::{ReadRecord, Records};
pub use sample_span::SampleSpan;
pub use stream::TempFiles;
pub use time_order::TimeOrder;
