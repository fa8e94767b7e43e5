//! Configuration files: every key, from the types that read them.

use std::fmt::Write;
use std::fs;

use anemeter::{export, gate, hardware, harness, lint, sweep};
use anyhow::{Context, Result};
use schemars::{Schema, schema_for};
use serde_json::Value;

use super::schema::{Key, keys};
use super::{Page, cell};
use xtask::project::Project;

pub(super) const PAGE: Page = Page {
    name: "config.md",
    title: "Configuration files",
    source: "the types that read them and the files in configs/",
    body: page,
};

/// A kind of file.
struct Kind {
    title: &'static str,
    /// The command and flag that take it.
    taken_by: &'static str,
    /// The file that comes with the program.
    shipped: Option<&'static str>,
    schema: fn() -> Schema,
}

const KINDS: &[Kind] = &[
    Kind {
        title: "Export",
        taken_by: "anemeter export --config",
        shipped: Some("configs/convert_coreml.yaml"),
        schema: || schema_for!(export::ConfigFile),
    },
    Kind {
        title: "Lint",
        taken_by: "anemeter lint --waivers",
        shipped: None,
        schema: || schema_for!(lint::Config),
    },
    #[cfg(feature = "default")]
    Kind {
        title: "Verify",
        taken_by: "anemeter verify --thresholds",
        shipped: Some("configs/verify.yaml"),
        schema: || schema_for!(anemeter::verify::File),
    },
    Kind {
        title: "Bench",
        taken_by: "anemeter bench --workload",
        shipped: Some("configs/bench.yaml"),
        schema: || schema_for!(harness::BenchConfig),
    },
    Kind {
        title: "Sweep",
        taken_by: "anemeter bench --sweep",
        shipped: Some("configs/sweep.yaml"),
        schema: || schema_for!(sweep::SweepConfig),
    },
    Kind {
        title: "Gates",
        taken_by: "anemeter gate --gates",
        shipped: Some("configs/gates.yaml"),
        schema: || schema_for!(gate::GatesFile),
    },
    Kind {
        title: "Hardware profiles",
        taken_by: "anemeter bench --profiles",
        shipped: Some("configs/hardware_profiles.yaml"),
        schema: hardware::Profiles::schema,
    },
];

const INTRODUCTION: &str = "\
YAML, read strictly: an unknown key is an error that names the nearest known one. *Shipped* is the value in the file of \
`configs/`;\na dash means that the file leaves the key out.\n";

fn page(project: &Project) -> Result<String> {
    let mut text = String::from(INTRODUCTION);
    for kind in KINDS {
        section(kind, project, &mut text)?;
    }
    Ok(text)
}

fn section(kind: &Kind, project: &Project, text: &mut String) -> Result<()> {
    let shipped: Value = match kind.shipped {
        Some(path) => {
            let file = fs::read_to_string(project.root.join(path)).with_context(|| format!("read {path}"))?;
            serde_yaml::from_str(&file).with_context(|| format!("read {path}"))?
        }
        None => Value::Null,
    };
    let file = kind.shipped.map_or(String::new(), |path| format!("; [{path}](../../{path})"));
    write!(text, "\n## {}\n\n`{}`{file}\n\n", kind.title, kind.taken_by)?;
    *text += "| key | value | shipped | meaning |\n|---|---|---|---|\n";
    for key in keys((kind.schema)().as_value(), usize::MAX) {
        let needed = if key.required { "" } else { " (optional)" };
        let (value, meaning) = (cell(&key.kind), cell(&key.description));
        writeln!(text, "| `{}` | {value}{needed} | {} | {meaning} |", key.path, default(&key, &shipped))?;
    }
    Ok(())
}

/// The value of a key in the file that comes with the program.
fn default(key: &Key, shipped: &Value) -> String {
    let path = key.path.trim_end_matches("[]");
    let found = path.split('.').try_fold(shipped, |value, name| value.get(name));
    match found {
        None | Some(Value::Null | Value::Object(_)) => "–".to_owned(),
        Some(Value::Array(items)) if items.iter().any(Value::is_object) => "–".to_owned(),
        Some(Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("`[{}]`", items.join(", "))
        }
        Some(value) => format!("`{}`", plain(value)),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
