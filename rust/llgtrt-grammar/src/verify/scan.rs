//! Follows a JSON text byte by byte and tells where the values at certain places begin and end.
//!
//! The text is what a grammar allowed so far, so it is the beginning of a JSON text; of anything else the
//! scanner makes something, but never panics. Plain data, used under the lock of its sequence.

use llgtrt_schema::Segment;

/// Something that the byte at hand brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A value begins with this byte.
    Begin {
        /// Values around it.
        depth: usize,
        /// Places (their numbers) that lead to the value.
        places: Vec<usize>,
    },
    /// A value has ended.
    End {
        /// Bytes of the text: first, and one past the last.
        span: (usize, usize),
        /// Values around it.
        depth: usize,
        /// Places that lead to it.
        places: Vec<usize>,
    },
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// A value, or the end of an array.
    Value,
    /// A key, or the end of an object.
    Key,
    /// The rest of a key that began here.
    KeyText {
        start: usize,
        escape: bool,
    },
    Colon,
    /// The rest of a string.
    Text {
        escape: bool,
    },
    /// The rest of a number, `true`, `false` or `null`.
    Scalar,
    /// What follows a value.
    Next,
}

/// A value that is open.
#[derive(Debug, Clone)]
struct Open {
    start: usize,
    is_array: bool,
    /// Places under way here: number, and steps taken.
    ways: Vec<(usize, usize)>,
    /// Places that lead here.
    places: Vec<usize>,
    /// Of an object: the key whose value is next.
    key: String,
}

/// Where a text is.
#[derive(Debug, Clone)]
pub(super) struct Scanner {
    expect: Expect,
    open: Vec<Open>,
}

impl Scanner {
    pub(super) fn new() -> Self {
        Self { expect: Expect::Value, open: Vec::new() }
    }

