//! The contract of what turns texts into vectors, or scores pairs of texts.

use crate::{Error, ErrorKind, Result, TokenId};

/// What an embedder is; fixed after construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderTraits {
    /// Numbers of a vector; `None` if it makes no vectors.
    pub dimensions: Option<u32>,
    /// Whether it scores a document against a query.
    pub ranks: bool,
    /// Most tokens of one input, with what the model puts around it.
    pub max_tokens: u32,
    /// Token ids are below it.
    pub vocab_size: u32,
    /// The longest token in bytes: bounds how many tokens a text has at least.
    pub max_token_bytes: usize,
    /// Inputs that it holds at a time.
    pub max_inputs: usize,
    /// How the vectors of an input's tokens become one, such as `mean`.
    pub pooling: &'static str,
}

/// The text of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbedText {
    /// A text whose vector is wanted.
    Single(String),
    /// A query and a document that is scored against it.
    Pair(String, String),
}

/// Turns token lists into vectors. One thread owns it and makes every call.
///
/// The contract:
/// - every input that `submit` took is answered once, by a later `step`, unless it was cancelled;
/// - `step` does a bounded piece of work, a forward pass, so that inputs can be cancelled in between;
/// - the failure of one input leaves the others' vectors unchanged, and a vector does not depend on what is
///   computed beside it, but for rounding.
pub trait Embedder: Send {
    /// What it is.
    fn traits(&self) -> &EmbedderTraits;

    /// The tokens of an input, with those that the model wants around it.
    ///
    /// With `most` the end of a text, or of a pair's document, is left out until there are at most so many
    /// tokens.
    ///
    /// # Errors
    /// The text cannot be tokenized, or `most` leaves no room for any of it.
    fn tokenize(&self, text: &EmbedText, most: Option<usize>) -> Result<Vec<TokenId>>;

    /// Takes an input. The caller guarantees: there are fewer than
    /// [`max_inputs`](EmbedderTraits::max_inputs), `id` is not among them, `tokens` are 1 to
    /// [`max_tokens`](EmbedderTraits::max_tokens) ids below [`vocab_size`](EmbedderTraits::vocab_size).
    fn submit(&mut self, id: u64, tokens: Vec<TokenId>, rank: bool);

    /// Forgets an input; an unknown one is no error.
    fn cancel(&mut self, id: u64);

    /// Makes progress. Adds the inputs that are done to `done`: the vector, or the scores of a pair.
    ///
    /// # Errors
    /// The embedder is dead: every input is lost and no call will succeed again.
    fn step(&mut self, done: &mut Vec<(u64, Result<Vec<f32>>)>) -> Result<()>;
}

/// How many tokens of text fit into `most` beside `others`.
///
/// # Errors
/// None does.
pub fn room_for_text(most: usize, others: usize) -> Result<usize> {
    match most.checked_sub(others) {
        Some(room) if room > 0 => Ok(room),
        _ => {
            let message = format!("{most} tokens leave no room for the text beside {others} others");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
    }
}
