//! Paths inside a schema, stored as links to their parents so that a walk copies no text.

use std::fmt::Write;

use llgtrt_schema::path::{Step, push_key};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathSegment<'a> {
    Key(&'a str),
    Owned(String),
    Index(usize),
}

impl From<Step> for PathSegment<'_> {
    fn from(step: Step) -> Self {
        match step {
            Step::Key(key) => PathSegment::Owned(key),
            Step::Index(index) => PathSegment::Index(index),
        }
    }
}

pub(super) struct Paths<'a> {
    links: Vec<(usize, PathSegment<'a>)>,
}

impl<'a> Paths<'a> {
    /// The path of the schema itself.
    pub(super) const ROOT: usize = usize::MAX;

    pub(super) fn new() -> Self {
        Self { links: Vec::new() }
    }

    pub(super) fn push(&mut self, parent: usize, segment: PathSegment<'a>) -> usize {
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
                PathSegment::Key(key) => push_key(&mut text, key),
                PathSegment::Owned(key) => push_key(&mut text, key),
                PathSegment::Index(index) => _ = write!(text, "[{index}]"),
            }
        }
        text
    }
}
