//! Makes the report. Runs in a compile slot.

use std::time::Instant;

use llgtrt_core::GrammarSpec;
use llguidance::api::TopLevelGrammar;
use serde_json::Value;

use super::errors::{MAX_ERRORS, Repair};
use super::instances::judge_all;
use super::stop::Stop;
use super::{Problem, Report, ReportRequest, ResidualConstraint, RuleCount, place, request_refused};
use crate::CompiledGrammar;
use crate::admission::{self, Admitted};
use crate::compiled::{Failure, build};
use crate::compiler::{Shared, late};
use crate::refusal::Refusal;
use llgtrt_schema::{ResidualMode, RuleUse};

/// Most paths shown for one rule.
const MAX_PATHS: usize = 10;

pub(super) fn examine(shared: &Shared, request: &ReportRequest, instances: &[Value], stop: &Stop) -> Report {
    let started = Instant::now();
    let outcome = attempt(shared, &request.spec, request.residual, stop);
    let compile_ms = started.elapsed().as_secs_f64() * 1000.0;
    let report = match outcome {
        Ok((grammar, admitted)) => Report {
            ok: true,
            errors: Vec::new(),
            rules: counted(&admitted.notes.rules, &request.places),
            residual: admitted
                .notes
                .residual
                .iter()
                .map(|left| ResidualConstraint {
                    path: place(&request.places, &left.path),
                    keyword: left.keyword.clone(),
                })
                .collect(),
            warnings: grammar.warnings().to_vec(),
            normalized: Some(shown(&admitted.grammar, &request.spec)),
            grammar_size: Some(grammar.symbols()),
            compile_ms: 0.0,
            first_mask_tokens: Some(grammar.first_mask().num_set()),
            instances: judge_all(&grammar, &request.spec, instances, stop),
        },
        Err(refusal) => {
            let mut report = request_refused(request, refusal.clone().into(), instances.len());
            report.errors = problems(shared, request, refusal, stop);
            report
        }
    };
    Report { compile_ms: (compile_ms * 1000.0).round() / 1000.0, ..report }
}

fn attempt(
    shared: &Shared,
    spec: &GrammarSpec,
    residual: Option<ResidualMode>,
    stop: &Stop,
) -> Result<(CompiledGrammar, Admitted), Refusal> {
    let mut admitted = admission::admit(spec, &shared.config, residual.unwrap_or_else(|| shared.residual()))?;
    let on_cancellable = |mask| stop.watch(mask);
    match build(&shared.factory, &shared.env, spec.kind(), &mut admitted, &shared.config, on_cancellable) {
        Ok(grammar) => {
            admitted.restore()?;
            Ok((grammar, admitted))
        }
        Err(Failure::Refused(refusal)) => Err(refusal),
        Err(Failure::Cancelled) => Err(late(&shared.config)),
    }
}

/// The first problem, and those that are left without it.
fn problems(shared: &Shared, request: &ReportRequest, first: Refusal, stop: &Stop) -> Vec<Problem> {
    let mut repair = Repair::new(&request.spec);
    let mut found: Vec<Problem> = Vec::new();
    let mut next = Some(first);
    while let Some(problem) = next.take().map(Problem::from) {
        if !repair.is_own(&problem) {
            break;
        }
        let more = found.len() + 1 < MAX_ERRORS && repair.take_out(&problem);
        found.push(problem);
        if more && !stop.is_near() {
            next = attempt(shared, repair.spec(), request.residual, stop).err();
        }
    }
    found.into_iter().map(|problem| problem.under(&request.places)).collect()
}

fn counted(uses: &[RuleUse], places: &[(String, String)]) -> Vec<RuleCount> {
    let mut rules: Vec<RuleCount> = Vec::new();
    for used in uses {
        let index = rules.iter().position(|rule| rule.name == used.rule).unwrap_or_else(|| {
            rules.push(RuleCount { name: used.rule, count: 0, paths: Vec::new() });
            rules.len() - 1
        });
        let rule = &mut rules[index];
        rule.count += 1;
        if rule.paths.len() < MAX_PATHS {
            rule.paths.push(place(places, &used.path));
        }
    }
    rules
}

/// The grammar as it is compiled, without the options that the server adds to a schema.
fn shown(grammar: &TopLevelGrammar, spec: &GrammarSpec) -> Value {
    let [one] = grammar.grammars.as_slice() else {
        return serde_json::to_value(grammar).unwrap_or_default();
    };
    if let Some(lark) = &one.lark_grammar {
        return Value::String(lark.clone());
    }
    let mut schema = one.json_schema.clone().unwrap_or_default();
    let own = matches!(spec, GrammarSpec::JsonSchema(text) if text.contains("\"x-guidance\""));
    if let (false, Some(object)) = (own, schema.as_object_mut()) {
        object.shift_remove("x-guidance");
    }
    schema
}
