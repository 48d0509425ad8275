//! The reference page of JSON Schema, written from the rules, the formats, and what the normaliser
//! makes of the examples. Runs on a thread with a big stack.

use std::fmt::Write;

use crate::languages::formats;
use crate::limits::NormalizeLimits;
use crate::rules::RULES;
use crate::stages::normalize;

/// A keyword: what happens to it beside the rules that name it.
struct Keyword {
    name: &'static str,
    /// Whether llguidance holds it by itself, as far as no rule is needed.
    native: bool,
    /// What is left open with `verify` and refused otherwise; empty if nothing is.
    open: &'static str,
}

const fn keyword(name: &'static str, native: bool, open: &'static str) -> Keyword {
    Keyword { name, native, open }
}

const KEYWORDS: &[Keyword] = &[
    keyword("type", true, ""),
    keyword("enum", true, ""),
    keyword("const", true, ""),
    keyword("minimum", true, ""),
    keyword("maximum", true, ""),
    keyword("exclusiveMinimum", true, ""),
    keyword("exclusiveMaximum", true, ""),
    keyword("multipleOf", true, "steps of other factors than 2, 5 and one 3 beside bounds of many digits"),
    keyword("minLength", true, ""),
    keyword("maxLength", true, ""),
    keyword("pattern", true, "look-behind, back-references; patterns too complex to combine"),
    keyword("format", true, ""),
    keyword("contentEncoding", false, ""),
    keyword("nullable", false, ""),
    keyword("items", true, ""),
    keyword("prefixItems", true, ""),
    keyword("additionalItems", true, ""),
    keyword("minItems", true, ""),
    keyword("maxItems", true, ""),
    keyword("uniqueItems", false, "longer lists than the rule lists"),
    keyword("contains", false, ""),
    keyword("minContains", false, ""),
    keyword("maxContains", false, ""),
    keyword("properties", true, ""),
    keyword("required", true, ""),
    keyword("additionalProperties", true, ""),
    keyword("patternProperties", true, "more than 6 patterns that overlap on one object"),
    keyword("propertyNames", false, ""),
    keyword("minProperties", true, "two or more keys that have no names"),
    keyword("maxProperties", true, "counts over very many optional keys"),
    keyword("dependencies", false, ""),
    keyword("dependentRequired", false, ""),
    keyword("dependentSchemas", false, ""),
    keyword("allOf", true, ""),
    keyword("anyOf", true, ""),
    keyword("oneOf", false, ""),
    keyword("not", false, "of `multipleOf` with other factors than 2, 5 and one 3; of long patterns"),
    keyword("if", false, ""),
    keyword("then", false, ""),
    keyword("else", false, ""),
    keyword("unevaluatedProperties", false, "very many combinations of branches"),
    keyword("unevaluatedItems", false, "beside `contains`"),
    keyword("$ref", true, "targets outside of the schema (always refused: nothing is fetched)"),
    keyword("$dynamicRef", false, "more than one possible target (always refused)"),
    keyword("$recursiveRef", false, "more than one possible target (always refused)"),
];

const HEAD: &str = r"# JSON Schema

<!-- Generated from the normaliser's rules; do not edit. To write it again:
     LLGTRT_UPDATE=1 cargo test --release -p llgtrt-grammar reference -->

Drafts 4, 6, 7, 2019-09 and 2020-12, by `$schema`; without it the keywords of all drafts count.
In a schema that names its draft those of this draft count, as for any validator: `const` says nothing under draft 4.
A format that the draft does not have is what answers offer, but neither what a schema excludes nor what one branch of
`oneOf` says depends on it; so are `contentEncoding`, which validates in drafts 6 and 7 alone, and the formats that no
draft defines. References to the meta-schemas of the drafts
resolve; nothing is fetched. A schema is rewritten into what the grammar engine (llguidance) holds, then compiled. An answer that a grammar allows satisfies all of its
schema. What a grammar cannot hold is refused with the path of the keyword and what to write instead; it is
never ignored. With `verify` it is left open instead, and the answer is validated.

Beyond the schema: properties come in the order in which they are written, keys without a name last; between
tokens of JSON there is at most one blank; strings hold no control characters but `\b \f \n \r \t`, unless the
schema names one. Other keywords are annotations: `title`, `description`, `default`, `examples`,
`readOnly`, `contentMediaType` and the like.
";

/// The page, in Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    out.push_str("\n## Keywords\n\n| keyword | by the engine | by rules | refused, or left open with `verify` |\n|---|---|---|---|\n");
    for keyword in KEYWORDS {
        let rules: Vec<String> = RULES
            .iter()
            .filter(|rule| rule.keywords.contains(&keyword.name))
            .map(|rule| format!("[{0}](#{0})", rule.name))
            .collect();
        let native = if keyword.native { "yes" } else { "" };
        let _ = writeln!(out, "| `{}` | {native} | {} | {} |", keyword.name, rules.join(", "), keyword.open);
    }
    out.push_str(
        "\n## Formats\n\nA format that is not listed is an annotation.\n\n| format | held as |\n|---|---|\n",
    );
    for name in formats::NAMES {
        let how = match formats::lookup(name) {
            Some(format) if format.native => "the engine's own",
            Some(_) => "a pattern",
            None => "an annotation",
        };
        let _ = writeln!(out, "| `{name}` | {how} |");
    }
    out.push_str("\n## Rules\n");
    for rule in RULES {
        let standard = !rule.is_default_only();
        let limits = NormalizeLimits { compose: true, standard, ..NormalizeLimits::default() };
        let _ = write!(out, "\n### {}\n\n{}\n\n", rule.name, rule.doc);
        let _ = write!(out, "```json\n{}\n```\n", rule.example);
        let Ok(schema) = serde_json::from_str(rule.example) else { continue };
        let Ok(found) = normalize(&schema, &limits) else { continue };
        match found.lark {
            Some(lark) => _ = write!(out, "becomes\n```\n{lark}```\n"),
            None => _ = write!(out, "becomes\n```json\n{}\n```\n", spaced(&found.schema)),
        }
    }
    out
}

/// JSON on one line, with blanks.
fn spaced(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let member =
                |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), spaced(value));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_and_keyword_is_in_the_table() {
        for rule in RULES {
            for name in rule.keywords {
                assert!(KEYWORDS.iter().any(|keyword| keyword.name == *name), "{name}");
            }
        }
        for keyword in KEYWORDS {
            let ruled = RULES.iter().any(|rule| rule.keywords.contains(&keyword.name));
            assert!(keyword.native || ruled, "{}", keyword.name);
            let known = crate::keyword::is_constraint(keyword.name);
            let plain = ["additionalItems", "minContains", "maxContains", "then", "else"];
            assert!(known || plain.contains(&keyword.name), "{}", keyword.name);
        }
        for name in formats::NAMES {
            assert!(formats::lookup(name).is_some(), "{name}");
        }
    }
}
