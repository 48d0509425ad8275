//! One schema: what the grammar says of instances and what the `jsonschema` crate says.

use std::collections::BTreeMap;

use llgtrt_core::GrammarSpec;
use llgtrt_grammar::{CompiledGrammar, Instance};
use llgtrt_schema::{NormalizeLimits, Reason, ResidualMode, RuleUse, normalize, rewrite};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::construct::{construct, mutate};
use super::random::Random;
use super::schemas::schema;
use super::tables;
use super::walk::{End, walk};
use crate::support::Bench;

/// Instances of one schema that are built along it, that are changed a little, and that know nothing of it.
const BUILT: usize = 16;
const CHANGED: usize = 32;
const ANY: usize = 8;

/// Answers of one schema.
const WALKS: usize = 4;

/// An instance or an answer that the two judge differently.
#[derive(Debug, Clone)]
pub struct Case {
    pub schema: Value,
    pub instance: Value,
    pub mode: &'static str,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    pub schemas: u64,
    /// Schemas that each mode refuses, and those that are said to allow nothing.
    pub refused: BTreeMap<String, u64>,
    pub pairs: u64,
    pub valid: u64,
    /// Valid instances whose keys the grammar wants in another order.
    pub reordered: u64,
    pub answers: u64,
    pub cut_off: u64,
    /// Strings that have a format by the grammar and not by the `jsonschema` crate: instances and answers.
    pub formats_looser: Vec<Case>,
    /// Invalid instances that a grammar takes.
    pub wrongly_accepted: Vec<Case>,
    /// Answers that end and are invalid.
    pub wrong_answers: Vec<Case>,
    /// Valid instances of schemas that are said to allow nothing.
    pub wrongly_empty: Vec<Case>,
    /// Schemas that the compiler of schemas takes and the engine of grammars refuses, and why.
    pub engine_refused: Vec<(Value, String)>,
    /// Answers and instances with a number that the judge does not read, or compute with, as it is written.
    pub misread: u64,
    /// Answers that cannot go on: the text, and why.
    pub dead_ends: Vec<(Case, String)>,
    /// Valid instances that no order of keys makes a grammar take, by cause.
    pub wrongly_rejected: BTreeMap<&'static str, Vec<Case>>,
}

/// Up to here a double holds every whole number.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

impl Findings {
    pub fn add(&mut self, other: Self) {
        self.schemas += other.schemas;
        self.pairs += other.pairs;
        self.valid += other.valid;
        self.reordered += other.reordered;
        self.answers += other.answers;
        self.cut_off += other.cut_off;
        self.misread += other.misread;
        self.wrongly_empty.extend(other.wrongly_empty);
        self.engine_refused.extend(other.engine_refused);
        for (mode, count) in other.refused {
            *self.refused.entry(mode).or_default() += count;
        }
        self.wrongly_accepted.extend(other.wrongly_accepted);
        self.formats_looser.extend(other.formats_looser);
        self.wrong_answers.extend(other.wrong_answers);
        self.dead_ends.extend(other.dead_ends);
        for (cause, cases) in other.wrongly_rejected {
            self.wrongly_rejected.entry(cause).or_default().extend(cases);
        }
    }
}

/// Formats are asserted, as the grammar does.
pub fn validator(schema: &Value) -> Option<jsonschema::Validator> {
    jsonschema::options().should_validate_formats(true).build(schema).ok()
}

/// The grammar, or why there is none.
pub fn compile(bench: &Bench, schema: &Value, mode: &str) -> Result<CompiledGrammar, String> {
    let mut schema = schema.clone();
    schema["x-guidance"] = json!({ "residual": mode, "standard": true });
    bench.compiler.compile(&GrammarSpec::JsonSchema(schema.to_string())).map_err(|error| error.message)
}

/// Whether the grammar takes the value with its keys in some order; and whether all orders were tried.
pub fn takes(grammar: &CompiledGrammar, schema: &Value, value: &Value) -> (bool, bool) {
    let exact = llgtrt_schema::is_draft_4(schema);
    let judgement = grammar.judge(if exact { Instance::Exact(value) } else { Instance::Value(value) });
    (judgement.accepted, judgement.exhaustive)
}

