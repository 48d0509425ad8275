//! What a grammar is worth, without generating: errors with advice, the rules that rewrote it, its size,
//! its first mask, and which instances it accepts.
//!
//! The work runs in a slot of the [`GrammarCompiler`], under the same checks and the same deadline as the
//! grammar of a request. Nothing here trusts its input, and nothing of it is kept.

mod errors;
mod examine;
mod instances;
mod stop;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use llgtrt_core::{Error, ErrorKind, GrammarSpec, Result};
use serde::Serialize;
use serde_json::Value;

use self::stop::Stop;
use crate::GrammarCompiler;
use crate::compiler::late;
use llgtrt_schema::ResidualMode;

pub use self::instances::Verdict;

/// How much longer than the deadline the caller waits, so that a report that was cut short arrives.
const GRACE: Duration = Duration::from_millis(500);

/// A grammar, and what should be known about it.
#[derive(Debug, Clone)]
pub struct ReportRequest {
    /// The grammar.
    pub spec: GrammarSpec,
    /// What to do with what no grammar can hold; `None`: what a request would meet.
    pub residual: Option<ResidualMode>,
    /// JSON texts of what is tried on the grammar.
    pub instances: Vec<String>,
    /// Prefixes of paths in `spec`, and what the report calls them; the first that fits counts. An empty
    /// prefix fits every path.
    pub places: Vec<(String, String)>,
}

/// What is known about a grammar.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Whether a request with this grammar would be served.
    pub ok: bool,
    /// Why not; as many reasons as could be found.
    pub errors: Vec<Problem>,
    /// Rules that rewrote its schemas.
    pub rules: Vec<RuleCount>,
    /// What the grammar leaves to a check of the answer. Empty unless that was asked for.
    pub residual: Vec<ResidualConstraint>,
    /// What llguidance only approximates, where the schema asks for that.
    pub warnings: Vec<String>,
    /// The grammar as it is compiled: a schema, or the text of a Lark grammar.
    pub normalized: Option<Value>,
    /// Its size in symbols.
    pub grammar_size: Option<usize>,
    /// Time from the text to the first mask, in milliseconds.
    pub compile_ms: f64,
    /// Tokens that an answer may begin with.
    pub first_mask_tokens: Option<usize>,
    /// One for each instance, in their order.
    pub instances: Vec<Verdict>,
}

/// A reason to refuse a grammar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where; empty for the grammar as a whole.
    pub path: String,
    /// The keyword of JSON Schema, if it is about one.
    pub keyword: Option<String>,
    /// Why.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// A rule of the normaliser that was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleCount {
    /// Its name in [`RULES`](llgtrt_schema::RULES).
    pub name: &'static str,
    /// Schemas that it was used on.
    pub count: usize,
    /// The first of them.
    pub paths: Vec<String>,
}

/// A constraint that the grammar does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResidualConstraint {
    /// Path of the schema.
    pub path: String,
    /// The keyword.
    pub keyword: String,
}

impl GrammarCompiler {
    /// Reports on a grammar. Blocks until the report is there: at most the compile deadline and half a
    /// second. What is wrong with the grammar is part of the report.
    ///
    /// # Errors
    /// An instance is too large or nested too deeply, or there are too many ([`ErrorKind::InvalidRequest`]
    /// with `param`); the queue is full ([`ErrorKind::Overloaded`]); the compiler was closed
    /// ([`ErrorKind::ShuttingDown`]); a defect ([`ErrorKind::Internal`]).
    pub fn report(&self, request: ReportRequest) -> Result<Report> {
        let instances = instances::parse(&request.instances)?;
        let limit = Duration::from_millis(self.config().compile_deadline_ms);
        let stop = Arc::new(Stop::after(limit));
        let refused = request_refused(&request, late(self.config()).into(), instances.len());
        let (send, receive) = sync_channel(1);
        let (watched, too_late) = (Arc::clone(&stop), refused.clone());
        self.run(Box::new(move |shared| {
            let examine = || {
                if watched.is_set() {
                    return too_late;
                }
                examine::examine(shared, &request, &instances, &watched)
            };
            let report = catch_unwind(AssertUnwindSafe(examine));
            // Nobody listens if the deadline has passed meanwhile.
            let _ = send.send(report.map_err(|_| Error::internal("making a report panicked")));
        }))?;
        match receive.recv_timeout(limit + GRACE) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => {
                stop.set();
                Ok(refused)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::new(ErrorKind::ShuttingDown, "the server is shutting down"))
            }
        }
    }
}

/// The report on a grammar that was refused as a whole.
fn request_refused(request: &ReportRequest, problem: Problem, instances: usize) -> Report {
    Report {
        errors: vec![problem.under(&request.places)],
        instances: vec![Verdict::unknown("the grammar was refused"); instances],
        ..Report::default()
    }
}

/// The path under its name in the report.
fn place(places: &[(String, String)], path: &str) -> String {
    for (prefix, name) in places {
        let Some(rest) = path.strip_prefix(prefix.as_str()) else { continue };
        if prefix.is_empty() {
            return llgtrt_schema::path::join(name, rest);
        }
        if rest.is_empty() || rest.starts_with(['.', '[']) {
            return format!("{name}{rest}");
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn the_first_prefix_that_fits_counts() {
        let places = [("anyOf[1].a", "tools[1].parameters"), ("anyOf[1]", "tools[1]"), ("", "tools")]
            .map(|(prefix, name)| (prefix.to_owned(), name.to_owned()));
        for (path, expected) in [
            ("anyOf[1].a", "tools[1].parameters"),
            ("anyOf[1].a.not", "tools[1].parameters.not"),
            ("anyOf[1].ab", "tools[1].ab"),
            ("anyOf[1][\"x y\"]", "tools[1][\"x y\"]"),
            ("anyOf[10].a", "tools.anyOf[10].a"),
            ("[0]", "tools[0]"),
            ("", "tools"),
        ] {
            assert_eq!(place(&places, path), expected, "{path}");
        }
        assert_eq!(place(&[], "a.b"), "a.b");
    }
}
