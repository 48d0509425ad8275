//! The sampler against a naive reference that follows the definitions word by word.

use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::row::{BLOCK, weight};
use crate::{ErrorKind, Sampler, SamplingParams, TokenId};

const EOS: TokenId = 1;
const STOP: TokenId = 2;

/// What a sequence has seen before the row.
#[derive(Debug, Clone)]
struct Case {
    params: SamplingParams,
    prompt: Vec<TokenId>,
    generated: Vec<TokenId>,
    logits: Vec<f32>,
    mask: Option<Vec<u32>>,
}

impl Case {
    fn sampler(&self) -> Sampler {
        let mut sampler = Sampler::new(self.params.clone(), &self.prompt, &[EOS], &[STOP]);
        for &token in &self.generated {
            sampler.accept(token);
        }
        sampler
    }

    fn allowed(&self, token: usize) -> bool {
        self.mask
            .as_ref()
            .is_none_or(|mask| mask.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1))
    }

    /// Adjusted logits; minus infinity is excluded.
    fn adjusted(&self) -> Vec<f32> {
        let p = &self.params;
        let mut row = self.logits.clone();
        for &(token, bias) in &p.logit_bias {
            if let Some(logit) = row.get_mut(token as usize) {
                *logit += bias;
            }
        }
        for (token, logit) in row.iter_mut().enumerate() {
            let count = self.generated.iter().filter(|t| **t == token as TokenId).count();
            if count > 0 || self.prompt.contains(&(token as TokenId)) {
                *logit =
                    if *logit > 0.0 { *logit / p.repetition_penalty } else { *logit * p.repetition_penalty };
            }
            *logit -= p.frequency_penalty * count as f32;
            if count > 0 {
                *logit -= p.presence_penalty;
            }
        }
        for (token, logit) in row.iter_mut().enumerate() {
            if !self.allowed(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        let mut banned = row.clone();
        let early = (self.generated.len() as u32) < p.min_tokens;
        if early || p.ignore_eos {
            banned[EOS as usize] = f32::NEG_INFINITY;
        }
        if early {
            banned[STOP as usize] = f32::NEG_INFINITY;
        }
        if banned.iter().any(|l| *l > f32::NEG_INFINITY) { banned } else { row }
    }

    /// The probability of each token.
    fn distribution(&self) -> Vec<f64> {
        let p = &self.params;
        let row = self.adjusted();
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if p.temperature == 0.0 {
            let best = row.iter().position(|l| *l == max).unwrap();
            return (0..row.len()).map(|t| if t == best { 1.0 } else { 0.0 }).collect();
        }
        let mut weights: Vec<f64> =
            row.iter().map(|l| (f64::from(l - max) / f64::from(p.temperature)).exp()).collect();
        for weight in &mut weights {
            if *weight < f64::from(p.min_p) {
                *weight = 0.0;
            }
        }
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
        if p.top_k > 0 && (p.top_k as usize) < row.len() {
            let kth = row[order[p.top_k as usize - 1]];
            for (token, weight) in weights.iter_mut().enumerate() {
                if row[token] < kth {
                    *weight = 0.0;
                }
            }
        }
        let total: f64 = weights.iter().sum();
        let mut before = 0.0;
        for token in order {
            let weight = weights[token];
            if before >= f64::from(p.top_p) * total && p.top_p < 1.0 {
                weights[token] = 0.0;
            }
            before += weight;
        }
        let total: f64 = weights.iter().sum();
        weights.iter().map(|w| w / total).collect()
    }

    /// The first number that a sampler with this seed draws.
    fn unit(&self) -> f64 {
        (Xoshiro256PlusPlus::seed_from_u64(self.params.seed).next_u64() >> 11) as f64 / 2_f64.powi(53)
    }
}

fn params() -> impl Strategy<Value = SamplingParams> {
    (
        (
            prop_oneof![Just(0.0_f32), Just(1.0), 0.2_f32..3.0],
            prop_oneof![Just(0_u32), 1_u32..80, 250_u32..400],
        ),
        (prop_oneof![Just(1.0_f32), 0.05_f32..0.999], prop_oneof![Just(0.0_f32), 0.001_f32..0.9]),
        (prop_oneof![Just(0.0_f32), -2.0_f32..2.0], prop_oneof![Just(0.0_f32), -2.0_f32..2.0]),
        prop_oneof![Just(1.0_f32), 0.5_f32..2.0],
        proptest::collection::btree_map(0_u32..700, -8.0_f32..8.0, 0..4),
        (any::<u64>(), 0_u32..6, any::<bool>()),
    )
        .prop_map(
            |((temperature, top_k), (top_p, min_p), (presence, frequency), repetition, bias, last)| {
                SamplingParams {
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    presence_penalty: presence,
                    frequency_penalty: frequency,
                    repetition_penalty: repetition,
                    logit_bias: bias.into_iter().collect(),
                    seed: last.0,
                    min_tokens: last.1,
                    ignore_eos: last.2,
                    ..SamplingParams::default()
                }
            },
        )
}

/// Rows of one or several blocks, not always whole ones, with ties, infinities and tall peaks.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let any_logit = prop_oneof![
        6 => -9.0_f32..9.0,
        2 => (-8_i32..8).prop_map(|l| l as f32),
        1 => Just(f32::NEG_INFINITY),
        1 => 10.0_f32..25.0,
    ];
    prop_oneof![
        proptest::collection::vec(any_logit.clone(), 4..60),
        proptest::collection::vec(any_logit, BLOCK - 100..2 * BLOCK + 200),
    ]
}

