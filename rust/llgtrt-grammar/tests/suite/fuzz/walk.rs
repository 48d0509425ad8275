//! Random answers: whatever the masks allow, taken at random, until the grammar ends.

use llgtrt_core::{AdvanceBatch, AdvanceState, MaskSlot, MaskSource, SequenceId, TokenId};
use llgtrt_grammar::CompiledGrammar;

use super::random::Random;
use crate::support::Bench;

/// Tokens after which a walk takes what closes a value wherever it can.
const LONG: usize = 60;

/// Tokens after which a walk is given up, those taken back included.
const MAX_STEPS: usize = 400;

/// How a walk ended.
#[derive(Debug, PartialEq)]
pub enum End {
    /// The grammar ended the answer.
    Complete(String),
    /// No token was allowed, or the check beside the grammar gave up.
    Failed { text: String, message: String },
    /// It did not end within [`MAX_STEPS`].
    CutOff,
}

/// One walk. Structure is taken more often than letters, which are most of the tokens.
pub fn walk(bench: &Bench, grammar: &CompiledGrammar, random: &mut Random) -> End {
    let id = SequenceId(u64::MAX);
    bench.pool.register(id, grammar);
    let end = run(bench, id, random);
    bench.pool.remove(id);
    end
}

fn run(bench: &Bench, id: SequenceId, random: &mut Random) -> End {
    let mut tokens: Vec<TokenId> = Vec::new();
    let text = |tokens: &[TokenId]| String::from_utf8_lossy(&bench.decode(tokens)).into_owned();
    for step in 0..MAX_STEPS {
        let mut out = AdvanceBatch::default();
        bench.pool.advance(&[MaskSlot { sequence: id, tokens: &tokens }], true, &mut out);
        let (forced, state) = out.get(0);
        match state.clone() {
            AdvanceState::Retract { keep } => {
                tokens.truncate(keep);
                continue;
            }
            AdvanceState::Failed(error) => {
                return End::Failed { text: text(&tokens), message: error.message };
            }
            AdvanceState::Stop | AdvanceState::Limit => {
                tokens.extend_from_slice(forced);
                return End::Complete(text(&tokens));
            }
            AdvanceState::Sample => tokens.extend_from_slice(forced),
        }
        let allowed = match bench.fill(id.0, &tokens) {
            Ok(allowed) => allowed,
            Err(verdict) => return End::Failed { text: text(&tokens), message: format!("{verdict:?}") },
        };
        tokens.push(pick(bench, &allowed, step, random));
    }
    End::CutOff
}

fn pick(bench: &Bench, allowed: &[TokenId], step: usize, random: &mut Random) -> TokenId {
    let of = |bytes: &[u8]| -> Vec<TokenId> {
        bytes.iter().map(|&byte| TokenId::from(byte)).filter(|token| allowed.contains(token)).collect()
    };
    if allowed.contains(&bench.eos()) && (step > LONG || random.chance(50)) {
        return bench.eos();
    }
    let closing = of(b"]}\"");
    if step > LONG && !closing.is_empty() {
        return *random.pick(&closing);
    }
    let structure = of(b"[]{}\",:-.0129abcdek");
    if random.chance(75) && !structure.is_empty() {
        return *random.pick(&structure);
    }
    *random.pick(allowed)
}
