//! Operations.

use std::collections::BTreeMap;
use std::fmt::Write;

use anemeter::coreai::convert;
use anemeter::mil::op::{Arity, OpDef, Param, Presence};
use anemeter::mil::ops;
use anyhow::Result;

use super::Page;

pub(super) const PAGE: Page =
    Page { name: "ops.md", title: "Operations", source: "the tables of src/mil/ops/", body: |_| page() };

const LEGEND: &str = "\
Each row is one operation as its latest generation takes it. Parameters that may be left out end in `?`, those that take several \
values\nin `…`; those in italics must be constant. Generations are the opsets that define or redefine it; a program of \
an\nopset uses the latest that is not newer. The family is the file in `src/mil/ops/`. Operations that \
`export --format coreai`\nhas a form for are marked under Core AI.\n";

fn page() -> Result<String> {
    let mut all: BTreeMap<&str, (&str, Vec<&OpDef>)> = BTreeMap::new();
    for (family, def) in ops::by_family() {
        all.entry(def.name).or_insert_with(|| (family, Vec::new())).1.push(def);
    }
    let mut text = format!("{} operations.\n\n{LEGEND}\n", all.len());
    text += "| operation | generations | Core AI | family | parameters |\n|---|---|---|---|---|\n";
    for (name, (family, mut defs)) in all {
        defs.sort_by_key(|def| def.since);
        let generations: Vec<&str> = defs.iter().map(|def| def.since.name()).collect();
        let latest = defs.last().map_or(&[][..], |def| def.params);
        let params: Vec<String> = latest.iter().map(param).collect();
        let coreai = if convert::ops::supported().any(|op| op == name) { "yes" } else { "" };
        let (generations, params) = (generations.join(", "), params.join(", "));
        writeln!(text, "| `{name}` | {generations} | {coreai} | `{family}` | {params} |")?;
    }
    Ok(text)
}

fn param(param: &Param) -> String {
    let several = if param.arity == Arity::Many { "…" } else { "" };
    let optional = if param.presence == Presence::Required { "" } else { "?" };
    let name = format!("`{}{several}{optional}`", param.name);
    if param.constant { format!("*{name}*") } else { name }
}
