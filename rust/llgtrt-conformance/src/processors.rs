//! Logits processors: each sees its own rows once and in order, changes what is drawn, fails alone, and loses against a
//! mask. Only of engines with rows on the host.

use std::sync::{Arc, Mutex, PoisonError};

use llgtrt_core::{Error, ErrorKind, Finish, LogitsProcessor, Result, SequenceSpec, TokenId};

use crate::Fixture;
use crate::drive::{Driver, ensure, ordinary};
use crate::masks::{Plan, PlannedMasks};

type Change = fn(&[TokenId], usize, &mut [f32]) -> Result<()>;

/// Changes rows by a function of the tokens it is about, and keeps what it was shown.
struct Planned {
    tokens: Vec<TokenId>,
    change: Change,
    seen: Mutex<Vec<Shown>>,
}

/// What a processor was shown with a row.
struct Shown {
    prompt: Vec<TokenId>,
    generated: Vec<TokenId>,
    columns: usize,
}

impl std::fmt::Debug for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Planned")
    }
}

impl LogitsProcessor for Planned {
    fn process(&self, prompt: &[TokenId], generated: &[TokenId], row: &mut [f32]) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Shown { prompt: prompt.to_vec(), generated: generated.to_vec(), columns: row.len() });
        (self.change)(&self.tokens, generated.len(), row)
    }
}

fn planned(tokens: &[TokenId], change: Change) -> Arc<Planned> {
    Arc::new(Planned { tokens: tokens.to_vec(), change, seen: Mutex::default() })
}

/// Leaves nothing but a token that goes round with the position.
#[expect(clippy::unnecessary_wraps, reason = "a `Change`")]
fn only(tokens: &[TokenId], position: usize, row: &mut [f32]) -> Result<()> {
    row.fill(f32::NEG_INFINITY);
    row[tokens[position % tokens.len()] as usize] = 0.0;
    Ok(())
}

fn with(spec: SequenceSpec, processor: &Arc<Planned>) -> SequenceSpec {
    SequenceSpec { processor: Some(Arc::clone(processor) as Arc<_>), ..spec }
}

/// Whether the engine has rows for processors.
fn supported(fixture: &dyn Fixture) -> bool {
    Driver::new(fixture).engine.capabilities().host_logits
}

pub(crate) fn processors_see_each_row_once(fixture: &dyn Fixture) -> Result<(), String> {
    if !supported(fixture) {
        return Ok(());
    }
    let mut driver = Driver::new(fixture);
    let columns = driver.engine.capabilities().vocab_size as usize;
    let tokens = driver.text_tokens(3);
    let processors = [planned(&tokens, only), planned(&tokens[1..], only)];
    for (id, processor) in (1..).zip(&processors) {
        let mut spec = with(driver.spec(id), processor);
        spec.sampling.temperature = 1.0;
        driver.submit(spec)?;
    }
    driver.finish()?;
    for (id, processor) in (1..).zip(&processors) {
        let said = driver.record(id).tokens();
        let expected: Vec<_> = processor.tokens.iter().copied().cycle().take(8).collect();
        ensure(said == expected, || format!("the processor left {expected:?}, said was {said:?}"))?;
        let prompt = driver.spec(id).prompt;
        let seen = processor.seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(seen.len() == 8, || format!("{} rows for 8 tokens", seen.len()))?;
        for (position, shown) in seen.iter().enumerate() {
            let known = shown.prompt[..] == prompt[..] && shown.generated[..] == expected[..position];
            ensure(known && shown.columns == columns, || {
                format!("row {position} came with {:?}, {} columns", shown.generated, shown.columns)
            })?;
        }
    }
    Ok(())
}

pub(crate) fn a_processor_that_fails_ends_only_its_own_sequence(fixture: &dyn Fixture) -> Result<(), String> {
    if !supported(fixture) {
        return Ok(());
    }
    let changes: [Change; 3] = [
        |_, position, row| match position {
            2 => Err(Error::new(ErrorKind::LogitsProcessor, "planned")),
            _ => only(&[97], position, row),
        },
        |_, position, row| {
            row[position] = if position == 2 { f32::NAN } else { f32::NEG_INFINITY };
            Ok(())
        },
        |_, position, row| {
            if position == 2 {
                row.fill(f32::NEG_INFINITY);
            }
            Ok(())
        },
    ];
    for change in changes {
        let mut driver = Driver::new(fixture);
        let tokens = driver.text_tokens(2);
        let (failing, beside) = (planned(&tokens, change), planned(&tokens, only));
        let mut failing_spec = with(driver.spec(1), &failing);
        failing_spec.sampling.ignore_eos = true;
        driver.submit(failing_spec)?;
        driver.submit(with(driver.spec(2), &beside))?;
        driver.finish()?;
        let record = driver.record(1);
        let failed = |finish: &Finish| matches!(finish, Finish::Failed(error) if error.kind == ErrorKind::LogitsProcessor);
        ensure(record.finish.as_ref().is_some_and(failed) && record.outputs.len() == 2, || {
            format!("a failing processor led to {:?} after {:?}", record.finish, record.tokens())
        })?;
        let neighbour = driver.record(2);
        ensure(neighbour.finish == Some(Finish::Length) && neighbour.outputs.len() == 8, || {
            format!("its neighbour ended with {:?} after {:?}", neighbour.finish, neighbour.tokens())
        })?;
    }
    Ok(())
}

pub(crate) fn a_mask_wins_over_a_processor(fixture: &dyn Fixture) -> Result<(), String> {
    if !supported(fixture) {
        return Ok(());
    }
    let tokenizer = fixture.tokenizer();
    let tokens = ordinary(&*tokenizer, 6);
    let plan = Plan { allowed: tokens[..4].to_vec(), ..Plan::default() };
    let masks = PlannedMasks::new((1..=3).map(|id| (id, plan.clone())), tokenizer.vocabulary().len());
    let mut driver = Driver::with_masks(fixture, Arc::clone(&masks) as Arc<_>);
    // Wants what is forbidden; allows nothing else; chooses among what is allowed.
    let boost = planned(&tokens[4..], |tokens, _, row| {
        row[tokens[0] as usize] = 1e30;
        Ok(())
    });
    let processors = [boost, planned(&tokens[4..], only), planned(&tokens[1..2], only)];
    for (id, processor) in (1..).zip(&processors) {
        let mut spec = with(driver.spec(id), processor);
        spec.constrained = true;
        driver.submit(spec)?;
    }
    driver.finish()?;
    masks.verdict()?;
    for id in 1..=3 {
        let said = driver.record(id).tokens();
        ensure(said.len() == 8 && said.iter().all(|token| tokens[..4].contains(token)), || {
            format!("allowed is {:?}, said was {said:?}", &tokens[..4])
        })?;
    }
    let said = driver.record(3).tokens();
    ensure(said == [tokens[1]; 8], || format!("the processor left {}, said was {said:?}", tokens[1]))
}
