//! From submit to the one finish: queueing, cancellation, blocking, statistics.

use std::time::{Duration, Instant};

use llgtrt_core::{Finish, SequenceId, StepBatch};

use crate::Fixture;
use crate::drive::{Driver, ensure};

pub(crate) fn every_sequence_finishes_once(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    for id in 1..=3 {
        let mut spec = driver.spec(id);
        spec.max_tokens = id as u32;
        driver.submit(spec)?;
    }
    ensure(driver.engine.has_work(), || "has_work is false after submit".to_owned())?;
    // The driver fails on a second finish and on anything after the first.
    driver.finish()?;
    for id in 1..=3 {
        ensure(!driver.record(id).outputs.is_empty(), || format!("sequence {id} reported no token"))?;
    }
    Ok(())
}

pub(crate) fn more_sequences_than_slots_all_finish(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let slots = driver.engine.capabilities().max_batch_size;
    let count = u64::from(slots) * 2 + 1;
    for id in 0..count {
        let mut spec = driver.spec(id);
        spec.max_tokens = 3;
        spec.sampling.ignore_eos = true;
        driver.submit(spec)?;
    }
    let mut most = 0;
    while driver.live() > 0 {
        driver.poll()?;
        most = most.max(driver.engine.stats().running);
    }
    driver.finish()?;
    ensure(most <= slots, || format!("{most} sequences ran in {slots} slots"))?;
    for id in 0..count {
        let tokens = driver.record(id).outputs.len();
        ensure(tokens == 3, || format!("sequence {id} reported {tokens} tokens instead of 3"))?;
    }
    Ok(())
}

pub(crate) fn cancelling_the_unknown_and_the_finished_is_no_error(
    fixture: &dyn Fixture,
) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    driver.cancel(99);
    let spec = driver.spec(1);
    driver.run(spec)?;
    driver.cancel(1);
    driver.cancel(99);
    // Anything reported for them would be an error here.
    let spec = driver.spec(2);
    driver.run(spec)?;
    Ok(())
}

pub(crate) fn a_waiting_sequence_can_be_cancelled(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let slots = u64::from(driver.engine.capabilities().max_batch_size);
    for id in 0..=slots {
        let spec = driver.endless(id);
        driver.submit(spec)?;
    }
    driver.poll_until(|driver| !driver.record(0).outputs.is_empty())?;
    ensure(driver.record(slots).outputs.is_empty(), || "more sequences ran than there are slots".to_owned())?;
    driver.cancel(slots);
    expect_cancelled(&mut driver, slots)?;
    ensure(driver.record(slots).outputs.is_empty(), || "a waiting sequence reported tokens".to_owned())?;
    (0..slots).for_each(|id| driver.cancel(id));
    driver.finish()
}

pub(crate) fn a_sequence_can_be_cancelled_in_prefill(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let mut spec = driver.endless(1);
    let room = driver.engine.capabilities().max_sequence_tokens as usize / 2;
    let text = "A long prompt takes a while. ".repeat(room / 8);
    let prompt = driver.prompt(&text);
    spec.prompt = prompt[..prompt.len().min(room)].into();
    spec.max_tokens = 16;
    driver.submit(spec)?;
    driver.cancel(1);
    expect_cancelled(&mut driver, 1)?;
    driver.finish()?;
    // Its slot and its part of the cache serve the next one.
    let spec = driver.spec(2);
    driver.run(spec)?;
    Ok(())
}

pub(crate) fn a_sequence_can_be_cancelled_while_decoding(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let mut neighbour = driver.spec(2);
    neighbour.max_tokens = 12;
    neighbour.sampling.ignore_eos = true;
    let spec = driver.endless(1);
    driver.submit(spec)?;
    driver.submit(neighbour)?;
    driver.poll_until(|driver| driver.record(1).outputs.len() >= 2)?;
    driver.cancel(1);
    driver.cancel(1);
    expect_cancelled(&mut driver, 1)?;
    driver.finish()?;
    let tokens = driver.record(2).outputs.len();
    ensure(tokens == 12, || format!("its neighbour reported {tokens} tokens instead of 12"))
}

pub(crate) fn a_cancelled_slot_is_free_for_the_next(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let slots = u64::from(driver.engine.capabilities().max_batch_size);
    for id in 0..slots {
        let spec = driver.endless(id);
        driver.submit(spec)?;
    }
    let next = driver.spec(slots);
    driver.submit(next)?;
    driver.poll_until(|driver| (0..slots).all(|id| !driver.record(id).outputs.is_empty()))?;
    driver.cancel(0);
    driver.poll_until(|driver| driver.record(slots).finish.is_some())?;
    ensure(driver.record(0).finish == Some(Finish::Cancelled), || {
        "the cancelled sequence did not end".to_owned()
    })?;
    (1..slots).for_each(|id| driver.cancel(id));
    driver.finish()
}

