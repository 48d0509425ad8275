//! The JSON Schema Test Suite, with a committed table of what is expected per case.
//!
//! `right`: every instance gets the suite's verdict. `narrow`: nothing invalid is accepted, but something
//! valid is not (keys in another order, whole numbers written as 1.0, formats that the suite only takes
//! as annotations). `annotation`: an optional assertion that is an annotation here. `refused`: with a
//! reason. There is no `wrong`.
//!
//! The suite is read from `json-schema-test-suite.jsonl` in `LLGTRT_SHARED`, or in a folder `shared/data`
//! beside the checkout; without it the test is skipped. `LLGTRT_UPDATE=1` writes the table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::support::Bench;
use llgtrt_core::GrammarSpec;
use serde_json::{Value, json};

fn suite() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [
        std::env::var_os("LLGTRT_SHARED").map(PathBuf::from),
        Some(root.join("../shared/data")),
        Some(root.join("../../shared/data")),
    ];
    folders
        .into_iter()
        .flatten()
        .find_map(|folder| std::fs::read_to_string(folder.join("json-schema-test-suite.jsonl")).ok())
}

/// JSON with a blank behind commas and colons, as most programs and models write it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(k, v)| format!("{}: {}", Value::from(k.as_str()), spaced(v))).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

fn judge(bench: &Bench, row: &Value) -> &'static str {
    let mut schema = row["schema"].clone();
    if let (Some("draft7"), Some(object)) = (row["draft"].as_str(), schema.as_object_mut()) {
        object.entry("$schema").or_insert_with(|| json!("http://json-schema.org/draft-07/schema#"));
    }
    let Ok(grammar) = bench.compiler.compile(&GrammarSpec::JsonSchema(schema.to_string())) else {
        return "refused";
    };
    let mut narrow = false;
    for test in row["tests"].as_array().into_iter().flatten() {
        let taken = bench.takes(&grammar, &spaced(&test["data"]));
        match (taken, test["valid"].as_bool()) {
            (true, Some(false)) => {
                let annotation = row["file"] == "optional/content";
                return if annotation { "annotation" } else { "wrong" };
            }
            (false, Some(true)) => narrow = true,
            _ => {}
        }
    }
    if narrow { "narrow" } else { "right" }
}

#[test]
fn the_suite_gets_what_the_table_says() {
    let Some(text) = suite() else {
        eprintln!("skipped: json-schema-test-suite.jsonl is not there; set LLGTRT_SHARED to its folder");
        return;
    };
    let bench = Bench::refusing();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut table = String::from("draft\tfile\tcase\texpected\n");
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("the suite is JSON lines");
        let mut name = format!(
            "{}\t{}\t{}",
            row["draft"].as_str().unwrap_or(""),
            row["file"].as_str().unwrap_or(""),
            row["description"].as_str().unwrap_or("").replace(['\t', '\n'], " ")
        );
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            let _ = write!(name, " #{count}");
        }
        let _ = writeln!(table, "{name}\t{}", judge(&bench, &row));
    }
    assert!(
        !table.lines().any(|line| line.ends_with("\twrong")),
        "an invalid instance is accepted:\n{table}"
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/suite-expected.tsv");
    if std::env::var_os("LLGTRT_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the table");
        std::fs::write(&path, &table).expect("the table can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the table is in the repository");
    let changed: Vec<(&str, &str)> =
        expected.lines().zip(table.lines()).filter(|(old, new)| old != new).collect();
    assert!(changed.is_empty() && expected.lines().count() == table.lines().count(), "changed: {changed:#?}");
}
