//! Drafts: guesses at a sequence's next tokens, evaluated in the same forward pass as the last known one.
//!
//! Every token is sampled from its own logits, under its own mask and by the sequence's own generator; a draft only
//! decides whether those logits are known already. What was guessed wrong leaves the cache again. Drafts are what
//! followed the same tokens earlier, in the prompt or in the answer, at the place where most tokens before agree: an
//! answer that quotes its prompt, as an extraction does, is mostly guessed right. Where nothing of the kind is found, a small
//! model may guess.
//!
//! Their length follows from what was measured: how many guesses came true behind as many tokens that agree with the
//! earlier place, or of as much confidence, and what a token more costs a pass. Plain data, owned by the engine.

use std::collections::HashMap;

use llgtrt_core::TokenId;

/// Longest draft. With the token before it, one tile of the matrix kernels for batches.
pub const MAX_DRAFT: usize = 15;

/// Lengths of the runs of tokens that are looked up, the more telling first. A value that is copied into quotes begins
/// otherwise than in the text, so often one token is all that is known of its place.
const RUNS: [usize; 2] = [3, 1];

/// The latest places behind a run that are compared, and the tokens before each of them.
const PLACES: usize = 16;
const COMPARED: usize = 32;

/// From so many tokens on, by class, the text before the next token agrees with that of the earlier place.
const AGREEING: [usize; 8] = [1, 2, 3, 4, 6, 9, 14, 24];

/// From such a probability on, by class, a small model holds its guess to be right.
const CONFIDENT: [f32; 6] = [0.0, 0.3, 0.5, 0.7, 0.85, 0.95];

/// Classes of guesses: those from earlier places, then those of a small model.
const CLASSES: usize = AGREEING.len() + CONFIDENT.len();

/// The place behind the classes: a small model's next guess, before it is asked.
const NEXT_OF_MODEL: usize = CLASSES;

/// Share of guesses that come true in each class before anything was guessed, and where it goes back to while nothing
/// is.
const PRIOR: [f32; CLASSES + 1] =
    [0.45, 0.55, 0.65, 0.7, 0.8, 0.85, 0.87, 0.9, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 0.7];

/// Weight of the latest guess in the share of guesses that came true.
const LATEST: f32 = 0.15;

/// The same in what is known of all sequences.
const LATEST_OF_ALL: f32 = 0.02;

/// How fast it goes back, for each token without a draft. A sequence whose guesses fail guesses again after some
/// hundreds of tokens, which costs it less than a hundredth.
const FORGETTING: f32 = 0.002;

/// One sequence's drafts.
#[derive(Debug, Default)]
pub struct Drafter {
    /// For each length of `RUNS`.
    places: [Places; RUNS.len()],
    /// Tokens that have been looked at.
    indexed: usize,
    came_true: Acceptance,
    /// The classes of the present draft's tokens.
    classes: Vec<usize>,
    /// That all of the present draft comes true.
    probability: f32,
}

/// Where runs of one length occurred.
#[derive(Debug, Default)]
struct Places {
    /// The position behind a run, where it occurred last.
    latest: HashMap<Run, u32>,
    /// For each position the one behind the same run before; its own where there is none.
    before: Vec<u32>,
}

/// The tokens of a run, and others behind them that are none.
type Run = [TokenId; RUNS[0]];

impl Places {
    /// Notes that `run` ends before position `end`. What was noted of this position and those behind it is of tokens that were
    /// withdrawn since.
    fn note(&mut self, run: Option<Run>, end: u32) {
        let before = run.and_then(|run| self.latest.insert(run, end));
        self.before.truncate(end as usize);
        self.before.resize(end as usize, end);
        self.before.push(before.unwrap_or(end));
    }

    /// The positions behind a run, the latest first. Some may be of tokens that were withdrawn.
    fn behind(&self, run: Run) -> impl Iterator<Item = usize> {
        let before = |&place: &u32| self.before.get(place as usize).copied().filter(|&before| before < place);
        std::iter::successors(self.latest.get(&run).copied(), before).map(|place| place as usize)
    }
}

