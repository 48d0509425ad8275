//! The core's log on standard error, in the same lines as Python's: the two are one log.
//!
//! Any thread of the core writes a line with one call; none takes the GIL. Python's side of the format is in
//! `llgtrt/logs.py`.

use std::fmt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Sends the core's log to standard error, a line of text or of JSON per event. Levels: `error`, `warn`, `info`,
/// `debug`, `trace`, `off`, or the directives of tracing's filter (`warn,llgtrt_engine_llamacpp=debug`). The
/// first call wins.
#[pyfunction]
#[pyo3(signature = (level, *, json=false))]
pub(crate) fn init_logging(level: &str, json: bool) -> PyResult<()> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| PyValueError::new_err(format!("log level {level:?}: {error}")))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .event_format(Line { json });
    // A second call finds the subscriber set, by us or by an embedding program.
    let _ = log.try_init();
    Ok(())
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
        let target = event.metadata().target();
        let level = level_name(*event.metadata().level());
        if !self.json {
            SystemTime.format_time(&mut writer)?;
            write!(writer, " {level} {target}: ")?;
            context.field_format().format_fields(writer.by_ref(), event)?;
            return writeln!(writer);
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut members = Members::default();
        for (name, value) in [("time", time.as_str()), ("level", level), ("logger", target)] {
            members.0.insert(name.to_owned(), value.into());
        }
        event.record(&mut members);
        writeln!(writer, "{}", Value::Object(members.0))
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