fn mask(len: usize) -> impl Strategy<Value = Option<Vec<u32>>> {
    let words = len.div_ceil(32);
    let dense = proptest::collection::vec(prop_oneof![Just(0_u32), Just(u32::MAX), any::<u32>()], words);
    let sparse = proptest::collection::btree_set(0..len, 1..8).prop_map(move |tokens| {
        let mut mask = vec![0_u32; words];
        for token in tokens {
            mask[token / 32] |= 1 << (token % 32);
        }
        mask
    });
    // Whole blocks of the row are left out, left as they are, or mixed.
    let kinds = prop_oneof![Just(0_u32), Just(u32::MAX), any::<u32>()];
    let blocks = proptest::collection::vec(kinds, words.div_ceil(BLOCK / 32))
        .prop_map(move |blocks| (0..words).map(|word| blocks[word / (BLOCK / 32)]).collect());
    prop_oneof![Just(None), dense.prop_map(Some), sparse.prop_map(Some), Strategy::prop_map(blocks, Some)]
}

prop_compose! {
    fn cases()(logits in logits())(
        mask in mask(logits.len()),
        params in params(),
        prompt in proptest::collection::vec(0_u32..700, 0..12),
        generated in proptest::collection::vec(0_u32..700, 0..12),
        logits in Just(logits),
    ) -> Case {
        Case { params, prompt, generated, logits, mask }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    /// The token is where the seed's first number falls in the cumulative distribution.
    #[test]
    fn draws_from_the_defined_distribution(case in cases()) {
        let mut sampler = case.sampler();
        let result = sampler.sample(&case.logits, case.mask.as_deref());
        if case.adjusted().iter().all(|l| *l == f32::NEG_INFINITY) {
            prop_assert!(result.is_err());
            return Ok(());
        }
        let token = result.unwrap().token as usize;
        let distribution = case.distribution();
        prop_assert!(case.allowed(token), "{token} is masked out");
        prop_assert!(distribution[token] > 0.0, "{token} is excluded");
        if case.params.temperature > 0.0 {
            let before: f64 = distribution[..token].iter().sum();
            let unit = case.unit();
            prop_assert!(before <= unit + 1e-5 && unit <= before + distribution[token] + 1e-5);
        }
    }

    #[test]
    fn logprobs_are_of_the_raw_row(case in cases(), count in 0_u32..6) {
        let mut case = case;
        case.params.logprobs = Some(count);
        let Ok(sampled) = case.sampler().sample(&case.logits, case.mask.as_deref()) else { return Ok(()) };
        let logprobs = sampled.logprobs.unwrap();
        let sum: f64 = case.logits.iter().map(|l| f64::from(*l).exp()).sum();
        let exact = |token: usize| f64::from(case.logits[token]) - sum.ln();
        prop_assert!((f64::from(logprobs.logprob) - exact(sampled.token as usize)).abs() < 1e-4);
        let mut order: Vec<usize> = (0..case.logits.len()).filter(|t| case.logits[*t].is_finite()).collect();
        order.sort_by(|a, b| case.logits[*b].total_cmp(&case.logits[*a]).then(a.cmp(b)));
        order.truncate(count as usize);
        prop_assert_eq!(logprobs.top.iter().map(|t| t.0 as usize).collect::<Vec<_>>(), order);
        for (token, logprob) in logprobs.top {
            prop_assert!((f64::from(logprob) - exact(token as usize)).abs() < 1e-4);
        }
    }

    #[test]
    fn the_removed_mass_is_of_the_raw_row(case in cases(), logprobs: bool) {
        let mut case = case;
        case.params.removed_mass = true;
        case.params.logprobs = logprobs.then_some(1);
        let Ok(sampled) = case.sampler().sample(&case.logits, case.mask.as_deref()) else { return Ok(()) };
        let mass = |logit: &f32| f64::from(*logit).exp();
        let all: f64 = case.logits.iter().map(mass).sum();
        let excluded = case.logits.iter().enumerate().filter(|(token, _)| !case.allowed(*token));
        let removed = excluded.map(|(_, logit)| mass(logit)).sum::<f64>() / all;
        let reported = f64::from(sampled.removed_mass.unwrap());
        prop_assert!((0.0..=1.0).contains(&reported) && (reported - removed).abs() < 1e-5, "{} {}", reported, removed);
        // Measuring changes nothing.
        case.params.removed_mass = false;
        let plain = case.sampler().sample(&case.logits, case.mask.as_deref()).unwrap();
        prop_assert_eq!((plain.token, plain.removed_mass), (sampled.token, None));
    }

    #[test]
    fn a_weight_is_exact_enough(x in -126.0_f32..=0.0) {
        let exact = f64::from(x).exp2();
        prop_assert!((f64::from(weight(x, 0.0, 1.0)) - exact).abs() <= exact * 2e-7);
    }

    /// What a mask excludes has to weigh nothing, not little.
    #[test]
    fn what_is_far_below_weighs_nothing(x in f32::MIN..=-127.0, scale in 1.0_f32..1e6) {
        prop_assert_eq!(weight(x, 0.0, scale).to_bits(), 0);
        prop_assert_eq!(weight(f32::NEG_INFINITY, x, scale).to_bits(), 0);
        prop_assert!(weight(-126.0 - 1.0 / (1.0 - x), 0.0, 1.0) <= f32::MIN_POSITIVE);
    }
}

/// With every seed of a few the token is where the definition has it.
fn check_draws(params: &SamplingParams, logits: &[f32], mask: Option<&[u32]>) {
    for seed in 0..8 {
        let params = SamplingParams { seed, ..params.clone() };
        let (logits, mask) = (logits.to_vec(), mask.map(<[u32]>::to_vec));
        let case = Case { params, prompt: Vec::new(), generated: Vec::new(), logits, mask };
        let sampled = case.sampler().sample(&case.logits, case.mask.as_deref());
        let token = sampled.unwrap().token as usize;
        let (distribution, unit) = (case.distribution(), case.unit());
        let before: f64 = distribution[..token].iter().sum();
        assert!(distribution[token] > 0.0, "{:?}", case.params);
        assert!(before <= unit + 1e-5 && unit <= before + distribution[token] + 1e-5, "{:?}", case.params);
    }
}

#[test]
fn flat_rows_follow_the_definition() {
    let logits: Vec<f32> =
        (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 / 700.0).collect();
    let flat = SamplingParams { temperature: 2.0, ..SamplingParams::default() };
    let cases = [
        SamplingParams { top_p: 0.5, ..flat.clone() },
        SamplingParams { top_p: 0.999, ..flat.clone() },
        SamplingParams { min_p: 0.1, ..flat.clone() },
        SamplingParams { min_p: 0.1, top_p: 0.97, ..flat.clone() },
        SamplingParams { top_k: 9000, ..flat.clone() },
        SamplingParams { top_k: 9000, top_p: 0.8, ..flat.clone() },
        SamplingParams { top_k: 9000, min_p: 0.5, top_p: 0.8, ..flat.clone() },
        SamplingParams { temperature: 0.5, top_p: 0.999, ..flat.clone() },
        SamplingParams { temperature: 1e4, top_p: 0.9, ..flat },
    ];
    for params in &cases {
        for mask in [None, Some(&vec![0x7f7f_7f7f; 625]), Some(&vec![u32::MAX; 400])] {
            check_draws(params, &logits, mask.map(Vec::as_slice));
        }
    }
}

/// A quarter of the tokens has weight 1, the others have so little each that the nucleus needs only a few of them.
#[test]
fn light_tokens_that_the_nucleus_needs_stay() {
    let (heavy, light) = (5_000, 15_000);
    let logits: Vec<f32> = (0..heavy + light).map(|i| if i % 4 == 0 { 0.0 } else { -2.0 }).collect();
    let lights = f64::from(light) * (-2_f64).exp();
    for kept in [0.01, 0.1, 0.9] {
        let top_p = (f64::from(heavy) + kept * lights) / (f64::from(heavy) + lights);
        check_draws(&SamplingParams { top_p: top_p as f32, ..SamplingParams::default() }, &logits, None);
    }
}

/// Beside the largest logit nothing weighs anything, until it may not come.
#[test]
fn what_weighs_nothing_beside_a_banned_token_may_come() {
    let mut row = vec![0.0; 3 * BLOCK];
    row[EOS as usize] = 50.0;
    let params = SamplingParams { temperature: 0.1, ignore_eos: true, ..SamplingParams::default() };
    let drawn: Vec<TokenId> =
        (0..30).map(|seed| sample(SamplingParams { seed, ..params.clone() }, &row, None).unwrap()).collect();
    for block in 0..3 {
        assert!(drawn.iter().any(|token| *token as usize / BLOCK == block), "{drawn:?}");
    }
}

fn sample(params: SamplingParams, logits: &[f32], mask: Option<&[u32]>) -> crate::Result<TokenId> {
    Sampler::new(params, &[], &[EOS], &[STOP]).sample(logits, mask).map(|s| s.token)
}

fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..SamplingParams::default() }
}

