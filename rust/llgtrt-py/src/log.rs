//! The core's log on standard error, in the same lines as Python's: the two are one log.
//!
//! Any thread of the core writes a line with one call; none takes the GIL. Python's side of the format is in
//! `llgtrt/logs.py`.

use std::borrow::Cow;
use std::fmt::{self, Write};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Scope};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Sends the core's log to standard error, a line of text or of JSON per event. Levels: `error`, `warn`, `info`,
/// `debug`, `trace`, `off`, or the directives of tracing's filter (`warn,llgtrt_engine_llamacpp=debug`). The
/// first call wins.
#[pyfunction]
#[pyo3(signature = (level, *, json=false))]
pub(crate) fn init_logging(level: &str, json: bool) -> PyResult<()> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| PyValueError::new_err(format!("log level {level:?}: {error}")))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .event_format(Line { json });
    // A second call finds the subscriber set, by us or by an embedding program.
    let _ = tracing_subscriber::registry().with(filter).with(Fields).with(lines).try_init();
    Ok(())
}

/// Keeps the fields of spans for the lines of the events within.
struct Fields;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Fields {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut members = Members::default();
        attributes.record(&mut members);
        // No id is a request that nobody named.
        members.0.retain(|_, value| value.as_str() != Some(""));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(members);
        }
    }
}

/// One event as a line.
struct Line {
    json: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let target = logger(event.metadata().target());
        let level = level_name(*event.metadata().level());
        if !self.json {
            let mut members = Members::default();
            event.record(&mut members);
            let message = members.0.remove("message");
            let mut line = message.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
            members.0.iter().try_for_each(|(name, value)| write!(line, " {name}={}", word(value)))?;
            each_of_spans(context, |name, value| write!(line, " {name}={}", word(value)))?;
            SystemTime.format_time(&mut writer)?;
            return writeln!(writer, " {level} {target}: {}", Escaped(&line));
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut members = Members::default();
        for (name, value) in [("time", time.as_str()), ("level", level), ("logger", &target)] {
            members.0.insert(name.to_owned(), value.into());
        }
        event.record(&mut members);
        each_of_spans(context, |name, value| {
            members.0.insert(name.to_owned(), value.clone());
            Ok(())
        })?;
        writeln!(writer, "{}", Escaped(&Value::Object(members.0).to_string()))
    }
}

/// Whether a terminal, or a reader of lines, does something at a character: what ends a line, control characters, and
/// what changes the order of reading.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text on one line, with the characters that act written as JSON writes them.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                _ if acts(c) => write!(f, "\\u{:04x}", u32::from(c))?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Calls `take` with the fields of the spans that an event is in, outermost first.
fn each_of_spans<S, N>(
    context: &FmtContext<'_, S, N>,
    mut take: impl FnMut(&str, &Value) -> fmt::Result,
) -> fmt::Result
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
        if let Some(members) = span.extensions().get::<Members>() {
            members.0.iter().try_for_each(|(name, value)| take(name, value))?;
        }
    }
    Ok(())
}

/// A module as a part of the core: `llgtrt.core.grammar.slot` for `llgtrt_grammar::slot`.
fn logger(target: &str) -> Cow<'_, str> {
    match target.strip_prefix("llgtrt_") {
        Some(part) => format!("llgtrt.core.{}", part.replace("::", ".")).into(),
        None => target.into(),
    }
}

/// A value as Python's lines have it: in quotes where it would not be one word.
fn word(value: &Value) -> Cow<'_, str> {
    let plain = |text: &&str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '=' | '"' | '\''))
    };
    match value.as_str().filter(plain) {
        Some(text) => text.into(),
        None => value.to_string().into(),
    }
}

/// Python's names.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

/// The fields of an event, its message among them, as members of an object.
#[derive(Default)]
struct Members(Map<String, Value>);

impl Visit for Members {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
