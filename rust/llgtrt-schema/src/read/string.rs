//! Reads what schemas say of strings: lengths, patterns, formats and encodings.

use serde_json::{Map, Value};

use crate::error::{Reason, SchemaError};
use crate::formula::{FormulaId, Lit};
use crate::languages::formats::{self, Format};
use crate::languages::{MAX_PATTERN, Pattern};
use crate::normalizer::Normalizer;
use crate::read::{bad, count};
use crate::source::Place;

impl<'a> Normalizer<'a> {
    pub(super) fn read_string(
        &mut self,
        place: &Place<'a>,
        object: &Map<String, Value>,
        keyword: &str,
        value: &Value,
    ) -> Result<Option<FormulaId>, SchemaError> {
        let f = match keyword {
            "minLength" => self.forms.lit(Lit::MinLength(count(place, keyword, value)?)),
            "maxLength" => self.forms.lit(Lit::MaxLength(count(place, keyword, value)?)),
            "pattern" => {
                let source = value.as_str().ok_or_else(|| bad(place, keyword, "a string"))?;
                let pattern = self.pattern(place, keyword, source)?;
                match self.conjuncts(&pattern, source) {
                    Some(parts) => self.forms.and(parts),
                    None => self.forms.lit(Lit::Match(pattern.language, pattern.text.map(Into::into))),
                }
            }
            "contentEncoding" => {
                let format = value.as_str().and_then(formats::encoding);
                let Some(format) = format.filter(|_| !says_more(object)) else { return Ok(None) };
                self.rule("content-encoding", &place.path);
                let is_asserted = place.dialect.asserts_encoding();
                self.format(place, keyword, "", format, is_asserted)?
            }
            _ => {
                let name = value.as_str().ok_or_else(|| bad(place, keyword, "a string"))?;
                let Some(format) = formats::lookup(name) else {
                    self.rule("unknown-format", &place.path);
                    return Ok(None);
                };
                if self.is_overruled(object, format) {
                    self.rule("format-beside-pattern", &place.path);
                    return Ok(None);
                }
                let is_asserted = place.dialect.asserts(format);
                self.format(place, keyword, name, format, is_asserted)?
            }
        };
        self.forms.set_path(f, &place.path.child(keyword));
        Ok(Some(f))
    }

    fn format(
        &mut self,
        place: &Place<'a>,
        keyword: &str,
        name: &str,
        format: Format,
        is_asserted: bool,
    ) -> Result<FormulaId, SchemaError> {
        let pattern = self.pattern(place, keyword, format.pattern)?;
        let mut text = pattern.text;
        if format.native {
            text = Some(format!("{}{name}", formats::MARK));
        } else if let Some(common) = format.common {
            self.rule("common-format", &place.path);
            text = self.pattern(place, keyword, common)?.text;
        } else if keyword == "format" {
            self.rule("format-pattern", &place.path);
        }
        if !is_asserted {
            return Ok(self.forms.lit(Lit::Offer(pattern.language, text.map(Into::into))));
        }
        let own = self.forms.lit(Lit::Match(pattern.language, text.map(Into::into)));
        Ok(match format.max_length {
            Some(max) => {
                let limit = self.forms.lit(Lit::MaxLength(max));
                self.forms.and([own, limit])
            }
            None => own,
        })
    }

    /// Patterns that are written one by one, for one with look-ahead that is too long to be written as a whole: the
    /// engine intersects them as it goes.
    fn conjuncts(&mut self, pattern: &Pattern, source: &str) -> Option<Vec<FormulaId>> {
        if pattern.text.is_some() || self.langs.print(pattern.language, MAX_PATTERN).is_some() {
            return None;
        }
        let parts = self.langs.conjuncts(source)?;
        let lits = parts.into_iter().map(|(part, negated)| {
            let lit = self.forms.lit(Lit::Match(part.language, part.text.map(Into::into)));
            if negated { self.forms.not(lit) } else { lit }
        });
        Some(lits.collect())
    }

    /// Whether a pattern beside the format says what is meant: always, if the format is no standard's;
    /// otherwise if no string satisfies both.
    fn is_overruled(&mut self, object: &Map<String, Value>, format: Format) -> bool {
        let Some(source) = object.get("pattern").and_then(Value::as_str) else { return false };
        if format.since.is_none() {
            return true;
        }
        let own = self.langs.pattern(format.common.unwrap_or(format.pattern));
        let (Ok(own), Ok(beside)) = (own, self.langs.pattern(source)) else { return false };
        let both = self.langs.and([own.language, beside.language]);
        self.langs.is_empty(both) == Some(true)
    }

    pub(crate) fn pattern(
        &mut self,
        place: &Place<'a>,
        keyword: &str,
        source: &str,
    ) -> Result<Pattern, SchemaError> {
        let pattern = self.langs.pattern(source).map_err(|why| {
            SchemaError::new(
                &place.path,
                keyword,
                format!("bad regular expression: {}", why.message),
                "use classes, groups, repetitions, `^` and `$`",
            )
            .because(if why.is_unsupported { Reason::Unsupported } else { Reason::Malformed })
        })?;
        if pattern.text.is_none() {
            self.rule("look-ahead", &place.path);
        }
        Ok(pattern)
    }
}

/// Whether another keyword says which strings are encoded ones.
fn says_more(object: &Map<String, Value>) -> bool {
    let format = object.get("format").and_then(Value::as_str);
    object.contains_key("pattern") || format.is_some_and(|name| formats::lookup(name).is_some())
}
