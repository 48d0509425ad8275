//! The table of rewriting rules, from which the documentation is made.

/// A rewriting rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// The keywords it removes.
    pub keywords: &'static [&'static str],
    /// What it does and why the meaning stays.
    pub doc: &'static str,
    /// A schema that it is used on.
    pub example: &'static str,
}

impl Rule {
    /// Whether it leaves out what the standard allows, and [`NormalizeLimits::standard`] turns it off.
    ///
    /// [`NormalizeLimits::standard`]: crate::NormalizeLimits::standard
    pub fn is_default_only(&self) -> bool {
        matches!(self.name, "closed" | "digits")
    }

    /// Whether answers may lack what the standard allows where the rule of this name was used.
    pub fn narrows(name: &str) -> bool {
        NARROWING.contains(&name)
    }
}

/// Rules that leave out what the standard allows.
const NARROWING: &[&str] =
    &["closed", "common-format", "integer-format", "content-encoding", "digits", "narrowed", "float-limits"];

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "unknown-format",
        keywords: &["format"],
        doc: "A format that no draft defines is an annotation, as the standard says. It is left out.",
        example: r#"{"type": "string", "format": "colour"}"#,
    },
    Rule {
        name: "format-pattern",
        keywords: &["format"],
        doc: "A format of the standard that the grammar engine lacks becomes a pattern of the same strings.",
        example: r#"{"type": "string", "format": "json-pointer"}"#,
    },
    Rule {
        name: "common-format",
        keywords: &["format"],
        doc: "Of some formats those strings are offered that the libraries of programming languages can read: \
              years from 0001 on, seconds up to 59, at most six digits of a fraction, six digits of a number in a \
              duration; e-mail addresses with at most 64 characters before the `@` and names of at most 253 with \
              labels of at most 63; regular expressions without classes by Unicode property. Long names of very \
              many parts are left out with them. What a schema excludes, and lists of values, are judged by the \
              standard.",
        example: r#"{"type": "string", "format": "date"}"#,
    },
    Rule {
        name: "format-beside-pattern",
        keywords: &["format", "pattern"],
        doc: "A pattern says what a format beside it means: a format that is no standard's is left out, and so \
              is one that no string of the pattern satisfies (a time without zone).",
        example: r#"{"type": "string", "format": "cuid", "pattern": "^[a-c]+$"}"#,
    },
    Rule {
        name: "integer-format",
        keywords: &["format"],
        doc: "A whole number's format is a range: `int8` to `int64`, `uint8` to `uint64`. Of 64 bits, the numbers \
              that the grammar engine holds: 1024 at the lower end, and those above 2^63, are not offered unless \
              `minimum` and `maximum` say so.",
        example: r#"{"type": "integer", "format": "int32"}"#,
    },
    Rule {
        name: "content-encoding",
        keywords: &["contentEncoding"],
        doc: "`base16`, `base64` and `base64url` are patterns, unless a format or a pattern is there already.",
        example: r#"{"type": "string", "contentEncoding": "base64"}"#,
    },
    Rule {
        name: "nullable",
        keywords: &["nullable"],
        doc: "OpenAPI's `nullable: true` beside a `type` adds `null` to it. A document that names a draft of JSON \
              Schema is none of OpenAPI's.",
        example: r#"{"type": "string", "nullable": true}"#,
    },
    Rule {
        name: "other-draft",
        keywords: &[
            "const",
            "contains",
            "contentEncoding",
            "propertyNames",
            "if",
            "dependentRequired",
            "dependentSchemas",
            "unevaluatedItems",
            "unevaluatedProperties",
            "prefixItems",
            "additionalItems",
        ],
        doc: "A keyword that the draft named by `$schema` does not have says nothing, as in validators: the rule \
              tells where, since whoever wrote it meant something. Without `$schema` all keywords count.",
        example: r#"{"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "const": 3}"#,
    },
    Rule {
        name: "pattern-dialect",
        keywords: &["pattern", "patternProperties"],
        doc: "A pattern is read as ECMA-262 and written in the dialect of the grammar engine.",
        example: r#"{"type": "string", "pattern": "^\\S$"}"#,
    },
    Rule {
        name: "look-ahead",
        keywords: &["pattern", "patternProperties"],
        doc: "Look-ahead becomes an intersection or a complement of regular languages, written back as a \
              plain pattern by way of an automaton.",
        example: r#"{"type": "string", "pattern": "^(?!ab)[a-c]+$"}"#,
    },
    Rule {
        name: "trivial",
        keywords: &["uniqueItems", "minLength", "minItems", "minProperties", "contains"],
        doc: "A keyword that asks for nothing (`uniqueItems: false`, `minItems: 0`) is left out.",
        example: r#"{"type": "array", "items": {"type": "integer"}, "uniqueItems": false}"#,
    },
    Rule {
        name: "closed",
        keywords: &["properties"],
        doc: "An object that names `properties` and says nothing of others (no `additionalProperties`, \
              `patternProperties`, `propertyNames` or `unevaluatedProperties`, no larger `minProperties`) takes \
              no others, because a model invents some where it may. It is decided where all schemas of one \
              object are merged, so that `allOf` keeps the properties of each part. \
              `additionalProperties: true` opens an object, `x-guidance: {\"standard\": true}` all of them.",
        example: r#"{"type": "object", "properties": {"a": {"type": "integer"}}}"#,
    },
    Rule {
        name: "one-of",
        keywords: &["oneOf"],
        doc: "`oneOf` becomes `anyOf` where no two branches have a value in common: by type, by constants, \
              by a key that one requires and the other forbids, by ranges, lengths or patterns; and by what \
              the schema around them asks for, such as the key that tells them apart.",
        example: r#"{"oneOf": [{"type": "string"}, {"type": "integer"}]}"#,
    },
    Rule {
        name: "one-of-exclusive",
        keywords: &["oneOf"],
        doc: "Branches of `oneOf` that overlap are cut to what no other branch accepts: A and not B, or B and \
              not A.",
        example: r#"{"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}"#,
    },
    Rule {
        name: "not",
        keywords: &["not"],
        doc: "`not` is pushed inwards: over `anyOf` and `allOf` by De Morgan, over `required` to a forbidden \
              key, over `properties` to a required key with the opposite value, over types, ranges, lengths, \
              lists and patterns to their complements.",
        example: r#"{"type": "string", "not": {"enum": ["a", "b"]}}"#,
    },
    Rule {
        name: "if-then-else",
        keywords: &["if", "then", "else"],
        doc: "`if` A `then` B `else` C becomes (A and B) or (not A and C).",
        example: r#"{"type": "integer", "if": {"minimum": 5}, "then": {"multipleOf": 5}, "else": {"minimum": 0}}"#,
    },
    Rule {
        name: "dependencies",
        keywords: &["dependencies", "dependentRequired", "dependentSchemas"],
        doc: "A dependency on a key becomes two alternatives: the key is absent, or what it needs holds.",
        example: r#"{"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"b": ["a"]}}"#,
    },
    Rule {
        name: "enum-filter",
        keywords: &["enum", "const"],
        doc: "Other constraints beside a list of values are decided on each value.",
        example: r#"{"enum": ["a", "abc", 5], "not": {"minLength": 2}}"#,
    },
    Rule {
        name: "property-names",
        keywords: &["propertyNames"],
        doc: "Constraints on keys become patterns of keys, or a list of properties.",
        example: r#"{"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}"#,
    },
    Rule {
        name: "property-counts",
        keywords: &["minProperties", "maxProperties"],
        doc: "Counts over optional keys become alternatives in which the keys are required or absent.",
        example: r#"{"properties": {"a": {}, "b": {}, "c": {}}, "type": "object", "additionalProperties": false, "minProperties": 2}"#,
    },
    Rule {
        name: "overlapping-patterns",
        keywords: &["patternProperties"],
        doc: "Patterns of keys that overlap are split into disjoint ones.",
        example: r#"{"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}}}"#,
    },
    Rule {
        name: "unique-items",
        keywords: &["uniqueItems"],
        doc: "Lists of few possible values without repetition are listed; tuples whose items differ in any \
              case need no check.",
        example: r#"{"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true}"#,
    },
    Rule {
        name: "contains",
        keywords: &["contains", "minContains", "maxContains"],
        doc: "An item that must occur becomes alternatives by position in a list of bounded length, or a \
              count where all items satisfy it.",
        example: r#"{"type": "array", "contains": {"const": 1}, "maxItems": 2}"#,
    },
    Rule {
        name: "composed",
        keywords: &["contains", "minContains", "maxContains", "patternProperties", "propertyNames", "not"],
        doc: "What has to occur somewhere in a list, or under some key that has no name, becomes rules of a \
              grammar: others, one that fits, others. A key without a name that fits comes last of its kind, \
              because an object could have the same key twice.",
        example: r#"{"type": "array", "contains": {"const": 1}}"#,
    },
    Rule {
        name: "unevaluated",
        keywords: &["unevaluatedProperties", "unevaluatedItems"],
        doc: "What other keywords evaluate is worked out for each combination of branches; the rest becomes \
              `additionalProperties` or `items`.",
        example: r#"{"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}}], "unevaluatedProperties": false}"#,
    },
    Rule {
        name: "narrowed",
        keywords: &["oneOf", "not", "if"],
        doc: "One of several ways not to satisfy a schema that no grammar can hold (some item of a long list \
              is wrong, some key without a name is) is left out, if there are others; so are the numbers next \
              to a bound of very many digits where a schema has to do, and, in one of very many branches of \
              `oneOf`, the keys that another branch requires. Every answer is still valid; a few \
              exotic valid ones are not offered.",
        example: r#"{"type": "array", "not": {"uniqueItems": true, "maxItems": 2}}"#,
    },
    Rule {
        name: "float-limits",
        keywords: &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
        doc: "A bound at the limit of a floating-point type (3.4e38, 1.8e308) is no choice of the author. \
              Such numbers have up to 18 digits before the point.",
        example: r#"{"type": "number", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38}"#,
    },
    Rule {
        name: "large-bounds",
        keywords: &[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "enum",
            "const",
            "not",
        ],
        doc: "Numbers in a range that the grammar engine, which computes with doubles, does not hold exactly \
              become a regular expression over their digits: bounds of any size are exact, and so are multiples of a step, \
              and all numbers but those, where its prime factors are 2, 5 and one 3 at most.",
        example: r#"{"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}"#,
    },
    Rule {
        name: "digits",
        keywords: &["type"],
        doc: "Numbers have at most 19 digits before the point, 17 behind it and 2 in an exponent, because a model \
              that begins to write digits may go on until its limit. This is no part of the grammar: digits are not \
              offered where that many are written and something else may follow, and a number may be as \
              long as the longest one that the schema names. `x-guidance: {\"standard\": true}` turns it off.",
        example: r#"{"type": "number"}"#,
    },
    Rule {
        name: "dynamic-ref",
        keywords: &["$dynamicRef", "$recursiveRef"],
        doc: "A dynamic reference with a single possible target is a plain reference.",
        example: r##"{"type": "array", "items": {"$dynamicRef": "#n"}, "$defs": {"n": {"$dynamicAnchor": "n", "type": "null"}}}"##,
    },
];

/// A rule that was used, and where first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleUse {
    /// Name of the rule in [`RULES`].
    pub rule: &'static str,
    /// Path of the schema it was used on.
    pub path: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_narrows_is_a_rule() {
        let is_rule = |name: &&str| RULES.iter().any(|rule| rule.name == *name);
        assert!(NARROWING.iter().all(is_rule), "{NARROWING:?}");
        assert!(Rule::narrows("closed") && !Rule::narrows("one-of"));
    }
}
