//! What engines that we step have in common: their sequences, how tokens are drawn under the masks, guesses at tokens to
//! come; and an engine over whatever gives rows of logits ([`RowModel`]).
//!
//! Everything runs on the thread that polls, but for tokens of a large step, which threads of its own draw as well
//! (`drawers`).

mod draft;
mod drawers;
mod engine;
mod forward;
mod model;
mod pass_cost;
mod sequence;
mod sequences;

pub use draft::{Acceptance, Drafter, MAX_DRAFT, Worth};
pub use engine::RowEngine;
pub use model::{Part, PassError, RowModel, RowTraits};
pub use pass_cost::PassCost;
pub use sequence::{Prices, Sequence};
pub use sequences::{KvCache, Output, Rows, Sequences};