/// Share of guesses that came true, by class.
#[derive(Debug, Clone)]
pub struct Acceptance([f32; CLASSES + 1]);

impl Default for Acceptance {
    fn default() -> Self {
        Self(PRIOR)
    }
}

/// The probabilities from which on guesses are worth what they cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Worth {
    /// One that is there: a token more in a pass.
    pub there: f32,
    /// One that a small model has to be asked for.
    pub asked: f32,
}

impl Worth {
    /// Where guesses cost so many times as much.
    pub(crate) fn times(self, price: f32) -> Self {
        Self { there: self.there * price, asked: self.asked * price }
    }
}

impl Acceptance {
    fn learn(&mut self, class: usize, share: f32, weight: f32) {
        self.0[class] += weight * (share - self.0[class]);
    }

    fn forget(&mut self, class: usize) {
        self.learn(class, PRIOR[class], FORGETTING);
    }

    /// Takes note that a small model was not asked.
    pub fn without_model(&mut self) {
        self.forget(NEXT_OF_MODEL);
    }
}

/// The class of a guess behind so many tokens that agree, at least 1.
fn class(agreeing: usize) -> usize {
    AGREEING.partition_point(|&least| least <= agreeing).saturating_sub(1)
}

/// The class of a small model's guess.
fn class_of_model(confidence: f32) -> usize {
    AGREEING.len() + CONFIDENT.partition_point(|&least| least <= confidence).saturating_sub(1)
}

impl Drafter {
    /// Expects a small model to be right as often as `usual` says.
    pub fn expect(&mut self, usual: &Acceptance) {
        self.came_true = usual.clone();
    }

    /// Forgets the present draft.
    pub fn clear(&mut self, draft: &mut Vec<TokenId>) {
        draft.clear();
        self.classes.clear();
        self.probability = 1.0;
    }

    /// Writes to `draft` what probably follows the `len` tokens that `token` gives by position: at most `most`
    /// tokens, each of which comes true with a probability of at least `worth`, as far as is known.
    pub fn propose(
        &mut self,
        len: usize,
        token: impl Fn(usize) -> TokenId,
        most: usize,
        worth: f32,
        draft: &mut Vec<TokenId>,
    ) {
        self.clear(draft);
        self.index(len, &token);
        let agreeing = |behind: usize| {
            let longest = COMPARED.min(behind);
            (1..=longest).take_while(|&back| token(behind - back) == token(len - back)).count()
        };
        // The first of those that agree most: the latest. None agrees where tokens were withdrawn and others took their place.
        let best = |places: &Places, run| {
            let places = places.behind(run).take(PLACES).filter(|&behind| behind < len);
            let places =
                places.map(|behind| (agreeing(behind), behind)).filter(|&(agreeing, _)| agreeing > 0);
            places.reduce(|best, other| if other.0 > best.0 { other } else { best })
        };
        let found = RUNS
            .iter()
            .zip(&self.places)
            .find_map(|(&length, places)| best(places, run_before(len, length, &token)?));
        let Some((agreeing, behind)) = found else { return };
        // A draft that reaches the end goes on with itself: the text repeats.
        while draft.len() < most.min(MAX_DRAFT) && self.is_worth(class(agreeing + draft.len()), worth) {
            let position = behind + draft.len();
            draft.push(if position < len { token(position) } else { draft[position - len] });
        }
        if draft.is_empty() {
            self.came_true.forget(class(agreeing));
        }
    }

    /// Whether asking a small model for the next guess pays. `draft` is what has been guessed so far.
    pub fn wants_more(&self, worth: Worth, draft: &[TokenId]) -> bool {
        draft.len() < MAX_DRAFT && self.probability * self.came_true.0[NEXT_OF_MODEL] >= worth.asked
    }

    /// The probability of each guess of the present draft that it and those before it come true.
    pub fn chances(&self) -> impl Iterator<Item = f32> {
        self.classes.iter().scan(1.0, |probability, &class| {
            *probability *= self.came_true.0[class];
            Some(*probability)
        })
    }

    /// How many tokens of the present draft can be expected to come true.
    pub fn expected(&self) -> f32 {
        self.chances().sum()
    }