/// Makes the schema of case `number`, and judges it.
pub fn trial(bench: &Bench, seed: u64, number: u64) -> Findings {
    let mut random = Random::new(seed, number);
    let schema = schema(&mut random);
    let mut instances: Vec<Value> = (0..BUILT).map(|_| construct(&schema, &schema, &mut random, 0)).collect();
    let mut trial = match Trial::begin(bench, schema, &instances) {
        Ok(trial) => trial,
        Err(findings) => return *findings,
    };
    for _ in 0..WALKS {
        instances.extend(trial.answer(bench, &mut random));
    }
    for _ in 0..CHANGED {
        let original = random.pick(&instances).clone();
        instances.push(mutate(&original, &mut random));
    }
    instances.extend((0..ANY).map(|_| tables::value(&mut random, 2)));
    for instance in instances {
        trial.judge(instance);
    }
    trial.findings
}

/// Random answers of a schema that is given.
pub fn answers(bench: &Bench, schema: &Value, walks: usize, random: &mut Random) -> Findings {
    match Trial::begin(bench, schema.clone(), &[]) {
        Ok(mut trial) => {
            for _ in 0..walks {
                trial.answer(bench, random);
            }
            trial.findings
        }
        Err(findings) => *findings,
    }
}

/// A schema with its two judges.
struct Trial {
    grammar: CompiledGrammar,
    schema: Value,
    mode: &'static str,
    validator: jsonschema::Validator,
    findings: Findings,
}

impl Trial {
    /// Compiles a schema. Where it is refused, that is all that is found, beside valid instances of what is said to
    /// allow nothing.
    fn begin(bench: &Bench, schema: Value, instances: &[Value]) -> Result<Self, Box<Findings>> {
        let mut findings = Findings { schemas: 1, ..Findings::default() };
        let mut refused = |why: String| *findings.refused.entry(why).or_default() += 1;
        let Some(validator) = validator(&schema) else {
            refused("by jsonschema".to_owned());
            return Err(Box::new(findings));
        };
        let mut mode = "refuse";
        let mut compiled = compile(bench, &schema, mode);
        if compiled.is_err() {
            refused(mode.to_owned());
            mode = "verify";
            compiled = compile(bench, &schema, mode);
        }
        match compiled {
            Ok(grammar) => Ok(Self { grammar, schema, mode, validator, findings }),
            Err(message) => {
                let reason = reason(&schema);
                let name = reason.map_or("GrammarEngine".to_owned(), |reason| format!("{reason:?}"));
                refused(format!("{mode}, {name}"));
                let valid = instances.iter().find(|instance| validator.is_valid(instance)).cloned();
                if let (Some(Reason::AllowsNothing), Some(instance)) = (reason, valid) {
                    findings.wrongly_empty.push(Case { schema, instance, mode });
                } else if reason.is_none() {
                    findings.engine_refused.push((schema, message));
                }
                Err(Box::new(findings))
            }
        }
    }

    fn case(&self, instance: Value) -> Case {
        Case { schema: self.schema.clone(), instance, mode: self.mode }
    }

    /// A random answer, if it ends and is valid.
    fn answer(&mut self, bench: &Bench, random: &mut Random) -> Option<Value> {
        let text = match walk(bench, &self.grammar, random) {
            End::Complete(text) => text,
            // A check beside the grammar may give up; a grammar must not.
            End::Failed { text, message } if !self.grammar.is_verified() => {
                let case = self.case(Value::String(text));
                self.findings.dead_ends.push((case, message));
                return None;
            }
            End::Failed { .. } | End::CutOff => {
                self.findings.cut_off += 1;
                return None;
            }
        };
        self.findings.answers += 1;
        let Ok(value) = serde_json::from_str::<Value>(&text) else {
            if serde_json::from_str::<IgnoredAny>(&text).is_ok() {
                self.findings.misread += 1;
            } else {
                let case = self.case(Value::String(text));
                self.findings.wrong_answers.push(case);
            }
            return None;
        };
        if self.validator.is_valid(&value) {
            return Some(value);
        }
        if is_misread(&value) || has_rounded(&text) {
            self.findings.misread += 1;
        } else {
            let by_format = self.is_by_format(&value);
            let case = self.case(value);
            let list =
                if by_format { &mut self.findings.formats_looser } else { &mut self.findings.wrong_answers };
            list.push(case);
        }
        None
    }

    /// Whether an invalid value is invalid by a format alone, or a format was left out for the pattern beside it.
    fn is_by_format(&self, value: &Value) -> bool {
        if !has_key(&self.schema, "format") {
            return false;
        }
        let is_overruled = |used: &RuleUse| used.rule == "format-beside-pattern";
        rules(&self.schema, self.mode).iter().any(is_overruled)
            || jsonschema::options()
                .should_validate_formats(false)
                .build(&self.schema)
                .is_ok_and(|validator| validator.is_valid(value))
    }

