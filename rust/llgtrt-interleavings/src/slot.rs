//! A slot of the mask pool as far as its entry knows it: bytes of a lexer, and what an advance reports.

use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) lexer_bytes: u64,
    pub(crate) closed: bool,
    pub(crate) mask_time: Duration,
}

impl Slot {
    pub(crate) fn lexer_bytes(&self) -> u64 {
        self.lexer_bytes
    }

    /// Begins the lexer anew where it has more than `share` bytes.
    pub(crate) fn shrink_lexer(&mut self, share: u64) {
        self.lexer_bytes = self.lexer_bytes.min(share);
    }

    pub(crate) fn take_mask_time(&mut self) -> Duration {
        std::mem::take(&mut self.mask_time)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}
