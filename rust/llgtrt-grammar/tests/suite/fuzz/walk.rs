//! Random answers: whatever the masks allow, taken at random, until the grammar ends.

use llgtrt_core::{AdvanceBatch, AdvanceState, MaskSlot, MaskSource, SequenceId, TokenId};
use llgtrt_grammar::{CompiledGrammar, TokenLimit};

use super::random::Random;
use crate::support::Bench;

/// Tokens after which a walk takes what closes a value wherever it can.
const LONG: usize = 60;

/// Tokens after which a walk is given up, those taken back included.
const MAX_STEPS: usize = 1000;

/// What leads to an end soonest where a value, a key or a comma may come, the best first.
const SOONEST: &[u8] = b"}]ntf0123456789-\"[{,:.";

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

/// As [`walk`], but complete when it has so many tokens, as answers are at their limit.
#[allow(dead_code, reason = "shared with an example that has no limits")]
pub fn walk_within(bench: &Bench, grammar: &CompiledGrammar, random: &mut Random, tokens: usize) -> End {
    let id = SequenceId(u64::MAX);
    bench.pool.register_within(id, grammar, TokenLimit { tokens, retract: true, turn: 0 });
    let end = run(bench, id, random);
    bench.pool.remove(id);
    end
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
        tokens.push(pick(bench, &text(&tokens), &allowed, step, random));
    }
    End::CutOff
}

fn pick(bench: &Bench, text: &str, allowed: &[TokenId], step: usize, random: &mut Random) -> TokenId {
    let of = |bytes: &[u8]| -> Vec<TokenId> {
        bytes.iter().map(|&byte| TokenId::from(byte)).filter(|token| allowed.contains(token)).collect()
    };
    if allowed.contains(&bench.eos()) && (step > LONG || random.chance(50)) {
        return bench.eos();
    }
    if step > LONG {
        if is_inside_string(text) {
            if allowed.contains(&TokenId::from(b'"')) {
                return TokenId::from(b'"');
            }
        } else if let Some(&token) = of(SOONEST).first() {
            return token;
        }
    }
    let structure = of(b"[]{}\",:-.0129abcdek");
    if random.chance(75) && !structure.is_empty() {
        return *random.pick(&structure);
    }
    *random.pick(allowed)
}

/// Whether the JSON text ends inside of a string.
fn is_inside_string(text: &str) -> bool {
    let mut inside = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => inside = !inside,
            '\\' if inside => {
                characters.next();
            }
            _ => {}
        }
    }
    inside
}
