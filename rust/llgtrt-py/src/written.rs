//! The text and the log-probabilities of an answer whose tokens are known, written as the output thread writes them.

use llgtrt_core::{TokenId, TokenLogprobs, TokenOutput, Vocabulary};
use llgtrt_text::{TextOutput, TextPipe, chat_logprobs, completion_logprobs};
use pyo3::FromPyObject;

/// How an answer is written.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Form {
    stop: Vec<String>,
    include_stop: bool,
    control_text: bool,
    completion: bool,
}

/// A token with its log-probability and the likeliest tokens beside it.
pub(crate) type Entry = (TokenId, f32, Vec<(TokenId, f32)>);

/// Text, log-probabilities as JSON, and the stop string that ends the text.
pub(crate) fn write(
    vocabulary: &Vocabulary,
    entries: Vec<Entry>,
    form: &Form,
) -> (String, String, Option<String>) {
    let mut pipe = TextPipe::new(&form.stop, form.include_stop, true).naming_control(form.control_text);
    let mut out = TextOutput::default();
    let mut found = None;
    for (token, logprob, top) in entries {
        let logprobs = Some(Box::new(TokenLogprobs { logprob, top, row: None }));
        let token = TokenOutput { token, forced: false, removed_mass: None, logprobs };
        found = found.or(pipe.push(vocabulary, &token, true, &mut out));
    }
    if found.is_none() {
        pipe.finish(&mut out);
    }
    let logprobs = if form.completion {
        completion_logprobs(vocabulary, &out.logprobs, &mut 0)
    } else {
        chat_logprobs(vocabulary, &out.logprobs)
    };
    (out.text, logprobs, found.map(|index| form.stop[index].clone()))
}
