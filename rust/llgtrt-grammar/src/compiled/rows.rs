//! How wide the rows of a parser become. An answer whose row is wider than the limit fails in its middle, so a grammar
//! that leads there is refused before.
//!
//! A row holds what may be read next at one place. Its items are rules of the grammar, each with a dot for how much of
//! it has been read; of a symbol behind a dot the row holds all rules as well, with nothing read of them.

use std::collections::{HashSet, VecDeque};

use llguidance::earley::{CGrammar, CSymIdx};

/// Items that are looked at, at most: some 30 ms. What is wide is mostly found long before.
const MOST_LOOKED_AT: usize = 4_000_000;

/// Whether some row has more than `most` items, as far as that is found within a fixed effort. The rows behind every
/// symbol of a row are looked at in turn, those nearest to the beginning of an answer first.
pub(super) fn has_wider_row(grammar: &CGrammar, most: usize) -> bool {
    // Conditions on parameters leave out rules that would be counted here.
    if grammar.parametric() {
        return false;
    }
    let table = Table::new(grammar);
    let mut search = Search::new(&table);
    let mut left = MOST_LOOKED_AT;
    search.open.push_back(table.rules[table.start].clone());
    while let Some(read) = search.open.pop_front() {
        let row = search.row(&read);
        if row.len() > most {
            return true;
        }
        let Some(rest) = left.checked_sub(row.len()) else { break };
        left = rest;
        search.follow(&row);
    }
    false
}

/// A grammar's rules, one behind the other.
struct Table {
    /// The symbols of each rule, then [`END`]. An item is the index of the symbol behind its dot.
    symbols: Vec<usize>,
    /// By symbol, the first items of its rules.
    rules: Vec<Vec<usize>>,
    /// By symbol, whether it may be empty.
    nullable: Vec<bool>,
    /// By symbol, what it is read as: symbols of one lexeme are read together.
    kind: Vec<usize>,
    start: usize,
}

/// Behind the last symbol of a rule.
const END: usize = 0;

impl Table {
    fn new(grammar: &CGrammar) -> Self {
        let start = grammar.start();
        let mut table = Self {
            symbols: vec![END],
            rules: Vec::new(),
            nullable: Vec::new(),
            kind: Vec::new(),
            start: start.as_index(),
        };
        let mut lexemes = Vec::new();
        let mut open = vec![start];
        let mut known = HashSet::from([CSymIdx::NULL, start]);
        while let Some(symbol) = open.pop() {
            let (index, data) = (symbol.as_index(), grammar.sym_data(symbol));
            if table.rules.len() <= index {
                table.rules.resize(index + 1, Vec::new());
                table.nullable.resize(index + 1, false);
                table.kind.resize(index + 1, END);
            }
            table.nullable[index] = data.is_nullable;
            table.kind[index] = index;
            if let Some(lexeme) = data.lexeme {
                if lexemes.len() <= lexeme.as_usize() {
                    lexemes.resize(lexeme.as_usize() + 1, None);
                }
                table.kind[index] = *lexemes[lexeme.as_usize()].get_or_insert(index);
            }
            for &rule in grammar.rules_of(symbol) {
                table.rules[index].push(table.symbols.len());
                for &part in grammar.rule_rhs(rule).0 {
                    table.symbols.push(part.as_index());
                    if known.insert(part) {
                        open.push(part);
                    }
                }
                table.symbols.push(END);
            }
        }
        table
    }
}

struct Search<'a> {
    table: &'a Table,
    /// By item, the number of the row that it was found in last.
    found_in: Vec<u32>,
    number: u32,
    /// By kind of symbol, the items of the present row that have read it.
    moved: Vec<Vec<usize>>,
    /// Rows to look at, each as the items that have read something.
    open: VecDeque<Vec<usize>>,
    /// Those that were found: most are of a single item.
    single: Vec<bool>,
    several: HashSet<Vec<usize>>,
}

