//! What engines that we step have in common: a running sequence and its guesses at tokens to come; and an engine over
//! whatever gives rows of logits ([`RowModel`]).
//!
//! Owns no threads: everything runs on the thread that polls.

mod draft;
mod engine;
mod forward;
mod model;
mod sampling;
mod sequence;

pub use draft::{Drafter, PassCost};
pub use engine::RowEngine;
pub use model::{Part, PassError, RowModel, RowTraits};
pub use sequence::Sequence;
