//! `anemeter inspect X.aimodel`: what is in a Core AI asset.

use std::path::Path;

use super::{Args, text};
use crate::cli::output::Output;
use crate::cli::units::Bytes;
use crate::cli::{Failure, Result, Status};
use crate::coreai::asset::Asset;
use crate::evaluate::asset_summary::{AssetFunction, AssetSummary, PortSummary};
use crate::render::Table;

pub(super) fn inspect(path: &Path, args: &Args, output: &mut Output) -> Result<Status> {
    if args.cost {
        return Err(Failure::at(path, "costs are computed of Core ML packages only")
            .with_help("leave `--cost` out, or give the .mlpackage of the same model"));
    }
    let asset = Asset::open(path)?;
    if args.mil {
        output.text(asset.program())?;
        return Ok(Status::Good);
    }
    let summary = AssetSummary::of(&asset);
    if args.json {
        output.json(&summary)?;
        return Ok(Status::Good);
    }
    overview(&summary, output)?;
    if args.ops {
        for function in &summary.functions {
            text::operation_counts(&function.name, &function.operations, output)?;
        }
    }
    if args.weights {
        text::weight_list(&summary.weights, output)?;
    }
    Ok(Status::Good)
}

fn overview(summary: &AssetSummary, out: &mut Output) -> Result<()> {
    out.line(format_args!("{}", summary.asset))?;
    out.line(format_args!(
        "  Core AI asset, aicode {}, program {}, weights {}",
        summary.version,
        Bytes(summary.program_bytes),
        Bytes(summary.weight_bytes)
    ))?;
    let texts = &summary.metadata;
    let named = [
        ("producer", &summary.producer),
        ("created", &texts.creation_date),
        ("description", &texts.description),
        ("author", &texts.author),
        ("license", &texts.license),
    ];
    for (key, value) in named.into_iter().filter(|(_, value)| !value.is_empty()) {
        out.line(format_args!("  {key}: {}", value.escape_debug()))?;
    }
    for (key, value) in &texts.other {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out.line(format_args!("  {}: {}", key.escape_debug(), value.escape_debug()))?;
    }
    for function in &summary.functions {
        self::function(function, out)?;
    }
    composites(summary, out)?;
    text::parameter_classes(&summary.parameters, out)
}

fn function(function: &AssetFunction, out: &mut Output) -> Result<()> {
    let (name, count) = (function.name.escape_debug(), function.operation_count);
    out.line(format_args!("\nfunction {name} ({count} operations)"))?;
    let mut table = Table::new(&["", "name", "type", "shape"]);
    let groups = [("input", &function.inputs), ("state", &function.states), ("output", &function.outputs)];
    for (role, ports) in groups {
        for port in ports {
            table.row([role.to_owned(), port.name.clone(), port.ty.clone(), shape(port)]);
        }
    }
    out.text(table.indented(2))
}

fn shape(port: &PortSummary) -> String {
    let dims: Vec<_> =
        port.shape.iter().map(|size| size.map_or_else(|| "?".to_owned(), |size| size.to_string())).collect();
    let constraints = port.constraints.as_ref().map(|text| format!(", {text}")).unwrap_or_default();
    format!("[{}]{constraints}", dims.join(", "))
}

/// Private graphs by the operation that they stand for.
fn composites(summary: &AssetSummary, out: &mut Output) -> Result<()> {
    if summary.composites.is_empty() {
        return Ok(());
    }
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    for composite in &summary.composites {
        *kinds.entry(composite.stands_for.as_deref().unwrap_or("unnamed")).or_default() += 1;
    }
    out.line("\ncomposite operations")?;
    let mut table = Table::new(&[">graphs", "stands for"]);
    for (kind, count) in kinds {
        table.row([count.to_string(), kind.to_owned()]);
    }
    out.text(table.indented(2))
}
