//! A tokenizer and a mask source for engines' tests that need no model and no grammar.
//! Pure; must stay the smallest thing that works.

use std::sync::Arc;

use llgtrt_core::{
    AdvanceBatch, AdvanceState, EncodeOptions, MaskBatch, MaskSlot, MaskSource, Result, TokenId, Tokenizer,
    Vocabulary, VocabularyBuilder,
};

/// Every byte is a token; token 256 is the end of sequence.
#[derive(Debug)]
pub struct Bytes {
    vocabulary: Vocabulary,
}

impl Bytes {
    /// The end-of-sequence token.
    pub const EOS: TokenId = 256;

    /// The tokenizer, ready to share.
    pub fn shared() -> Arc<dyn Tokenizer> {
        let mut builder = VocabularyBuilder::default();
        for byte in 0..=u8::MAX {
            builder.push(&[byte], false);
        }
        builder.push(b"<eos>", true);
        Arc::new(Self { vocabulary: builder.build(None, vec![Self::EOS]) })
    }
}

impl Tokenizer for Bytes {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn encode(&self, text: &str, _options: EncodeOptions) -> Result<Vec<TokenId>> {
        Ok(text.bytes().map(TokenId::from).collect())
    }
}

/// Allows everything and forces nothing.
#[derive(Debug, Clone, Copy)]
pub struct AllowAll;

impl MaskSource for AllowAll {
    fn advance(&self, slots: &[MaskSlot<'_>], _fast_forward: bool, out: &mut AdvanceBatch) {
        for _ in slots {
            out.push(&[], AdvanceState::Sample);
        }
    }

    fn fill(&self, _slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for (row, _) in batch.rows_mut() {
            row.fill(u32::MAX);
        }
    }
}
