//! Reads what clients send as JSON into Python's objects, without holding the interpreter's lock for long.

use std::time::{Duration, Instant};

use jiter::JsonValue;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyList, PyString};

/// Bytes of a text that is read in one go: some microseconds. To give the lock away takes longer where other threads
/// wait for it.
const SMALL: usize = 4096;
/// Values that are made in one go, and bytes of text in place of them: some tens of microseconds.
const STEP: usize = 512;
const BYTES_PER_VALUE: usize = 128;
/// Bytes of a long text that are made or read in one go.
const PIECE: usize = STEP * BYTES_PER_VALUE;
/// For how long the lock is kept where others may wait for it, and how long it is free then: as long as a thread that
/// sleeps takes to be there. A lock that is taken again at once is taken before it; and since that thread was woken each
/// time, its wait begins anew, at whose end (the switch interval) Python would have seen to its turn.
const TURN: Duration = Duration::from_micros(500);
const PAUSE: Duration = Duration::from_micros(50);

/// The value that a JSON text holds: `str`, or UTF-8 as `bytes` or `bytearray`, where a mark of the byte order is left out
/// (RFC 8259 lets a reader do so, and some clients on Windows send one).
///
/// Other threads run meanwhile. Of values, and of arrays and objects among them, there may be so many.
///
/// # Errors
/// `ValueError`: not JSON, not UTF-8, half of a surrogate pair, NaN or an infinity, nested too deeply, too many values.
#[pyfunction]
pub(crate) fn read_json<'py>(
    text: &Bound<'py, PyAny>,
    max_values: usize,
    max_containers: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = text.py();
    let (held_text, held_bytes);
    let bytes: &[u8] = if let Ok(text) = text.cast::<PyString>() {
        held_text = encoded(text)?;
        held_text.as_bytes()
    } else {
        held_bytes = text.extract::<PyBackedBytes>()?;
        held_bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&held_bytes)
    };
    let parse = || {
        check_counts(bytes, max_values, max_containers)?;
        JsonValue::parse(bytes, false).map_err(|error| error.description(bytes))
    };
    let mut maker = Maker { turns: Turns::begin(py), left: STEP };
    if bytes.len() <= SMALL {
        return maker.value(&parse().map_err(PyValueError::new_err)?);
    }
    let value = py.detach(parse).map_err(PyValueError::new_err)?;
    let made = maker.value(&value);
    py.detach(|| drop(value));
    made
}

/// Refuses a text of too many values before memory is taken for them. What is no JSON may be counted wrongly.
fn check_counts(text: &[u8], max_values: usize, max_containers: usize) -> Result<(), String> {
    let (mut commas, mut containers) = (0, 0);
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b',' => commas += 1,
            b'[' | b'{' => containers += 1,
            b'"' => rest = behind_string(rest),
            _ => {}
        }
    }
    if containers > max_containers {
        return Err(format!("more than {max_containers} objects and arrays"));
    }
    // Each value but the first is the first of an array or object, or stands behind a comma.
    if commas + containers >= max_values {
        return Err(format!("more than {max_values} values"));
    }
    Ok(())
}

/// What follows the end of a string that was begun.
fn behind_string(mut rest: &[u8]) -> &[u8] {
    loop {
        match memchr::memchr2(b'"', b'\\', rest) {
            Some(end) if rest[end] == b'"' => return &rest[end + 1..],
            Some(escape) => rest = rest.get(escape + 2..).unwrap_or_default(),
            None => return &[],
        }
    }
}

/// Makes Python's objects, and lets other threads have their turn.
struct Maker<'py> {
    turns: Turns<'py>,
    /// Values until it is looked whether it is their turn.
    left: usize,
}

impl<'py> Maker<'py> {
    /// Nested as deeply as the parser lets it be: 200 arrays and objects.
    fn value(&mut self, value: &JsonValue<'_>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.turns.py;
        self.spend(1);
        Ok(match value {
            JsonValue::Null => py.None().into_bound(py),
            JsonValue::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            JsonValue::Int(value) => value.into_pyobject(py)?.into_any(),
            JsonValue::BigInt(value) => value.into_pyobject(py)?.into_any(),
            JsonValue::Float(value) => value.into_pyobject(py)?.into_any(),
            JsonValue::Str(text) => self.text(text)?.into_any(),
            JsonValue::Array(values) => {
                let made: Vec<_> = values.iter().map(|value| self.value(value)).collect::<PyResult<_>>()?;
                PyList::new(py, made)?.into_any()
            }
            JsonValue::Object(members) => {
                let dict = PyDict::new(py);
                for (key, value) in members.iter() {
                    dict.set_item(self.text(key)?, self.value(value)?)?;
                }
                dict.into_any()
            }
        })
    }

    /// A long text is decoded piece by piece; to join them is a copy.
    fn text(&mut self, text: &str) -> PyResult<Bound<'py, PyString>> {
        let py = self.turns.py;
        self.spend(text.len().min(PIECE) / BYTES_PER_VALUE);
        if text.len() <= PIECE {
            return Ok(PyString::new(py, text));
        }
        let pieces = PyList::empty(py);
        let mut rest = text;
        while !rest.is_empty() {
            let mut ends = (0..=rest.len().min(PIECE)).rev();
            let end = ends.find(|&end| rest.is_char_boundary(end)).unwrap_or(rest.len());
            let (piece, after) = rest.split_at(end);
            pieces.append(PyString::new(py, piece))?;
            self.spend(STEP);
            rest = after;
        }
        let joined = PyString::new(py, "").call_method1("join", (pieces,))?;
        Ok(joined.cast_into()?)
    }

    fn spend(&mut self, cost: usize) {
        if self.left < cost {
            self.left = STEP;
            self.turns.give();
        }
        self.left -= cost;
    }
}

/// Gives the interpreter's lock to others in time.
struct Turns<'py> {
    py: Python<'py>,
    since: Instant,
}

impl<'py> Turns<'py> {
    fn begin(py: Python<'py>) -> Self {
        Self { py, since: Instant::now() }
    }

    /// Whoever waits for the lock takes it here, if it was kept for long.
    fn give(&mut self) {
        if self.since.elapsed() >= TURN {
            self.py.detach(|| std::thread::sleep(PAUSE));
            self.since = Instant::now();
        }
    }
}

/// A text of Python's as one of ours. A long one is encoded piece by piece, between which other threads run.
pub(crate) fn encoded(text: &Bound<'_, PyString>) -> PyResult<String> {
    let length = text.len()?;
    if length <= PIECE {
        return Ok(text.to_str()?.to_owned());
    }
    let mut turns = Turns::begin(text.py());
    let mut encoded = String::with_capacity(length);
    for start in (0..length).step_by(PIECE) {
        let (start, end) = (start as ffi::Py_ssize_t, (start + PIECE) as ffi::Py_ssize_t);
        // SAFETY: a new text, or null if there is an error.
        let piece = unsafe {
            Bound::from_owned_ptr_or_err(turns.py, ffi::PyUnicode_Substring(text.as_ptr(), start, end))?
        };
        encoded.push_str(piece.cast::<PyString>()?.to_str()?);
        turns.give();
    }
    Ok(encoded)
}
