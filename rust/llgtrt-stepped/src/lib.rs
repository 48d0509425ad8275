//! What engines that we step have in common: their sequences, how tokens are drawn under the masks, guesses at tokens to
//! come; and an engine over whatever gives rows of logits ([`RowModel`]).
//!
//! Owns no threads: everything runs on the thread that polls.

mod draft;
mod engine;
mod forward;
mod model;
mod sequence;
mod sequences;

pub use draft::{Drafter, PassCost};
pub use engine::RowEngine;
pub use model::{Part, PassError, RowModel, RowTraits};
pub use sequence::Sequence;
pub use sequences::{KvCache, Output, Rows, Sequences};
