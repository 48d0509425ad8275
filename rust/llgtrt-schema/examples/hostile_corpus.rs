//! Prints the schemas of the hostile corpus, one JSON object with `name` and `schema` per line: other programs
//! send them to a server.

use std::io::{BufWriter, Write};

use serde_json::json;

#[path = "../tests/corpus/mod.rs"]
mod corpus;

fn main() -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for (name, schema) in corpus::hostile() {
        serde_json::to_writer(&mut out, &json!({ "name": name, "schema": schema }))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
