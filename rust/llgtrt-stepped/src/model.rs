//! The contract of a model that is given tokens and gives rows of logits.

use llgtrt_core::{Error, TokenId};

/// What a model is; fixed once it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTraits {
    /// Short name of the engine, such as `python`.
    pub name: &'static str,
    /// Columns of a row.
    pub vocab_size: u32,
    /// Sequences that it holds at the same time.
    pub slots: u32,
    /// Tokens of one sequence.
    pub context_tokens: u32,
    /// Most tokens of one forward pass.
    pub pass_tokens: u32,
}

/// What one forward pass evaluates of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The sequence's place, below [`RowTraits::slots`].
    pub slot: usize,
    /// Position of the first token. The tokens before it were evaluated in this slot, in this order, since it was freed; what
    /// the slot holds from here on is forgotten.
    pub start: usize,
    /// At least one.
    pub tokens: &'a [TokenId],
    /// The logits behind so many of the last tokens are wanted; may be 0.
    pub rows: usize,
}

/// Why a forward pass gave no rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassError {
    /// The sequences of the pass are lost; the model goes on.
    Failed(Error),
    /// The model is of no further use.
    Fatal(Error),
}

/// A model. One thread makes every call.
pub trait RowModel: Send {
    /// What it is.
    fn traits(&self) -> RowTraits;

    /// Evaluates at most one part of each sequence, and writes the rows that they want, in their order: those of
    /// the first part, one after the other, then those of the next. `rows` is of that length.
    ///
    /// # Errors
    /// See [`PassError`].
    fn forward(&mut self, parts: &[Part<'_>], rows: &mut [f32]) -> Result<(), PassError>;

    /// The sequence of a slot is over: what the slot holds may go.
    fn free(&mut self, slot: usize);
}