    /// Takes the last byte of `text`, the others having been taken before. `places` are the ways from the
    /// root to the values of interest.
    pub(super) fn push(&mut self, text: &[u8], places: &[Vec<Segment>], out: &mut Vec<Event>) {
        let Some((&byte, before)) = text.split_last() else { return };
        let at = before.len();
        match self.expect {
            Expect::Text { escape: true } => self.expect = Expect::Text { escape: false },
            Expect::Text { .. } => match byte {
                b'\\' => self.expect = Expect::Text { escape: true },
                b'"' => self.end(at + 1, out),
                _ => {}
            },
            Expect::KeyText { start, escape: true } => self.expect = Expect::KeyText { start, escape: false },
            Expect::KeyText { start, .. } => match byte {
                b'\\' => self.expect = Expect::KeyText { start, escape: true },
                b'"' => {
                    if let Some(open) = self.open.last_mut() {
                        open.key = serde_json::from_slice(&text[start..]).unwrap_or_default();
                    }
                    self.expect = Expect::Colon;
                }
                _ => {}
            },
            Expect::Scalar => {
                if matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t') {
                    self.end(at, out);
                    self.structure(byte, at, places, out);
                }
            }
            _ => self.structure(byte, at, places, out),
        }
    }

    /// Ends a number or word that the end of the text ends.
    pub(super) fn finish(&mut self, text: &[u8], out: &mut Vec<Event>) {
        if self.expect == Expect::Scalar {
            self.end(text.len(), out);
        }
    }

    /// A byte outside of strings and words.
    fn structure(&mut self, byte: u8, at: usize, places: &[Vec<Segment>], out: &mut Vec<Event>) {
        match (byte, self.expect) {
            (b' ' | b'\n' | b'\r' | b'\t', _) => {}
            (b'"', Expect::Key) => self.expect = Expect::KeyText { start: at, escape: false },
            (b':', Expect::Colon) => self.expect = Expect::Value,
            (b',', _) => {
                let in_array = self.open.last().is_none_or(|open| open.is_array);
                self.expect = if in_array { Expect::Value } else { Expect::Key };
            }
            (b']' | b'}', _) => self.end(at + 1, out),
            (_, Expect::Value) => self.begin(byte, at, places, out),
            _ => {}
        }
    }

    fn begin(&mut self, byte: u8, at: usize, places: &[Vec<Segment>], out: &mut Vec<Event>) {
        let ways: Vec<(usize, usize)> = match self.open.last() {
            None => (0..places.len()).map(|place| (place, 0)).collect(),
            Some(around) => around
                .ways
                .iter()
                .filter(|&&(place, steps)| match places[place].get(steps) {
                    Some(Segment::Key(key)) => !around.is_array && *key == around.key,
                    Some(Segment::AnyKey) => !around.is_array,
                    Some(Segment::AnyIndex) => around.is_array,
                    None => false,
                })
                .map(|&(place, steps)| (place, steps + 1))
                .collect(),
        };
        let here: Vec<usize> = ways
            .iter()
            .filter(|&&(place, steps)| places[place].len() == steps)
            .map(|&(place, _)| place)
            .collect();
        if !here.is_empty() {
            out.push(Event::Begin { depth: self.open.len(), places: here.clone() });
        }
        self.open.push(Open { start: at, is_array: byte == b'[', ways, places: here, key: String::new() });
        self.expect = match byte {
            b'{' => Expect::Key,
            b'[' => Expect::Value,
            b'"' => Expect::Text { escape: false },
            _ => Expect::Scalar,
        };
    }

    fn end(&mut self, end: usize, out: &mut Vec<Event>) {
        self.expect = Expect::Next;
        if let Some(open) = self.open.pop() {
            out.push(Event::End { span: (open.start, end), depth: self.open.len(), places: open.places });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str) -> Segment {
        Segment::Key(key.to_owned())
    }

    /// Spans of the values at a place, in the order in which they end.
    fn spans(text: &str, place: &[Segment]) -> Vec<String> {
        let places = [place.to_vec()];
        let (mut scanner, mut events) = (Scanner::new(), Vec::new());
        for end in 1..=text.len() {
            scanner.push(&text.as_bytes()[..end], &places, &mut events);
        }
        scanner.finish(text.as_bytes(), &mut events);
        let begun = events.iter().filter(|event| matches!(event, Event::Begin { .. })).count();
        let ended: Vec<String> = events
            .iter()
            .filter_map(|event| match event {
                Event::End { span, places, .. } if !places.is_empty() => {
                    Some(text[span.0..span.1].to_owned())
                }
                _ => None,
            })
            .collect();
        assert_eq!(begun, ended.len());
        ended
    }

    #[test]
    fn places_are_found() {
        let text = r#"{"a": [1, [2, "]\"}"], {"b": null}], "c\u0022": {"a": -3.5e1 , "x":true}, "b": []}"#;
        assert_eq!(spans(text, &[key("a"), Segment::AnyIndex]), ["1", r#"[2, "]\"}"]"#, r#"{"b": null}"#]);
        assert_eq!(spans(text, &[key("a"), Segment::AnyIndex, key("b")]), ["null"]);
        assert_eq!(spans(text, &[key("a"), Segment::AnyIndex, Segment::AnyIndex]), ["2", r#""]\"}""#]);
        assert_eq!(spans(text, &[key("c\""), Segment::AnyKey]), ["-3.5e1", "true"]);
        assert_eq!(spans(text, &[key("b")]), ["[]"]);
        assert_eq!(spans(text, &[]), [text]);
        assert_eq!(spans(" 12", &[]), ["12"]);
        assert!(spans(text, &[key("z")]).is_empty());
    }

    #[test]
    fn what_is_not_json_is_no_reason_to_panic() {
        for text in ["]", "}}", ",,", "\"\\", "{]", "[}", "{1:2}", ":", "a]b", "{\"a\"]"] {
            spans_or_nothing(text);
        }
    }

    fn spans_or_nothing(text: &str) {
        let (mut scanner, mut events) = (Scanner::new(), Vec::new());
        for end in 0..=text.len() {
            scanner.push(&text.as_bytes()[..end], &[vec![Segment::AnyKey]], &mut events);
        }
        scanner.finish(text.as_bytes(), &mut events);
    }
}
