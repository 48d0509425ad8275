//! What decides between passes of different shapes: see `schedule`.

use crate::schedule::Work;

/// What groups, shapes and copies cost, in tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    /// A further group of slots in a pass over answers.
    pub(crate) group: usize,
    /// The same in a pass over prompts, in tokens of prompts, which cost less.
    prompt_group: usize,
    /// A further group in all passes of an answer, in tokens of prompts.
    pub(crate) lasting_group: usize,
    /// Fewer known tokens of one slot are evaluated one by one.
    pub(crate) shortest_run: usize,
    /// Another shape of a pass than the one before had: other slots, or other numbers of tokens. 0: nothing.
    pub(crate) reshape: usize,
    /// That an idle slot between two others takes part in all passes of an answer, in tokens of prompts.
    pub(crate) bridge: usize,
    /// A copy of a slot, beside its cells.
    copy: usize,
    /// So many copied cells cost as much as one token.
    copied_cells: usize,
    /// A slot that holds more cells than the first is copied with so many as the second: see [`Self::with_window`].
    whole: Option<(usize, usize)>,
    /// So many tokens of a pass over answers take as long as one; fewer sequences than that may fill it with guesses.
    /// 1: what a guess costs is learned.
    free_tokens: usize,
    /// So many tokens that are taken back afterwards cost as much as one that is needed, in a pass that is one group.
    pub(crate) padding: usize,
    /// So many cells that a token attends to cost as much as the rest of it.
    attended_cells: f64,
}

impl Costs {
    /// A group costs an answer's pass one to two tokens where llama.cpp multiplies row by column, and five with weights
    /// rearranged for batches.
    pub(crate) const CPU: Self = Self {
        group: 2,
        prompt_group: 5,
        lasting_group: 256,
        shortest_run: 1,
        reshape: 0,
        bridge: 50,
        copy: 1,
        copied_cells: 64,
        whole: None,
        free_tokens: 1,
        padding: 1,
        attended_cells: f64::INFINITY,
    };

    /// The whole model on a GPU, which hardly notices some tokens more. A pass of the same shape as the one before takes
    /// the graph of its kernels from there; a new one has to be built, and launched kernel by kernel until it has come twice
    /// (H100, a model of 1B shape: 1 to 2 ms more, where 16 sequences take 2.4 ms, and 0.03 ms for a token of a prompt). A copy
    /// within the device is two per layer, and llama.cpp lays out its buffers anew after it; the cells themselves come on
    /// top ([`Self::with_slots_of`]).
    pub(crate) const GPU: Self = Self {
        group: 64,
        prompt_group: 64,
        lasting_group: 3200,
        shortest_run: 4,
        reshape: 64,
        bridge: 50,
        copy: 48,
        copied_cells: usize::MAX,
        whole: None,
        // Up to eight llama.cpp multiplies row by column.
        free_tokens: 8,
        padding: 1,
        attended_cells: f64::INFINITY,
    };

    /// Where slots have room for so many tokens: a GPU copies all of a slot, used or not.
    pub(crate) fn with_slots_of(self, tokens: usize) -> Self {
        if self.keeps_shape() { Self { copy: self.copy + tokens / 1500, ..self } } else { self }
    }

    /// Where some layers attend to a window of so many tokens, and slots have room for `tokens`: what the window has passed is copied
    /// with all cells of a slot or not at all. No window: 0.
    pub(crate) fn with_window(self, window: usize, tokens: usize) -> Self {
        Self { whole: (window > 0).then_some((window, tokens)), ..self }
    }

    /// Where guesses take part in passes: they are runs of any length, and whether they pay is known from what passes took.
    pub(crate) fn with_guesses(self) -> Self {
        Self { shortest_run: 1, ..self }
    }

    /// Where tokens that are not needed are left out of nearly all that is computed. What is left of them takes a thirtieth of the
    /// time (the demo model, eight sequences, AVX-512: 0.03 ms of 1.0). A group costs as much as reading the weights does there.
    pub(crate) fn without_padding(self) -> Self {
        Self { padding: 32, group: 8, prompt_group: 8, bridge: 4, ..self }
    }

    /// Where so many cells that a token attends to cost as much as the rest of it.
    pub(crate) fn with_attention_to(self, cells: f64) -> Self {
        Self { attended_cells: cells.max(1.0), ..self }
    }

    /// What a token behind so many cells costs, in tokens behind none.
    pub(crate) fn token_behind(self, cells: usize) -> f64 {
        1.0 + cells as f64 / self.attended_cells
    }

    /// So many idle slots between two others cost as much as a group.
    pub(crate) fn bridged(self) -> usize {
        self.group * self.padding
    }

    /// What tokens that are taken back cost, in tokens.
    pub(crate) fn of_padding(self, tokens: usize) -> f64 {
        tokens as f64 / self.padding as f64
    }

    /// Whether slots of any lengths can share a group at little cost.
    pub(crate) fn shares_groups(self) -> bool {
        self.padding > 1
    }

    /// A copy of a slot that holds so many cells.
    pub(crate) fn copy_of(self, cells: usize) -> usize {
        let copied = self.whole.filter(|&(window, _)| cells > window).map_or(cells, |(_, all)| all);
        self.copy + copied / self.copied_cells
    }

    /// Tokens of each of so many slots in a pass over answers with guesses, where these go by what is free; `None` elsewhere.
    pub(crate) fn guessing_width(self, slots: usize) -> Option<usize> {
        self.keeps_shape().then(|| (self.free_tokens / slots.max(1)).max(1))
    }

    /// Of a further group of slots.
    pub(crate) fn group_of(self, work: Work) -> usize {
        match work {
            Work::Prompts => self.prompt_group,
            Work::Answers | Work::Mixed => self.group,
        }
    }

    /// Whether answers are to go along in a pass that has `width` tokens of a prompt and so many of each of `slots` slots: what
    /// stands in for those that the others do not have costs less than a pass of their own, and `capacity` tokens hold all.
    pub(crate) fn mixes(self, slots: usize, width: usize, capacity: usize) -> bool {
        let padding = width.saturating_sub(1) * slots.saturating_sub(1);
        self.shares_groups() && padding <= self.bridged() && width * slots <= capacity
    }

    /// Whether passes are to keep their shape.
    pub(crate) fn keeps_shape(self) -> bool {
        self.reshape > 0
    }

    /// How many times its tokens a ragged end has to be worth: it comes and goes, and the shape with it.
    pub(crate) fn ragged(self) -> usize {
        if self.keeps_shape() { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_costs_what_it_attends_to() {
        let costs = Costs::CPU.with_attention_to(1500.0);
        assert!((costs.token_behind(0) - 1.0).abs() < 1e-9);
        assert!((costs.token_behind(3000) - 3.0).abs() < 1e-9);
        assert!((Costs::GPU.token_behind(3000) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_window_has_passed_is_copied_with_all_of_a_slot() {
        let costs = Costs::CPU.with_window(128, 4096);
        assert_eq!([64, 128, 129, 4000].map(|cells| costs.copy_of(cells)), [2, 3, 65, 65]);
        assert_eq!(Costs::CPU.with_window(0, 4096).copy_of(640), 11);
    }
}
