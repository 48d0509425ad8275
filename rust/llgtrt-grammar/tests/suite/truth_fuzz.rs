//! Random schemas over all keywords, with a fixed seed: nothing invalid is accepted or generated, and what is
//! rejected though valid has a cause that is known.
//!
//! `make truth-fuzz` runs the same trials for as long as it is told.

use crate::fuzz::trial::{Findings, trial};
use crate::support::{Bench, Greedy};
use llgtrt_grammar::GrammarConfig;

const SEED: u64 = 8;
const SCHEMAS: u64 = 400;

#[test]
fn verdicts_on_random_schemas_are_those_of_jsonschema() {
    let run = || {
        let bench = Bench::new(Greedy::new(&[], 1), GrammarConfig::default());
        let mut all = Findings::default();
        for number in 0..SCHEMAS {
            all.add(trial(&bench, SEED, number));
        }
        all
    };
    let all = llgtrt_grammar::spawn_big_stack("fuzz", run).unwrap().join().unwrap();
    assert!(all.wrongly_accepted.is_empty(), "{:#?}", all.wrongly_accepted);
    assert!(all.wrong_answers.is_empty(), "{:#?}", all.wrong_answers);
    assert!(all.dead_ends.is_empty(), "{:#?}", all.dead_ends);
    assert!(all.wrongly_empty.is_empty(), "{:#?}", all.wrongly_empty);
    let unexplained = all.wrongly_rejected.get("unexplained");
    assert!(unexplained.is_none(), "{unexplained:#?}");
    // A trial that refuses everything would find nothing.
    let of =
        |mode: &str| all.refused.iter().filter(|(why, _)| why.starts_with(mode)).map(|(_, n)| n).sum::<u64>();
    let refused = of("verify") - of("verify, AllowsNothing");
    assert!(refused * 10 < SCHEMAS, "{refused} of {SCHEMAS} schemas refused");
    assert!(all.pairs > 15_000 && all.valid * 5 > all.pairs && all.answers * 4 > SCHEMAS, "{all:?}");
}
