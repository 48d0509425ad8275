//! The schema as it was given: its dialect, its places, and where its references lead.

mod dialect;
mod meta;
mod refs;

pub(crate) use self::dialect::Dialect;
pub use self::dialect::is_draft_4;
pub(crate) use self::refs::{Index, Place, PlaceKey};
