//! The terminal form of a summary.

use std::collections::BTreeMap;

use crate::cli::Result;
use crate::cli::output::Output;
use crate::cli::units::{Bytes, Count};
use crate::evaluate::summary::{FeatureSummary, FunctionSummary, ParameterClass, Summary, WeightSummary};
use crate::mil::Opset;
use crate::render::Table;

pub(super) fn overview(summary: &Summary, out: &mut Output) -> Result<()> {
    let release = Opset::all().find(|o| o.spec_version() == summary.spec_version).map_or("", Opset::name);
    out.line(format_args!("{}", summary.package))?;
    out.line(format_args!(
        "  ML program, specification {} ({release}), program {}, weights {}",
        summary.spec_version,
        Bytes(summary.model_bytes),
        Bytes(summary.weight_bytes)
    ))?;
    metadata(summary, out)?;
    for function in &summary.functions {
        self::function(summary, function, out)?;
    }
    parameter_classes(&summary.parameters, out)
}

fn metadata(summary: &Summary, out: &mut Output) -> Result<()> {
    let texts = &summary.metadata;
    let named = [
        ("description", &texts.description),
        ("version", &texts.version),
        ("author", &texts.author),
        ("license", &texts.license),
    ];
    let own = texts.user_defined.iter().map(|(key, value)| (key.as_str(), value));
    for (key, value) in named.into_iter().filter(|(_, text)| !text.is_empty()).chain(own) {
        out.line(format_args!("  {}: {}", key.escape_debug(), value.escape_debug()))?;
    }
    Ok(())
}

fn function(summary: &Summary, function: &FunctionSummary, out: &mut Output) -> Result<()> {
    let default = summary.functions.len() > 1 && function.name == summary.default_function;
    out.line(format_args!(
        "\nfunction {}{} ({}, {} operations)",
        function.name,
        if default { ", the default" } else { "" },
        function.opset,
        function.operation_count
    ))?;
    let mut table = Table::new(&["", "name", "type", "shape"]);
    let groups = [("input", &function.inputs), ("state", &function.states), ("output", &function.outputs)];
    for (role, features) in groups {
        for feature in features {
            let role = if feature.optional { format!("{role}, optional") } else { role.to_owned() };
            table.row([role, feature.name.clone(), feature.ty.clone(), shape(feature)]);
        }
    }
    out.text(table.indented(2))
}

fn shape(feature: &FeatureSummary) -> String {
    let default =
        feature.shape.as_ref().map_or_else(|| "depends on the inputs".to_owned(), |s| format!("{s:?}"));
    if !feature.enumerated_shapes.is_empty() {
        let shapes: Vec<_> = feature.enumerated_shapes.iter().map(|s| format!("{s:?}")).collect();
        return format!("{default}, one of {}", shapes.join(" "));
    }
    if !feature.shape_ranges.is_empty() {
        let ranges: Vec<_> = feature
            .shape_ranges
            .iter()
            .map(|&(low, high)| match high {
                Some(high) if low == high => format!("{low}"),
                Some(high) => format!("{low}..={high}"),
                None => format!("{low}.."),
            })
            .collect();
        return format!("{default}, within [{}]", ranges.join(", "));
    }
    default
}

pub(super) fn parameter_classes(classes: &[ParameterClass], out: &mut Output) -> Result<()> {
    if classes.is_empty() {
        return out.line("\nno weights");
    }
    let total: u64 = classes.iter().fold(0, |n, c| n.saturating_add(c.parameters));
    let bytes: u64 = classes.iter().fold(0, |n, c| n.saturating_add(c.bytes));
    out.line(format_args!("\n{} parameters in {}", Count(total), Bytes(bytes)))?;
    let mut table =
        Table::new(&["compression", "stored as", ">tensors", ">parameters", ">bytes", ">bits each"]);
    for class in classes {
        table.row([
            class.scheme.clone(),
            class.stored_type.clone(),
            class.tensors.to_string(),
            Count(class.parameters).to_string(),
            Bytes(class.bytes).to_string(),
            bits(class.bytes, class.parameters),
        ]);
    }
    out.text(table.indented(2))
}

fn bits(bytes: u64, parameters: u64) -> String {
    if parameters == 0 { "-".to_owned() } else { format!("{:.2}", bytes as f64 * 8.0 / parameters as f64) }
}

pub(super) fn operations(summary: &Summary, out: &mut Output) -> Result<()> {
    for function in &summary.functions {
        operation_counts(&function.name, &function.operations, out)?;
    }
    Ok(())
}

/// The operations of a function, the most frequent first.
pub(super) fn operation_counts(
    function: &str,
    operations: &BTreeMap<String, usize>,
    out: &mut Output,
) -> Result<()> {
    out.line(format_args!("\noperations of {}", function.escape_debug()))?;
    let mut counts: Vec<_> = operations.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let mut table = Table::new(&[">count", "operation"]);
    for (kind, count) in counts {
        table.row([count.to_string(), kind.clone()]);
    }
    out.text(table.indented(2))
}

pub(super) fn weight_list(weights: &[WeightSummary], out: &mut Output) -> Result<()> {
    out.line("\nweights, largest first")?;
    let mut table =
        Table::new(&[">bytes", "name", "shape", "compression", "stored as", ">bits each", "functions"]);
    for weight in weights {
        table.row([
            Bytes(weight.bytes).to_string(),
            weight.name.clone(),
            format!("{:?}", weight.shape),
            weight.scheme.clone(),
            weight.stored_type.clone(),
            bits(weight.bytes, weight.parameters),
            weight.functions.join(" "),
        ]);
    }
    out.text(table.indented(2))
}