impl<'a> Search<'a> {
    fn new(table: &'a Table) -> Self {
        Self {
            table,
            found_in: vec![0; table.symbols.len()],
            number: 0,
            moved: vec![Vec::new(); table.rules.len()],
            open: VecDeque::new(),
            single: vec![false; table.symbols.len()],
            several: HashSet::new(),
        }
    }

    /// All items of the row that begins with `read`.
    fn row(&mut self, read: &[usize]) -> Vec<usize> {
        self.number += 1;
        let (table, found_in, number) = (self.table, &mut self.found_in, self.number);
        let mut row = Vec::new();
        let mut add = |row: &mut Vec<usize>, item: usize| {
            if found_in[item] != number {
                found_in[item] = number;
                row.push(item);
            }
        };
        for &item in read {
            add(&mut row, item);
        }
        let mut at = 0;
        while let Some(&item) = row.get(at) {
            at += 1;
            let symbol = table.symbols[item];
            if symbol == END {
                continue;
            }
            for &first in &table.rules[symbol] {
                add(&mut row, first);
            }
            if table.nullable[symbol] {
                add(&mut row, item + 1);
            }
        }
        row
    }

    /// Notes the rows behind each symbol of a row.
    fn follow(&mut self, row: &[usize]) {
        let mut kinds = Vec::new();
        for &item in row {
            let symbol = self.table.symbols[item];
            if symbol != END {
                let kind = self.table.kind[symbol];
                if self.moved[kind].is_empty() {
                    kinds.push(kind);
                }
                self.moved[kind].push(item + 1);
            }
        }
        for kind in kinds {
            let mut read = std::mem::take(&mut self.moved[kind]);
            let is_new = if let [item] = read[..] {
                !std::mem::replace(&mut self.single[item], true)
            } else {
                read.sort_unstable();
                self.several.insert(read.clone())
            };
            if is_new {
                self.open.push_back(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use llgtrt_schema::{NormalizeLimits, Reason, SchemaError, normalize, rewrite};
    use llguidance::ParserFactory;
    use llguidance::api::TopLevelGrammar;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::lexer_guard::create_parser;

    fn factory() -> ParserFactory {
        let env = toktrie::ApproximateTokEnv::single_byte_env();
        let mut factory = ParserFactory::new(&env, toktrie::InferenceCapabilities::default(), &[]).unwrap();
        factory.quiet();
        factory
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        /// Objects that are refused before they are compiled have rows that are too wide.
        #[test]
        fn no_more_is_refused_by_counting(
            required in prop::collection::vec(prop::bool::weighted(0.2), 1..30),
            never in prop::collection::vec(prop::bool::weighted(0.2), 30),
            most in 4_usize..40,
            minimum in 0_usize..3,
            others: bool,
        ) {
            let kind = |i: usize| if never[i] && !required[i] { json!(false) } else { json!({"type": "null"}) };
            let properties = (0..required.len()).map(|i| (format!("k{i}"), kind(i))).collect();
            let names: Vec<String> =
                (0..required.len()).filter(|&i| required[i]).map(|i| format!("k{i}")).collect();
            let schema = json!({
                "type": "object",
                "properties": Value::Object(properties),
                "required": names,
                "minProperties": minimum,
                "additionalProperties": others,
            });
            let limits = NormalizeLimits { max_ways: most, ..NormalizeLimits::default() };
            let free = NormalizeLimits::default();
            let factory = factory();
            let ways = [
                (normalize(&schema, &limits), normalize(&schema, &free)),
                (rewrite(&schema, &limits), rewrite(&schema, &free)),
            ];
            let is_refused = |counted: &Result<_, SchemaError>| {
                counted.as_ref().is_err_and(|error| error.reason == Reason::TooWide)
            };
            prop_assume!(ways.iter().any(|(counted, _)| is_refused(counted)));
            for (_, written) in ways.into_iter().filter(|(counted, _)| is_refused(counted)) {
                let grammar = TopLevelGrammar::from_json_schema(written.unwrap().schema);
                let (parser, _) = create_parser(&factory, grammar, false).unwrap();
                prop_assert!(has_wider_row(parser.parser.grammar(), most), "{schema}");
            }
        }
    }
}
