//! Constrained sequences: every mask honoured, runs appended, every end reported. The planned mask source
//! fails a check if `advance` does not come before `fill` or the tokens do not continue each other.

use std::sync::Arc;

use llgtrt_core::{ErrorKind, Finish, StopCause, TokenId};

use crate::Fixture;
use crate::drive::{Driver, Record, ensure, ordinary};
use crate::masks::{Plan, PlannedMasks};

const COMPLETE: Finish = Finish::Stop(StopCause::GrammarComplete);

struct Constrained {
    driver: Driver,
    masks: Arc<PlannedMasks>,
    tokens: Vec<TokenId>,
}

impl Constrained {
    /// An engine under `plans`, written for sequences 1, 2, ... with a few tokens of plain text.
    fn new(fixture: &dyn Fixture, plans: impl FnOnce(&[TokenId]) -> Vec<Plan>) -> Self {
        let tokenizer = fixture.tokenizer();
        let tokens = ordinary(&*tokenizer, 12);
        let masks = PlannedMasks::new((1..).zip(plans(&tokens)), tokenizer.vocabulary().len());
        Self { driver: Driver::with_masks(fixture, Arc::clone(&masks) as Arc<_>), masks, tokens }
    }

    fn submit(&mut self, id: u64, max_tokens: u32) -> Result<(), String> {
        let mut spec = self.driver.spec(id);
        spec.constrained = true;
        spec.max_tokens = max_tokens;
        self.driver.submit(spec)
    }

    /// Runs sequence 1 to its end.
    fn run(&mut self, max_tokens: u32) -> Result<Record, String> {
        self.submit(1, max_tokens)?;
        self.finish()?;
        Ok(self.driver.record(1).clone())
    }

    fn finish(&mut self) -> Result<(), String> {
        self.driver.finish()?;
        self.masks.verdict()
    }
}

fn expect(record: &Record, count: usize, finish: &Finish) -> Result<(), String> {
    ensure(record.outputs.len() == count && record.finish.as_ref() == Some(finish), || {
        format!("{count} tokens and {finish:?} expected: {:?}, {:?}", record.tokens(), record.finish)
    })
}

pub(crate) fn masks_are_honoured(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |tokens| {
        tokens.chunks(4).map(|allowed| Plan { allowed: allowed.to_vec(), ..Plan::default() }).collect()
    });
    for (id, temperature) in [(1, 0.0), (2, 1.0), (3, 1.5)] {
        let mut spec = run.driver.spec(id);
        spec.constrained = true;
        spec.sampling.temperature = temperature;
        run.driver.submit(spec)?;
    }
    let free = run.driver.spec(10);
    run.driver.submit(free)?;
    run.finish()?;
    for (id, allowed) in (1..).zip(run.tokens.chunks(4)) {
        let record = run.driver.record(id);
        expect(record, 8, &Finish::Length)?;
        ensure(record.outputs.iter().all(|o| allowed.contains(&o.token) && !o.forced), || {
            format!("sequence {id} may say {allowed:?} and said {:?}", record.tokens())
        })?;
        let fills = run.masks.fills(id);
        ensure(fills >= 8, || format!("sequence {id} sampled 8 tokens under {fills} masks"))?;
    }
    Ok(())
}

pub(crate) fn the_removed_mass_is_measured(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        let one =
            Plan { allowed: t[..1].to_vec(), forced: [(2, t[4..6].to_vec())].into(), ..Plan::default() };
        let several = Plan { allowed: t[..8].to_vec(), ..Plan::default() };
        vec![one.clone(), several.clone(), several, one]
    });
    for (id, logprobs, removed_mass) in
        [(1, Some(0), true), (2, None, true), (3, Some(0), false), (4, None, true), (10, None, true)]
    {
        let mut spec = run.driver.spec(id);
        spec.constrained = id != 10;
        (spec.sampling.logprobs, spec.sampling.removed_mass) = (logprobs, removed_mass);
        run.driver.submit(spec)?;
    }
    run.finish()?;
    let masses = |id: u64| run.driver.record(id).outputs.iter().map(|output| output.removed_mass);
    // Where one token is left, all of the probability but its own is gone; of forced ones as well.
    for output in &run.driver.record(1).outputs {
        let own = output.logprobs.as_ref().map_or(f32::NAN, |entry| entry.logprob.exp());
        let close = output.removed_mass.is_some_and(|mass| (mass + own - 1.0).abs() < 0.02);
        ensure(close, || format!("removed {:?} beside a token of {own}", output.removed_mass))?;
    }
    for (id, sampled) in [(2, 8), (4, 6)] {
        let fast = run.driver.engine.capabilities().fast_forward;
        let wanted = if fast { sampled } else { 8 };
        let known: Vec<f32> = masses(id).flatten().collect();
        ensure(known.len() == wanted && known.iter().all(|mass| (0.0..=1.0).contains(mass)), || {
            format!("sequence {id} sampled {wanted} tokens and measured {known:?}")
        })?;
    }
    ensure(masses(3).all(|mass| mass.is_none()), || "a removed mass that nobody asked for".to_owned())?;
    let free: Vec<_> = masses(10).collect();
    ensure(free.iter().all(|mass| *mass == Some(0.0)), || format!("free text lost {free:?}"))
}

