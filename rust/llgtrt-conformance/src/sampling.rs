//! How unconstrained sequences are sampled and how they end.

use std::sync::Arc;

use llgtrt_core::{Finish, StopCause, TokenId, TokenLogprobs};

use crate::Fixture;
use crate::drive::{Driver, Record, ensure};

/// A bias that no other token withstands.
const CERTAIN: f32 = 100.0;

fn expect_finish(record: &Record, finish: &Finish) -> Result<(), String> {
    ensure(record.finish.as_ref() == Some(finish), || {
        format!("finish is {:?}, not {finish:?}", record.finish)
    })
}

pub(crate) fn max_tokens_is_exact(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    for (id, max_tokens) in [1, 2, 9].into_iter().enumerate() {
        let mut spec = driver.spec(id as u64);
        spec.max_tokens = max_tokens;
        spec.sampling.ignore_eos = true;
        let record = driver.run(spec)?;
        let count = record.outputs.len();
        ensure(count == max_tokens as usize, || format!("{count} tokens with max_tokens {max_tokens}"))?;
        expect_finish(&record, &Finish::Length)?;
        ensure(record.outputs.iter().all(|output| !output.forced), || {
            "a sampled token is marked forced".to_owned()
        })?;
    }
    Ok(())
}

pub(crate) fn an_end_of_sequence_token_is_reported_last(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let eos = driver.eos()?;
    let mut spec = driver.spec(1);
    spec.sampling.logit_bias = vec![(eos, CERTAIN)];
    let record = driver.run(spec)?;
    ensure(record.tokens() == [eos], || format!("tokens {:?} instead of [{eos}]", record.tokens()))?;
    expect_finish(&record, &Finish::Stop(StopCause::EndOfSequence))
}

pub(crate) fn ignore_eos_goes_on(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let eos = driver.eos()?;
    let mut spec = driver.spec(1);
    spec.sampling.logit_bias = vec![(eos, CERTAIN)];
    spec.sampling.ignore_eos = true;
    let record = driver.run(spec)?;
    expect_finish(&record, &Finish::Length)
}

pub(crate) fn a_stop_token_is_reported_last(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let tokens = driver.text_tokens(3);
    let mut spec = driver.spec(1);
    spec.sampling.logit_bias = vec![(tokens[1], CERTAIN)];
    spec.stop_token_ids = Arc::from(tokens.clone());
    let record = driver.run(spec)?;
    ensure(record.tokens() == [tokens[1]], || {
        format!("tokens {:?} instead of [{}]", record.tokens(), tokens[1])
    })?;
    expect_finish(&record, &Finish::Stop(StopCause::StopToken(tokens[1])))
}

pub(crate) fn min_tokens_delays_the_end(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let (eos, stop) = (driver.eos()?, driver.text_tokens(1)[0]);
    let cases =
        [(eos, Finish::Stop(StopCause::EndOfSequence)), (stop, Finish::Stop(StopCause::StopToken(stop)))];
    for (id, (end, finish)) in cases.into_iter().enumerate() {
        let mut spec = driver.spec(id as u64);
        spec.sampling.logit_bias = vec![(end, CERTAIN)];
        spec.sampling.min_tokens = 5;
        spec.stop_token_ids = Arc::from([stop]);
        let record = driver.run(spec)?;
        let tokens = record.tokens();
        let early = tokens.iter().take(5).any(|token| *token == eos || *token == stop);
        ensure(tokens.len() == 6 && tokens[5] == end && !early, || {
            format!("min_tokens 5 with a certain end {end}: {tokens:?}")
        })?;
        expect_finish(&record, &finish)?;
    }
    Ok(())
}

/// The tokens of a lone sequence, in a fresh engine.
fn alone(fixture: &dyn Fixture, temperature: f32, seed: u64) -> Result<Vec<TokenId>, String> {
    let mut driver = Driver::new(fixture);
    let mut spec = driver.spec(1);
    spec.max_tokens = 24;
    spec.sampling.temperature = temperature;
    spec.sampling.seed = seed;
    spec.sampling.ignore_eos = true;
    Ok(driver.run(spec)?.tokens())
}

pub(crate) fn the_same_seed_gives_the_same_tokens(fixture: &dyn Fixture) -> Result<(), String> {
    let (first, second) = (alone(fixture, 1.0, 7)?, alone(fixture, 1.0, 7)?);
    ensure(first == second, || format!("{first:?} and {second:?}"))
}

pub(crate) fn different_seeds_differ(fixture: &dyn Fixture) -> Result<(), String> {
    let (first, second) = (alone(fixture, 1.0, 7)?, alone(fixture, 1.0, 8)?);
    ensure(first != second, || format!("seeds 7 and 8 both gave {first:?}"))
}

pub(crate) fn greedy_does_not_depend_on_the_seed(fixture: &dyn Fixture) -> Result<(), String> {
    let (first, second) = (alone(fixture, 0.0, 7)?, alone(fixture, 0.0, 8)?);
    ensure(first == second, || format!("{first:?} and {second:?}"))
}

pub(crate) fn neighbours_change_nothing(fixture: &dyn Fixture) -> Result<(), String> {
    if !fixture.independent_of_batch() {
        return Ok(());
    }
    let expected = alone(fixture, 0.0, 7)?;
    let mut driver = Driver::new(fixture);
    for id in 10..13 {
        let mut spec = driver.spec(id);
        spec.sampling.temperature = 1.0;
        driver.submit(spec)?;
    }
    let mut spec = driver.spec(1);
    spec.max_tokens = 24;
    spec.sampling.ignore_eos = true;
    driver.submit(spec)?;
    driver.poll()?;
    let late = driver.spec(20);
    driver.submit(late)?;
    driver.finish()?;
    let tokens = driver.record(1).tokens();
    ensure(tokens == expected, || format!("{tokens:?} with neighbours, {expected:?} alone"))
}

