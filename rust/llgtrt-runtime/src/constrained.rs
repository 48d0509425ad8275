//! What a constraint means for the admission of a request: its matcher, its limit, where stop strings may end it, and how
//! its errors are named.

use llgtrt_core::{Error, ErrorKind, Result, SequenceId, TokenId};
use llgtrt_grammar::{CompiledGrammar, EndCheck, TokenLimit};
use llgtrt_text::{MayEnd, TextPipe, decode_lossy};

use crate::admission::Admission;
use crate::receipt::ReceiptDraft;
use crate::request::{AtLimit, GenerateRequest};

impl Admission {
    /// Has a matcher follow the sequence, which may add so many tokens to those that were generated before.
    pub(crate) fn register(
        &self,
        id: SequenceId,
        request: &GenerateRequest,
        grammar: &CompiledGrammar,
        max_tokens: u32,
        generated: &[TokenId],
        turn: u32,
    ) -> Result<()> {
        self.check_beginning(id, request, grammar)?;
        let limit = if request.at_limit == AtLimit::Close {
            let whole = request.answer_tokens.map(|tokens| tokens as usize);
            let tokens = whole.unwrap_or(max_tokens as usize + generated.len());
            check_shortest(grammar, tokens)?;
            Some(TokenLimit { tokens, retract: self.capabilities.retract, turn })
        } else {
            None
        };
        let registered =
            self.masks.register_behind(id, grammar, limit, generated, request.answer_tokens.is_some());
        registered.map_err(|error| under_param(error, request.grammar_param.as_deref()))
    }

    /// Refuses tokens of another server that the constraint does not allow: that one followed another.
    fn check_beginning(
        &self,
        id: SequenceId,
        request: &GenerateRequest,
        grammar: &CompiledGrammar,
    ) -> Result<()> {
        let Some(handover) = &request.handover else { return Ok(()) };
        let followed = self.masks.register_behind(id, grammar, None, &handover.first_tokens, true);
        self.masks.remove(id);
        followed.map_err(|error| Error::invalid("disaggregated_params.first_gen_tokens", error.message))
    }

    /// The way from tokens to text of an answer that goes on behind these tokens.
    pub(crate) fn pipe(
        &self,
        request: &GenerateRequest,
        generated: &[TokenId],
        grammar: Option<&CompiledGrammar>,
    ) -> TextPipe {
        let keeps_entries = request.sampling.logprobs.is_some() || request.names_text_tokens();
        let pipe = TextPipe::new(&request.stop, request.include_stop_str_in_output, keeps_entries)
            .search_after(request.sampling.min_tokens)
            .naming_control(request.control_text);
        match grammar {
            Some(grammar) if !request.stop.is_empty() => {
                let mut ends = grammar.end_check();
                ends.may_end_after(&decode_lossy(self.tokenizer.vocabulary(), generated));
                pipe.ending_where(Box::new(GrammarEnds(ends)))
            }
            _ => pipe,
        }
    }
}

/// Stop strings end a constrained answer where its grammar allows that.
struct GrammarEnds(EndCheck);

impl MayEnd for GrammarEnds {
    fn may_end_after(&mut self, more: &str) -> bool {
        self.0.may_end_after(more)
    }
}

/// The receipt that an answer is to have, if any.
pub(crate) fn receipt(
    request: &GenerateRequest,
    grammar: Option<&CompiledGrammar>,
) -> Option<Box<ReceiptDraft>> {
    let (kind, grammar) = (request.receipt.clone()?, grammar?);
    Some(Box::new(ReceiptDraft::new(kind, grammar, !request.stop.is_empty())))
}

/// Refuses a limit that no answer fits.
fn check_shortest(grammar: &CompiledGrammar, limit: usize) -> Result<()> {
    if limit > TokenLimit::SHORT {
        return Ok(());
    }
    match grammar.way_out() {
        Some(shortest) if shortest.len() > limit => Err(Error::invalid(
            "max_tokens",
            format!(
                "an answer that satisfies the constraint needs at least {} tokens; {limit} are allowed",
                shortest.len()
            ),
        )),
        _ => Ok(()),
    }
}

/// Puts the request's field before the path that the grammar compiler reported. An error that is not about
/// the grammar, such as a full queue, names no field.
pub(crate) fn under_param(error: Error, param: Option<&str>) -> Error {
    if error.kind != ErrorKind::Grammar {
        return error;
    }
    match (param, error.param.as_deref()) {
        (None, _) => error,
        (Some(param), None | Some("")) => error.with_param(param),
        (Some(param), Some(path)) if path.starts_with('[') => {
            let path = format!("{param}{path}");
            error.with_param(path)
        }
        (Some(param), Some(path)) => {
            let path = format!("{param}.{path}");
            error.with_param(path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar_errors_name_the_requests_field() {
        let at = |path: Option<&str>| {
            let error = Error::new(ErrorKind::Grammar, "no");
            let error = match path {
                Some(path) => error.with_param(path),
                None => error,
            };
            under_param(error, Some("guided_json")).param
        };
        assert_eq!(at(None).as_deref(), Some("guided_json"));
        assert_eq!(at(Some("")).as_deref(), Some("guided_json"));
        assert_eq!(at(Some("properties.a")).as_deref(), Some("guided_json.properties.a"));
        assert_eq!(at(Some("[2]")).as_deref(), Some("guided_json[2]"));
    }
}