pub(crate) fn forced_runs_are_appended(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        let forced = [(0, t[4..7].to_vec()), (4, t[7..9].to_vec()), (8, vec![t[9]])];
        vec![Plan { allowed: t[..2].to_vec(), forced: forced.into(), ..Plan::default() }]
    });
    let fast = run.driver.engine.capabilities().fast_forward;
    let record = run.run(10)?;
    expect(&record, 10, &Finish::Length)?;
    let t = &run.tokens;
    let plan =
        [Some(t[4]), Some(t[5]), Some(t[6]), None, Some(t[7]), Some(t[8]), None, None, Some(t[9]), None];
    for (position, (output, forced)) in record.outputs.iter().zip(plan).enumerate() {
        let fits = forced.map_or(t[..2].contains(&output.token), |token| output.token == token);
        ensure(fits, || format!("token {position} is wrong: {:?}", record.tokens()))?;
        ensure(output.forced == (fast && forced.is_some()), || {
            format!("token {position} is marked forced: {}", output.forced)
        })?;
    }
    Ok(())
}

pub(crate) fn a_forced_run_stops_at_max_tokens(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        vec![Plan { allowed: t[..2].to_vec(), forced: [(1, t[4..10].to_vec())].into(), ..Plan::default() }]
    });
    let record = run.run(4)?;
    expect(&record, 4, &Finish::Length)?;
    ensure(record.tokens()[1..] == run.tokens[4..7], || format!("tokens {:?}", record.tokens()))
}

pub(crate) fn a_complete_grammar_ends_the_sequence(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        vec![
            Plan { allowed: t[..4].to_vec(), stop_at: Some(3), ..Plan::default() },
            Plan {
                allowed: t[..4].to_vec(),
                stop_at: Some(4),
                forced: [(2, t[4..6].to_vec())].into(),
                ..Plan::default()
            },
            Plan { allowed: t[..4].to_vec(), stop_at: Some(5), ..Plan::default() },
        ]
    });
    run.submit(1, 8)?;
    run.submit(2, 8)?;
    // Complete exactly at the limit: the grammar's end is the better answer.
    run.submit(3, 5)?;
    run.finish()?;
    expect(run.driver.record(1), 3, &COMPLETE)?;
    expect(run.driver.record(2), 4, &COMPLETE)?;
    expect(run.driver.record(3), 5, &COMPLETE)
}

pub(crate) fn a_grammar_may_be_complete_at_the_start(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        vec![
            Plan { stop_at: Some(3), forced: [(0, t[..3].to_vec())].into(), ..Plan::default() },
            Plan { stop_at: Some(0), ..Plan::default() },
        ]
    });
    run.submit(1, 8)?;
    run.submit(2, 8)?;
    run.finish()?;
    expect(run.driver.record(1), 3, &COMPLETE)?;
    ensure(run.driver.record(1).tokens() == run.tokens[..3], || "the forced answer is wrong".to_owned())?;
    expect(run.driver.record(2), 0, &COMPLETE)
}

pub(crate) fn a_stop_instead_of_a_mask_ends_the_sequence(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        vec![Plan { allowed: t[..4].to_vec(), late_stop_at: Some(3), ..Plan::default() }]
    });
    let record = run.run(8)?;
    expect(&record, 3, &COMPLETE)
}

pub(crate) fn end_of_sequence_ends_a_constrained_sequence(fixture: &dyn Fixture) -> Result<(), String> {
    let tokenizer = fixture.tokenizer();
    let Some(&eos) = tokenizer.vocabulary().eos().first() else {
        return Err("no end of sequence".to_owned());
    };
    let mut run = Constrained::new(fixture, |t| {
        vec![Plan { allowed: vec![eos], forced: [(0, t[..2].to_vec())].into(), ..Plan::default() }]
    });
    // Where the grammar allows nothing but the end, no parameter can prevent it.
    let mut spec = run.driver.spec(1);
    spec.constrained = true;
    spec.sampling.ignore_eos = true;
    spec.sampling.min_tokens = 6;
    run.driver.submit(spec)?;
    run.finish()?;
    let record = run.driver.record(1);
    expect(record, 3, &Finish::Stop(StopCause::EndOfSequence))?;
    ensure(record.tokens()[2] == eos, || "the end is not the last token".to_owned())
}

