//! One forward pass as planners of capacity want to know it: what took part and how long it took.

use std::time::Duration;

/// A forward pass that has ended. A sequence takes part either with its prompt (prefill) or with what it has
/// generated (decode).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// From its start until its tokens were sampled.
    pub duration: Duration,
    /// Sequences of whose prompts something was evaluated.
    pub prefill_sequences: u32,
    /// Prompt tokens that were evaluated.
    pub prefill_tokens: u32,
    /// Tokens of these sequences that were in the KV cache before: found there, or evaluated in earlier passes.
    pub prefill_context_tokens: u64,
    /// Sequences that generated.
    pub decode_sequences: u32,
    /// Tokens beyond prompts that were evaluated: sampled, forced by grammars, guessed.
    pub decode_tokens: u32,
    /// Tokens of the sequences that generated that were in the KV cache before.
    pub decode_context_tokens: u64,
}

impl Pass {
    /// Adds a sequence with a prompt of `prompt` tokens, of which `context` tokens were in the KV cache, and `tokens`
    /// more were evaluated.
    pub fn add(&mut self, prompt: usize, context: usize, tokens: usize) {
        let of_prompt = prompt.saturating_sub(context).min(tokens);
        self.prefill_tokens += of_prompt as u32;
        self.decode_tokens += (tokens - of_prompt) as u32;
        if context < prompt {
            self.prefill_sequences += 1;
            self.prefill_context_tokens += context as u64;
        } else {
            self.decode_sequences += 1;
            self.decode_context_tokens += context as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_of_one_kind_and_its_tokens_of_both() {
        let mut pass = Pass::default();
        pass.add(10, 4, 5);
        // The end of a prompt, and what its grammar forces behind it.
        pass.add(10, 8, 5);
        pass.add(10, 12, 1);
        let expected = Pass {
            prefill_sequences: 2,
            prefill_tokens: 7,
            prefill_context_tokens: 12,
            decode_sequences: 1,
            decode_tokens: 4,
            decode_context_tokens: 12,
            ..Pass::default()
        };
        assert_eq!(pass, expected);
    }
}