#[test]
fn greedy_takes_the_lowest_id_among_equals() {
    let mut row = vec![0.0; 1000];
    row[300] = 5.0;
    row[299] = 5.0;
    row[900] = 5.0;
    assert_eq!(sample(greedy(), &row, None).unwrap(), 299);
    let mut mask = vec![0_u32; 32];
    mask[900 / 32] |= 1 << (900 % 32);
    mask[0] = 1;
    assert_eq!(sample(greedy(), &row, Some(&mask)).unwrap(), 900);
}

#[test]
fn broken_rows_are_errors() {
    for bad in [f32::NAN, f32::INFINITY] {
        for position in [0, 17, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK] {
            let mut row = vec![0.0; 2 * BLOCK + 1];
            row[position] = bad;
            for params in [greedy(), SamplingParams::default()] {
                assert_eq!(sample(params, &row, None).unwrap_err().kind, ErrorKind::NotFinite);
            }
        }
    }
    let lost = vec![f32::NEG_INFINITY; 100];
    assert_eq!(sample(greedy(), &lost, None).unwrap_err().kind, ErrorKind::NotFinite);
    assert_eq!(sample(greedy(), &[], None).unwrap_err().kind, ErrorKind::NotFinite);
    assert_eq!(sample(greedy(), &[1.0; 100], Some(&[0; 4])).unwrap_err().kind, ErrorKind::Grammar);
    assert_eq!(sample(greedy(), &[1.0; 100], Some(&[])).unwrap_err().kind, ErrorKind::Grammar);
}