    /// What asking a small model for a draft can be expected to win, in tokens beyond those that its time is worth.
    pub fn gain_of_model(&self, worth: Worth) -> f32 {
        let next = self.came_true.0[NEXT_OF_MODEL];
        let each = std::iter::successors(Some(next), |probability| Some(probability * next));
        each.take(MAX_DRAFT)
            .take_while(|&probability| probability >= worth.asked)
            .map(|p| p - worth.asked)
            .sum()
    }

    /// The same of the present draft, which is there.
    pub fn gain_of_draft(&self, worth: Worth) -> f32 {
        self.expected() - self.classes.len() as f32 * worth.there
    }

    /// Takes note that a small model was not asked.
    pub fn without_model(&mut self) {
        self.came_true.without_model();
    }

    /// Adds a small model's guess, which it gives the probability `confidence`, unless all of the draft comes true with a
    /// probability of less than `worth`, as far as is known. Answers whether it did. `usual` learns what can be expected
    /// of the first one.
    pub fn push(
        &mut self,
        (token, confidence): (TokenId, f32),
        worth: f32,
        usual: &mut Acceptance,
        draft: &mut Vec<TokenId>,
    ) -> bool {
        let class = class_of_model(confidence);
        if draft.is_empty() {
            let share = self.came_true.0[class];
            self.came_true.learn(NEXT_OF_MODEL, share, LATEST);
            usual.learn(NEXT_OF_MODEL, share, LATEST_OF_ALL);
        }
        let pushed = draft.len() < MAX_DRAFT && self.is_worth(class, worth);
        if pushed {
            draft.push(token);
        } else if draft.is_empty() {
            self.came_true.forget(class);
        }
        pushed
    }

    /// Makes a guess of a class part of the present draft, if it is worth that.
    fn is_worth(&mut self, class: usize, worth: f32) -> bool {
        let probability = self.probability * self.came_true.0[class];
        if probability >= worth {
            self.probability = probability;
            self.classes.push(class);
        }
        probability >= worth
    }

    /// Whether the present draft is a small model's.
    pub fn is_of_model(&self) -> bool {
        self.classes.first().is_some_and(|&class| class >= AGREEING.len())
    }

    /// Learns how many tokens of a draft of `drafted` came true, and so does `usual`.
    pub fn learn(&mut self, drafted: usize, accepted: usize, mut usual: Option<&mut Acceptance>) {
        for (guess, &class) in self.classes.iter().take(drafted.min(accepted + 1)).enumerate() {
            let share = f32::from(u8::from(guess < accepted));
            self.came_true.learn(class, share, LATEST);
            if let Some(usual) = &mut usual {
                usual.learn(class, share, LATEST_OF_ALL);
            }
        }
    }

    /// Notes the runs that end before the last token; the last run itself must find an earlier one.
    fn index(&mut self, len: usize, token: &impl Fn(usize) -> TokenId) {
        for end in self.indexed.min(len)..len {
            for (places, &length) in self.places.iter_mut().zip(&RUNS) {
                places.note(run_before(end, length, token), end as u32);
            }
        }
        self.indexed = len;
    }
}