/// The next poll that reports anything reports the cancellation.
fn expect_cancelled(driver: &mut Driver, id: u64) -> Result<(), String> {
    while !driver.poll()? {}
    let finish = &driver.record(id).finish;
    ensure(*finish == Some(Finish::Cancelled), || {
        format!("the first report after cancel({id}) was not its cancellation but {finish:?}")
    })
}

pub(crate) fn an_idle_poll_blocks(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    ensure(!driver.engine.has_work(), || "a fresh engine has work".to_owned())?;
    let timeout = Duration::from_millis(20);
    let start = Instant::now();
    let mut batch = StepBatch::default();
    for _ in 0..5 {
        driver.engine.poll(timeout, &mut batch).map_err(|error| format!("an idle poll failed: {error}"))?;
        ensure(batch.is_empty(), || "an idle engine reported something".to_owned())?;
    }
    let elapsed = start.elapsed();
    // Only a lower bound: a busy machine may take any time longer.
    ensure(elapsed >= timeout * 4, || format!("5 idle polls of {timeout:?} returned after {elapsed:?}"))
}

pub(crate) fn poll_does_not_spin(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let mut spec = driver.spec(1);
    spec.max_tokens = 32;
    spec.sampling.ignore_eos = true;
    driver.run(spec)?;
    let idle = driver.idle_polls;
    ensure(idle <= 32, || format!("{idle} polls returned early with nothing done, for 32 tokens"))
}

pub(crate) fn statistics_are_consistent(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let slots = driver.engine.capabilities().max_batch_size;
    for id in 0..u64::from(slots) + 2 {
        let spec = driver.spec(id);
        driver.submit(spec)?;
    }
    let mut before = driver.engine.stats();
    while driver.live() > 0 {
        driver.poll()?;
        let (stats, live) = (driver.engine.stats(), driver.live());
        let accounted = (stats.running + stats.waiting) as usize;
        ensure(accounted == live, || {
            format!("{live} live sequences, but {} run and {} wait", stats.running, stats.waiting)
        })?;
        ensure(stats.running <= slots, || format!("{} sequences run in {slots} slots", stats.running))?;
        ensure((0.0..=1.0).contains(&stats.kv_cache_usage), || format!("KV usage {}", stats.kv_cache_usage))?;
        ensure(stats.forward_passes >= before.forward_passes, || "forward_passes went down".to_owned())?;
        ensure(stats.prefix_cache_hits <= stats.prefix_cache_queries, || {
            "more hits than queries".to_owned()
        })?;
        before = stats;
    }
    driver.finish()?;
    let stats = driver.engine.stats();
    ensure(stats.running == 0 && stats.waiting == 0, || "an engine without work runs sequences".to_owned())?;
    ensure(stats.forward_passes > 0, || "tokens were generated without a forward pass".to_owned())
}

pub(crate) fn forward_passes_are_told(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let mut spec = driver.spec(1);
    spec.max_tokens = 6;
    spec.sampling.ignore_eos = true;
    let prompt = spec.prompt.len();
    let before = driver.engine.stats();
    driver.run(spec)?;
    let stats = driver.engine.stats();
    let (passes, told) = (stats.forward_passes - before.forward_passes, driver.passes.len() as u64);
    ensure(told == passes, || format!("{passes} forward passes, of which {told} were told of"))?;
    for pass in &driver.passes {
        let sequences = pass.prefill_sequences + pass.decode_sequences;
        ensure(sequences == 1, || format!("one sequence ran, and in a pass {sequences}: {pass:?}"))?;
    }
    let (prefill, decode) = driver.passes.iter().fold((0, 0), |(prefill, decode), pass| {
        (prefill + pass.prefill_tokens as usize, decode + pass.decode_tokens)
    });
    let cached = (stats.prefix_cache_hits - before.prefix_cache_hits) as usize;
    ensure(prefill == prompt - cached, || {
        format!("a prompt of {prompt} tokens, {cached} of them cached, and {prefill} evaluated")
    })?;
    // The last token that is sampled is not evaluated.
    ensure(decode >= 5, || format!("6 tokens were generated, and {decode} of them evaluated"))?;
    let last = driver.passes.last().map_or(0, |pass| pass.decode_context_tokens as usize);
    ensure((prompt..prompt + 6).contains(&last), || {
        format!("{last} tokens in the KV cache before the last pass, behind a prompt of {prompt}")
    })
}

pub(crate) fn dropping_an_engine_with_live_sequences_is_clean(fixture: &dyn Fixture) -> Result<(), String> {
    let mut driver = Driver::new(fixture);
    let slots = u64::from(driver.engine.capabilities().max_batch_size);
    for id in 0..=slots {
        let spec = driver.endless(id);
        driver.submit(spec)?;
    }
    driver.poll_until(|driver| !driver.record(0).outputs.is_empty())?;
    driver.engine.cancel(SequenceId(1));
    drop(driver);
    // Whatever it held is free again.
    let mut driver = Driver::new(fixture);
    let spec = driver.spec(1);
    driver.run(spec)?;
    Ok(())
}