    fn judge(&mut self, instance: Value) {
        if has_large(&instance) {
            // The judge computes multiples with doubles.
            self.findings.misread += 1;
            return;
        }
        let valid = self.validator.is_valid(&instance);
        let written = valid && self.grammar.judge(Instance::Text(&instance.to_string())).accepted;
        let (taken, exhaustive) =
            if written { (true, true) } else { takes(&self.grammar, &self.schema, &instance) };
        self.findings.pairs += 1;
        self.findings.valid += u64::from(valid);
        self.findings.reordered += u64::from(valid && taken && !written);
        // What is checked beside the grammar is checked by this very validator.
        if taken && !valid && !self.grammar.is_verified() {
            let by_format = self.is_by_format(&instance);
            let case = self.case(instance);
            let list = if by_format {
                &mut self.findings.formats_looser
            } else {
                &mut self.findings.wrongly_accepted
            };
            list.push(case);
        } else if valid && !taken {
            let cause = cause(&self.schema, self.mode, &instance, exhaustive);
            let case = self.case(instance);
            self.findings.wrongly_rejected.entry(cause).or_default().push(case);
        }
    }
}

/// Why the schema is refused, if it is not the grammar engine that refuses it.
fn reason(schema: &Value) -> Option<Reason> {
    let limits = NormalizeLimits {
        compose: true,
        residual: ResidualMode::Verify,
        standard: true,
        ..NormalizeLimits::default()
    };
    rewrite(schema, &limits).err().map(|error| error.reason)
}

/// Why a valid instance is not taken, as far as it is known.
fn cause(schema: &Value, mode: &str, instance: &Value, exhaustive: bool) -> &'static str {
    if rules(schema, mode).iter().any(|used| used.rule == "narrowed") {
        "narrowed"
    } else if has_key(schema, "format") {
        "formats asserted"
    } else if !exhaustive {
        "key order"
    } else if long_number(instance) || (llgtrt_schema::is_draft_4(schema) && whole_float(instance)) {
        "spelling of numbers"
    } else {
        "unexplained"
    }
}

/// The rules that its grammar is made by.
fn rules(schema: &Value, mode: &str) -> Vec<RuleUse> {
    let residual = if mode == "verify" { ResidualMode::Verify } else { ResidualMode::Refuse };
    let limits = NormalizeLimits { compose: true, residual, standard: true, ..NormalizeLimits::default() };
    normalize(schema, &limits).map(|found| found.rules).unwrap_or_default()
}

fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(members) => members.contains_key(key) || members.values().any(|v| has_key(v, key)),
        Value::Array(items) => items.iter().any(|item| has_key(item, key)),
        _ => false,
    }
}

/// A number that is not what the answer says once it is read: too many digits for a double, or -0, which is read
/// as a fraction.
fn is_misread(value: &Value) -> bool {
    any_number(value, &|n| n.abs() >= MAX_WHOLE || (n == 0.0 && n.is_sign_negative()))
}

/// Whether the text has a number of more digits than every double keeps.
fn has_rounded(text: &str) -> bool {
    let digits = |number: &str| number.bytes().filter(u8::is_ascii_digit).count();
    text.split(|c: char| !c.is_ascii_digit() && c != '.').any(|number| digits(number) > 15)
}

/// A number of more digits than a double holds.
fn has_large(value: &Value) -> bool {
    any_number(value, &|n| n.abs() >= MAX_WHOLE)
}

fn any_number(value: &Value, test: &impl Fn(f64) -> bool) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_none_or(test),
        Value::Object(members) => members.values().any(|member| any_number(member, test)),
        Value::Array(items) => items.iter().any(|item| any_number(item, test)),
        _ => false,
    }
}

/// A number such as 1.0, which draft 4 tells from 1, so that it is judged as it is written.
fn whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().is_some_and(|n| n.fract() == 0.0),
        Value::Object(members) => members.values().any(whole_float),
        Value::Array(items) => items.iter().any(whole_float),
        _ => false,
    }
}

/// A number with an exponent, or with more digits than the grammar offers.
fn long_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            text.contains('e') || text.len() > 17
        }
        Value::Object(members) => members.values().any(long_number),
        Value::Array(items) => items.iter().any(long_number),
        _ => false,
    }
}