#[test]
fn extreme_parameters_are_not_taken_for_a_broken_model() {
    let params = SamplingParams {
        logit_bias: vec![(3, f32::MAX), (4, f32::NEG_INFINITY), (999, 1.0)],
        repetition_penalty: f32::MIN_POSITIVE,
        temperature: 1e-4,
        ..SamplingParams::default()
    };
    let mut sampler = Sampler::new(params, &[3, 5], &[EOS], &[]);
    assert_eq!(sampler.sample(&[1.0; 40], None).unwrap().token, 3);
}

#[test]
fn a_ban_that_leaves_nothing_is_dropped() {
    let params = SamplingParams { min_tokens: 5, ignore_eos: true, ..greedy() };
    let only_ends = [1 << EOS | 1 << STOP];
    let row = [0.0, 1.0, 2.0, 0.0];
    assert_eq!(sample(params.clone(), &row, Some(&only_ends)).unwrap(), STOP);
    assert_eq!(sample(params, &row, None).unwrap(), 0);
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let row: Vec<f32> = (0..3000).map(|i| ((i * 7919) % 101) as f32 / 20.0).collect();
    let run = |seed| {
        let params = SamplingParams { seed, top_p: 0.95, ..SamplingParams::default() };
        let mut sampler = Sampler::new(params, &[], &[EOS], &[]);
        (0..20).map(|_| sampler.sample(&row, None).unwrap().token).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    // Written down once: the same on every machine.
    assert_eq!(run(5)[..4], PINNED);
}

const PINNED: [TokenId; 4] = [872, 1835, 293, 177];

#[test]
fn frequencies_follow_the_softmax() {
    let row: Vec<f32> = (0..8).map(|i| (i as f32 * 0.5).sin() * 2.0).collect();
    let mut sampler = Sampler::new(SamplingParams { seed: 11, ..SamplingParams::default() }, &[], &[], &[]);
    let draws = 20_000;
    let mut counts = [0_u32; 8];
    for _ in 0..draws {
        counts[sampler.sample(&row, None).unwrap().token as usize] += 1;
    }
    let total: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
    for (logit, count) in row.iter().zip(counts) {
        let expected = f64::from(*logit).exp() / total;
        assert!((f64::from(count) / f64::from(draws) - expected).abs() < 0.015);
    }
}

#[test]
fn logprobs_of_a_forced_token() {
    let params = SamplingParams { logprobs: Some(1), ..SamplingParams::default() };
    let sampler = Sampler::new(params, &[], &[], &[]);
    let logprobs = sampler.logprobs_of(&[0.0, 0.0, f32::NEG_INFINITY], 2, 0).unwrap();
    assert_eq!((logprobs.logprob, logprobs.top[0].0), (f32::NEG_INFINITY, 0));
    assert!(sampler.logprobs_of(&[f32::NAN; 3], 0, 0).is_none());
    let silent = Sampler::new(SamplingParams::default(), &[], &[], &[]);
    assert!(silent.logprobs_of(&[0.0; 3], 0, 0).is_none());
}

#[test]
fn log_probabilities_among_what_the_mask_allows() {
    let params = SamplingParams { logprobs: Some(4), allowed_logprobs: true, ..greedy() };
    // Sparse masks are gathered, others applied.
    for len in [8, 4096] {
        let mut row = vec![0.0; len];
        (row[3], row[5], row[6]) = (9.0, 2.0, 1.0);
        let mut mask = vec![0; len / 32 + 1];
        mask[0] = 1 << 5 | 1 << 6;
        let mut sampler = Sampler::new(params.clone(), &[], &[], &[]);
        let own = sampler.sample(&row, Some(&mask)).unwrap();
        let logprobs = own.logprobs.unwrap();
        let sum = 2_f32.exp() + 1_f32.exp();
        assert_eq!(own.token, 5);
        assert_eq!(logprobs.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [5, 6]);
        for (found, logit) in [(logprobs.logprob, 2.0), (logprobs.top[0].1, 2.0), (logprobs.top[1].1, 1.0)] {
            assert!((found - (logit - sum.ln())).abs() < 1e-5);
        }
        let free = sampler.sample(&row, None).unwrap().logprobs.unwrap();
        assert_eq!((free.top.len(), free.top[0].0), (4, 3));
        let forced = sampler.logprobs_of(&row, 6, 2).unwrap();
        assert_eq!((forced.logprob, &forced.top[..]), (0.0, &[(6, 0.0)][..]));
    }
}

#[test]
fn the_removed_mass_is_of_the_whole_row_whatever_is_reported() {
    let asked = SamplingParams { logprobs: Some(1), removed_mass: true, ..greedy() };
    let among = SamplingParams { allowed_logprobs: true, ..asked.clone() };
    let row = [1.0, 3.0, 0.5, 2.0];
    let removed = |params: SamplingParams| {
        Sampler::new(params, &[], &[], &[]).sample(&row, Some(&[0b1001])).unwrap().removed_mass.unwrap()
    };
    assert!(removed(asked.clone()) > 0.5);
    assert_eq!(removed(asked).to_bits(), removed(among).to_bits());
}

#[test]
fn rows_come_with_the_first_tokens_as_the_model_made_them() {
    let params = SamplingParams {
        logprobs: Some(0),
        logits_rows: 2,
        logit_bias: vec![(1, 50.0)],
        repetition_penalty: 2.0,
        temperature: 0.5,
        ..SamplingParams::default()
    };
    let mut sampler = Sampler::new(params, &[1], &[], &[]);
    let row = [0.5, -1.0, 2.0];
    let kept = |sampled: Option<Box<crate::TokenLogprobs>>| sampled.unwrap().row.map(|row| row.to_vec());
    assert_eq!(kept(sampler.sample(&row, Some(&[0b011])).unwrap().logprobs), Some(row.to_vec()));
    assert_eq!(kept(sampler.logprobs_of(&row, 2, 1)), Some(row.to_vec()));
    sampler.accept(2);
    assert_eq!(kept(sampler.sample(&row, None).unwrap().logprobs), None);
}

#[test]
fn a_changed_row_decides_and_the_model_s_own_is_reported() {
    let logits = [0.0, 1.0, 2.0, 3.0];
    let changed = [f32::NEG_INFINITY, 9.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
    let params = SamplingParams { logprobs: Some(1), logits_rows: 1, ..greedy() };
    let mut sampler = Sampler::new(params, &[], &[], &[]);
    let sampled = sampler.sample_changed(&logits, Some(&changed), None).unwrap();
    assert_eq!(sampled.token, 1);
    let own = sampled.logprobs.unwrap();
    assert_eq!((own.top[0].0, own.row.as_deref()), (3, Some(&logits[..])));
    // What the processor left is not allowed: the mask is laid over the model's own row.
    let sampled = sampler.sample_changed(&logits, Some(&changed), Some(&[0b101])).unwrap();
    assert_eq!(sampled.token, 2);
    let error = sampler.sample_changed(&logits, Some(&[f32::NEG_INFINITY; 4]), None).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFinite);
}