pub(crate) fn choices_share_a_prompt(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let shared = driver.spec(0).prompt;
    let count = u64::from(driver.engine.capabilities().max_batch_size) + 1;
    for id in 0..count {
        let mut spec = driver.spec(id);
        spec.prompt = Arc::clone(&shared);
        spec.sampling.ignore_eos = true;
        spec.sampling.temperature = 1.0;
        spec.sampling.seed = id;
        spec.max_tokens = 16;
        driver.submit(spec)?;
    }
    driver.finish()?;
    let mut answers: Vec<_> = (0..count).map(|id| driver.record(id).tokens()).collect();
    ensure(answers.iter().all(|tokens| tokens.len() == 16), || "a choice is incomplete".to_owned())?;
    answers.sort();
    answers.dedup();
    ensure(answers.len() > 1, || format!("{count} choices with different seeds are all equal"))
}

fn check_logprobs(entry: &TokenLogprobs, count: usize) -> Result<(), String> {
    let sound = |logprob: f32| logprob <= 1e-4 && !logprob.is_nan();
    ensure(sound(entry.logprob), || format!("log-probability {}", entry.logprob))?;
    ensure(entry.top.len() == count, || format!("{} alternatives instead of {count}", entry.top.len()))?;
    ensure(entry.top.iter().all(|(_, logprob)| sound(*logprob)), || format!("alternatives {:?}", entry.top))?;
    ensure(entry.top.is_sorted_by(|a, b| a.1 >= b.1), || format!("not sorted: {:?}", entry.top))?;
    let mut tokens: Vec<_> = entry.top.iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    ensure(tokens.len() == count, || format!("an alternative twice: {:?}", entry.top))
}

pub(crate) fn logprobs_are_sorted_and_finite(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let plain = driver.spec(0);
    let record = driver.run(plain)?;
    ensure(record.outputs.iter().all(|output| output.logprobs.is_none()), || {
        "log-probabilities that nobody asked for".to_owned()
    })?;
    for count in [0, 4] {
        let mut spec = driver.spec(1 + u64::from(count));
        spec.sampling.logprobs = Some(count);
        let record = driver.run(spec)?;
        for output in &record.outputs {
            let Some(entry) = &output.logprobs else {
                return Err("a token without log-probabilities".to_owned());
            };
            check_logprobs(entry, count as usize)?;
            if let Some((best, logprob)) = entry.top.first() {
                ensure(*best == output.token && (logprob - entry.logprob).abs() < 1e-4, || {
                    format!(
                        "greedy took {} ({}), but the best is {best} ({logprob})",
                        output.token, entry.logprob
                    )
                })?;
            }
        }
    }
    Ok(())
}

pub(crate) fn prompt_logprobs_cover_the_prompt(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let supported = driver.engine.capabilities().prompt_logprobs;
    let mut spec = driver.spec(1);
    spec.prompt_logprobs = supported;
    spec.sampling.logprobs = Some(2);
    let length = spec.prompt.len();
    let record = driver.run(spec)?;
    if !supported {
        return ensure(record.prompt_logprobs.is_none(), || {
            "prompt logprobs that nobody asked for".to_owned()
        });
    }
    let Some(entries) = record.prompt_logprobs else { return Err("no prompt logprobs".to_owned()) };
    ensure(entries.len() == length, || format!("{} entries for {length} prompt tokens", entries.len()))?;
    ensure(entries[0].is_none(), || "the first prompt token has a log-probability".to_owned())?;
    for entry in &entries[1..] {
        let Some(entry) = entry else { return Err("a prompt token without log-probabilities".to_owned()) };
        check_logprobs(entry, 2)?;
    }
    Ok(())
}

pub(crate) fn rows_of_logits_are_those_of_the_log_probabilities(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let (of_prompt, columns) = {
        let capabilities = driver.engine.capabilities();
        (capabilities.prompt_logprobs, capabilities.vocab_size as usize)
    };
    let mut spec = driver.spec(1);
    (spec.prompt_logprobs, spec.sampling.prompt_logits) = (of_prompt, of_prompt);
    (spec.sampling.logprobs, spec.sampling.logits_rows) = (Some(0), 2);
    (spec.sampling.ignore_eos, spec.max_tokens) = (true, 3);
    let prompt = Arc::clone(&spec.prompt);
    let record = driver.run(spec)?;
    let of_answer = record.outputs.iter().map(|output| (output.token, output.logprobs.as_deref()));
    let of_prompt = prompt.iter().copied().zip(record.prompt_logprobs.iter().flatten()).skip(1);
    let entries = of_prompt.map(|(token, entry)| (token, entry.as_ref())).chain(of_answer);
    let entries: Vec<_> = entries.collect();
    let (last, first) = entries.split_last().ok_or("no tokens")?;
    ensure(last.1.is_some_and(|entry| entry.row.is_none()), || {
        "a row of a token whose row nobody asked for".to_owned()
    })?;
    for &(token, entry) in first {
        let Some(entry) = entry else { return Err("a token without log-probabilities".to_owned()) };
        let Some(row) = &entry.row else { return Err("a token without its row".to_owned()) };
        ensure(row.len() == columns, || format!("a row of {} logits, not {columns}", row.len()))?;
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        let own = f64::from(row[token as usize]) - sum.ln();
        ensure((own - f64::from(entry.logprob)).abs() < 1e-3, || {
            format!("by its row the log-probability is {own}, reported was {}", entry.logprob)
        })?;
    }
    Ok(())
}
