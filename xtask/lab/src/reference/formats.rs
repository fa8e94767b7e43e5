//! Formats of documents that the program writes, from their published schemas.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::schema::keys;
use super::{Page, cell};
use xtask::project::Project;

pub(super) const PAGE: Page =
    Page { name: "formats.md", title: "Formats", source: "docs/schemas/", body: page };

/// A published schema: its file, what writes it, and the page that explains it.
struct Format {
    schema: &'static str,
    written_by: &'static str,
    page: &'static str,
}

const FORMATS: &[Format] = &[
    Format { schema: "export", written_by: "`export.json` of `anemeter export`", page: "export.md" },
    Format { schema: "report", written_by: "`report.json` of `anemeter bench`", page: "benchmark.md" },
    Format { schema: "verdict", written_by: "`anemeter gate --json`", page: "gates.md" },
];

fn page(project: &Project) -> Result<String> {
    let mut text = String::from(
        "Documents state their version. The schemas are made from the types and are strict: no other key is allowed.\n",
    );
    for format in FORMATS {
        section(format, project, &mut text)?;
    }
    Ok(text)
}

fn section(format: &Format, project: &Project, text: &mut String) -> Result<()> {
    let Format { schema: name, written_by, page } = format;
    let path = format!("docs/schemas/{name}.schema.json");
    let file = fs::read_to_string(project.root.join(&path)).with_context(|| format!("read {path}"))?;
    let schema: Value = serde_json::from_str(&file).with_context(|| format!("read {path}"))?;
    let described = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
    write!(
        text,
        "\n## {name}\n\n{written_by}. {described}\n[JSON schema](../schemas/{name}.schema.json), [explained](../{page}).\n\n\
         | key | value | meaning |\n|---|---|---|\n"
    )?;
    for key in keys(&schema, 1) {
        let needed = if key.required { "" } else { " (optional)" };
        let (value, meaning) = (cell(&key.kind), cell(&key.description));
        writeln!(text, "| `{}` | {value}{needed} | {meaning} |", key.path)?;
    }
    Ok(())
}