pub(crate) fn a_failed_grammar_ends_only_its_own_sequence(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        let good = Plan { allowed: t[..4].to_vec(), ..Plan::default() };
        vec![
            good.clone(),
            Plan { fail_at: Some(2), ..good.clone() },
            Plan { late_fail_at: Some(3), ..good.clone() },
            Plan { fail_at: Some(0), ..good },
        ]
    });
    for id in 1..=4 {
        run.submit(id, 8)?;
    }
    let free = run.driver.spec(10);
    run.driver.submit(free)?;
    run.finish()?;
    expect(run.driver.record(1), 8, &Finish::Length)?;
    for (id, most) in [(2, 2), (3, 3), (4, 0)] {
        let record = run.driver.record(id);
        let failed =
            matches!(&record.finish, Some(Finish::Failed(error)) if error.kind == ErrorKind::Grammar);
        ensure(failed && record.outputs.len() <= most, || {
            format!("sequence {id} fails after {most} tokens: {:?}, {:?}", record.tokens(), record.finish)
        })?;
    }
    let finish = &run.driver.record(10).finish;
    ensure(!matches!(finish, Some(Finish::Failed(_))), || format!("a plain neighbour ended with {finish:?}"))
}

pub(crate) fn a_constrained_sequence_can_be_cancelled(fixture: &dyn Fixture) -> Result<(), String> {
    let mut run = Constrained::new(fixture, |t| {
        let plan =
            Plan { allowed: t[..4].to_vec(), forced: [(3, t[4..6].to_vec())].into(), ..Plan::default() };
        vec![plan.clone(), plan]
    });
    run.submit(1, 60)?;
    run.submit(2, 10)?;
    run.driver.poll_until(|driver| !driver.record(1).outputs.is_empty())?;
    run.driver.cancel(1);
    run.finish()?;
    let finish = &run.driver.record(1).finish;
    ensure(*finish == Some(Finish::Cancelled), || format!("the cancelled sequence ended with {finish:?}"))?;
    expect(run.driver.record(2), 10, &Finish::Length)
}

pub(crate) fn withdrawn_tokens_are_generated_again(fixture: &dyn Fixture) -> Result<(), String> {
    let plan = |t: &[TokenId], retract: &[(usize, usize)]| Plan {
        allowed: t[..4].to_vec(),
        retract: retract.iter().copied().collect(),
        certain: Some(3),
        ..Plan::default()
    };
    let mut straight = Constrained::new(fixture, |t| vec![plan(t, &[])]);
    if !straight.driver.engine.capabilities().retract {
        return Ok(());
    }
    let expected = straight.run(8)?;
    ensure(expected.certain == Some(3), || format!("certain: {:?}", expected.certain))?;
    drop(straight);
    // In the middle, at the limit, and everything.
    for retract in [&[(5, 3)][..], &[(8, 7)], &[(4, 3), (6, 0)]] {
        let mut run = Constrained::new(fixture, |t| vec![plan(t, retract)]);
        let record = run.run(8)?;
        expect(&record, 8, &Finish::Length)?;
        ensure(record.tokens() == expected.tokens(), || {
            format!("{:?} without withdrawals, {:?} with {retract:?}", expected.tokens(), record.tokens())
        })?;
    }
    Ok(())
}

pub(crate) fn a_withdrawn_end_is_no_end(fixture: &dyn Fixture) -> Result<(), String> {
    let tokenizer = fixture.tokenizer();
    let Some(&eos) = tokenizer.vocabulary().eos().first() else {
        return Err("no end of sequence".to_owned());
    };
    let mut run = Constrained::new(fixture, |t| {
        let forced = [(0, t[..2].to_vec())].into();
        vec![Plan { allowed: vec![eos], forced, retract: [(3, 2)].into(), ..Plan::default() }]
    });
    if !run.driver.engine.capabilities().retract {
        return Ok(());
    }
    // Without fast-forward the forced tokens are sampled, too.
    let expected = if run.driver.engine.capabilities().fast_forward { 2 } else { 4 };
    let record = run.run(8)?;
    expect(&record, 3, &Finish::Stop(StopCause::EndOfSequence))?;
    let fills = run.masks.fills(1);
    ensure(fills == expected, || format!("{fills} masks instead of {expected}"))
}

pub(crate) fn an_end_that_the_grammar_refuses_is_a_failure(fixture: &dyn Fixture) -> Result<(), String> {
    let tokenizer = fixture.tokenizer();
    let Some(&eos) = tokenizer.vocabulary().eos().first() else {
        return Err("no end of sequence".to_owned());
    };
    let mut run = Constrained::new(fixture, |t| {
        let forced = [(0, t[..2].to_vec())].into();
        vec![Plan { allowed: vec![eos], forced, fail_at: Some(3), ..Plan::default() }]
    });
    let record = run.run(8)?;
    let failed = matches!(&record.finish, Some(Finish::Failed(error)) if error.kind == ErrorKind::Grammar);
    ensure(failed, || format!("the answer is not complete, and ended with {:?}", record.finish))
}
