//! Paths inside a schema, stored as links to their parents so that a walk copies no text.

use std::fmt::Write;

use llgtrt_schema::path::{Step, push_key};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    Key(&'a str),
    Owned(String),
    Index(usize),
}

impl From<Step> for Segment<'_> {
    fn from(step: Step) -> Self {
        match step {
            Step::Key(key) => Segment::Owned(key),
            Step::Index(index) => Segment::Index(index),
        }
    }
}

pub(super) struct Paths<'a> {
    links: Vec<(usize, Segment<'a>)>,
}

impl<'a> Paths<'a> {
    /// The path of the schema itself.
    pub(super) const ROOT: usize = usize::MAX;

    pub(super) fn new() -> Self {
        Self { links: Vec::new() }
    }

    pub(super) fn push(&mut self, parent: usize, segment: Segment<'a>) -> usize {
        self.links.push((parent, segment));
        self.links.len() - 1
    }

    /// `properties.a.anyOf[1]`
    pub(super) fn text(&self, mut path: usize) -> String {
        let mut segments = Vec::new();
        while let Some((parent, segment)) = self.links.get(path) {
            segments.push(segment);
            path = *parent;
        }
        let mut text = String::new();
        for segment in segments.into_iter().rev() {
            match segment {
                Segment::Key(key) => push_key(&mut text, key),
                Segment::Owned(key) => push_key(&mut text, key),
                Segment::Index(index) => _ = write!(text, "[{index}]"),
            }
        }
        text
    }
}