/// The `length` tokens before position `end`, if there are so many.
fn run_before(end: usize, length: usize, token: &impl Fn(usize) -> TokenId) -> Option<Run> {
    let start = end.checked_sub(length)?;
    let mut run = [TokenId::MAX; RUNS[0]];
    for (offset, slot) in run[..length].iter_mut().enumerate() {
        *slot = token(start + offset);
    }
    Some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn propose(drafter: &mut Drafter, text: &[TokenId], most: usize, worth: f32) -> Vec<TokenId> {
        let mut draft = Vec::new();
        drafter.propose(text.len(), |position| text[position], most, worth, &mut draft);
        draft
    }

    #[test]
    fn what_followed_the_same_tokens_is_guessed() {
        let mut drafter = Drafter::default();
        let mut text = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2];
        assert_eq!(propose(&mut drafter, &text, 4, 0.1), [3, 4, 5, 6]);
        text.extend([3, 9]);
        assert_eq!(propose(&mut drafter, &text, 4, 0.1), [1, 2, 3, 9], "3, 9 never occurred, 9 did");
        text.extend([1]);
        assert_eq!(propose(&mut drafter, &text, 4, 0.1), [2, 3, 9, 1], "9, 1 did, and the text goes on");
        text.extend([10]);
        assert!(propose(&mut drafter, &text, 4, 0.1).is_empty(), "10 never occurred");
    }

    #[test]
    fn the_longer_run_decides_and_the_latest_place() {
        let text = [1, 2, 3, 4, 50, 9, 9, 3, 4, 60, 8, 8, 3, 4, 70, 7, 1, 2, 3, 4];
        assert_eq!(propose(&mut Drafter::default(), &text, 1, 0.1), [50]);
        assert_eq!(propose(&mut Drafter::default(), &text[4..], 1, 0.1), [70]);
    }

    #[test]
    fn the_place_where_most_tokens_agree_decides() {
        let text = [1, 2, 3, 4, 5, 50, 9, 9, 7, 3, 4, 5, 60, 8, 2, 3, 4, 5];
        assert_eq!(propose(&mut Drafter::default(), &text, 1, 0.1), [50], "four agree, later only three");
        let mut many = text.to_vec();
        for other in 0..PLACES as TokenId {
            many.extend([3, 4, 5, 100 + other]);
        }
        many.extend([2, 3, 4, 5]);
        let guess = propose(&mut Drafter::default(), &many, 1, 0.1);
        assert_eq!(guess, [100 + PLACES as TokenId - 1], "the latest of those that are compared");
    }

    #[test]
    fn a_repetition_goes_on() {
        let text = [5, 1, 2, 1, 2];
        assert_eq!(propose(&mut Drafter::default(), &text, 7, 0.01), [1, 2, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn guesses_that_fail_become_fewer_and_are_tried_again_later() {
        let mut drafter = Drafter::default();
        let text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2];
        let first = propose(&mut drafter, &text, 15, 0.2).len();
        assert!((3..8).contains(&first), "{first}");
        for _ in 0..20 {
            propose(&mut drafter, &text, 3, 0.0);
            drafter.learn(3, 0, None);
        }
        assert!(propose(&mut drafter, &text, 15, 0.2).is_empty());
        let pauses = (0..10_000).take_while(|_| propose(&mut drafter, &text, 15, 0.2).is_empty()).count();
        assert!((100..1000).contains(&pauses), "{pauses}");
        for _ in 0..20 {
            propose(&mut drafter, &text, 3, 0.0);
            drafter.learn(3, 3, None);
        }
        assert!(propose(&mut drafter, &text, 15, 0.2).len() > 6);
    }

    #[test]
    fn the_more_tokens_agree_the_longer_the_draft() {
        let mut drafter = Drafter::default();
        let text: Vec<TokenId> = (0..20).chain([99, 3]).collect();
        for _ in 0..20 {
            assert!(propose(&mut drafter, &text, 15, 0.0).len() > 1);
            drafter.learn(2, 0, None);
        }
        assert!(propose(&mut drafter, &text, 15, 0.2).is_empty(), "one token that agrees has told nothing");
        let copied: Vec<TokenId> = (0..20).chain([99, 3, 4, 5, 6, 7, 8]).collect();
        assert!(propose(&mut drafter, &copied, 15, 0.2).len() > 6, "six of them may");
    }

    #[test]
    fn withdrawn_tokens_do_no_harm() {
        let mut drafter = Drafter::default();
        let long = [1, 2, 3, 4, 1, 2, 7, 1, 2];
        assert_eq!(propose(&mut drafter, &long, 2, 0.1), [7, 1]);
        // Five of them are withdrawn: what is known of their places is a guess like any other.
        let draft = propose(&mut drafter, &[1, 2, 3, 1, 2], 3, 0.1);
        assert!(draft.len() <= 3);
    }

    #[test]
    fn a_model_guesses_as_long_as_its_guesses_are_worth_it() {
        let mut drafter = Drafter::default();
        let guess = |drafter: &mut Drafter, confidence: &[f32], worth: f32| {
            let mut draft = vec![7];
            drafter.clear(&mut draft);
            let all = confidence
                .iter()
                .take_while(|&&one| drafter.push((3, one), worth, &mut Acceptance::default(), &mut draft));
            assert_eq!(all.count(), draft.len());
            draft.len()
        };
        assert_eq!(guess(&mut drafter, &[0.96, 0.96, 0.6, 0.2], 0.3), 3);
        assert_eq!(guess(&mut drafter, &[1.0; 20], 0.0), MAX_DRAFT);
        assert_eq!(guess(&mut drafter, &[0.1, 1.0], 0.3), 0);
        for _ in 0..30 {
            assert!(guess(&mut drafter, &[0.96, 0.6], 0.0) == 2);
            drafter.learn(2, 1, None);
        }
        assert_eq!(guess(&mut drafter, &[0.96, 0.96, 0.96], 0.8), 3, "it is right where it is sure");
        assert_eq!(guess(&mut drafter, &[0.6], 0.1), 0, "and wrong where it is not");
    }

    #[test]
    fn what_a_draft_can_be_expected_to_win() {
        let mut drafter = Drafter::default();
        let near = |a: f32, b: f32| (a - b).abs() < 1e-5;
        let worth = Worth { there: 0.2, asked: 0.4 };
        assert_eq!(propose(&mut drafter, &[1, 2, 1], 2, 0.2).len(), 2);
        assert!(near(drafter.expected(), 0.45 + 0.45 * 0.55), "{}", drafter.expected());
        assert!(near(drafter.gain_of_draft(worth), 0.45 + 0.45 * 0.55 - 0.4));
        assert!(near(drafter.gain_of_model(worth), 0.3 + 0.09), "0.7 and 0.49 are worth it, 0.343 is not");
        let mut draft = Vec::new();
        drafter.clear(&mut draft);
        assert!(near(drafter.expected(), 0.0) && near(drafter.gain_of_draft(worth), 0.0));
        assert!(drafter.push((3, 0.6), worth.there, &mut Acceptance::default(), &mut draft));
        assert!(!drafter.wants_more(worth, &draft), "0.55 times some 0.7 is not worth asking for");
        assert!(
            drafter.push((3, 0.6), worth.there, &mut Acceptance::default(), &mut draft),
            "were it there, it would be"
        );
    }

    #[test]
    fn a_new_sequence_expects_of_a_model_what_the_others_saw() {
        let (mut usual, mut draft) = (Acceptance::default(), Vec::new());
        for _ in 0..20 {
            let mut drafter = Drafter::default();
            drafter.expect(&usual);
            for _ in 0..20 {
                drafter.clear(&mut draft);
                drafter.push((3, 0.6), 0.0, &mut usual, &mut draft);
                drafter.learn(1, 0, Some(&mut usual));
            }
        }
        let mut drafter = Drafter::default();
        drafter.expect(&usual);
        drafter.clear(&mut draft);
        assert!(!drafter.wants_more(Worth { there: 0.1, asked: 0.1 }, &draft));
        assert!(!drafter.push((3, 0.6), 0.1, &mut usual, &mut draft));
        assert!(drafter.push((3, 0.8), 0.1, &mut usual, &mut draft), "nothing was seen of the other classes");
    }

    #[test]
    fn a_model_that_guesses_badly_is_asked_again_later() {
        let mut drafter = Drafter::default();
        let mut draft = Vec::new();
        for _ in 0..40 {
            drafter.clear(&mut draft);
            drafter.push((3, 0.9), 0.0, &mut Acceptance::default(), &mut draft);
            drafter.learn(1, 0, None);
        }
        let worth = |asked| Worth { there: 0.1, asked };
        assert_eq!((drafter.wants_more(worth(0.1), &[]), drafter.gain_of_model(worth(0.1))), (false, 0.0));
        let pauses = (0..10_000).take_while(|_| {
            drafter.without_model();
            drafter.gain_of_model(worth(0.4)) == 0.0
        });
        let pauses = pauses.count();
        assert!((100..1000).contains(&pauses), "{pauses}");
    }
}
