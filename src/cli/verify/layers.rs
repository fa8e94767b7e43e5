//! The look inside: every layer against the reference, every tensor against the range of fp16.

use std::path::Path;

use super::{Args, driver, oracle};
use crate::bundle::Bundle;
use crate::checkpoint::Checkpoint;
use crate::cli::output::{Output, create_folder, write_file};
use crate::cli::{Failure, Result};
use crate::mil::op::Numerics;
use crate::package::Package;
use crate::render::Table;
use crate::render::{HeatMap, heat_map};
use crate::verify::trace::{LONGEST, Layers, Places, TensorRange, layers, places};
use crate::verify::{Point, StoredWeights};
use crate::vocabulary::KvForm;

/// Tensors with the least headroom that are listed.
const LISTED: usize = 10;
/// Tokens at the end of the sequence that are taken one by one.
const STEPS: usize = 4;

/// Traces the longest prompt in every form, at the first length of each. fp16 is rounded after every step, so that
/// every tensor is seen and overflows as it would on a device.
pub(super) fn trace(
    args: &Args,
    bundle: &Bundle,
    (checkpoint, stored): (&Checkpoint, Option<&StoredWeights>),
    forms: &[(KvForm, usize)],
    (prompts, limit): (&[Vec<u32>], f64),
) -> Result<Vec<Layers>> {
    let Some(prompt) = prompts.iter().max_by_key(|prompt| prompt.len()) else { return Ok(Vec::new()) };
    let places = all_places(bundle)?;
    let mut traced = Vec::new();
    for &(form, seq_len) in forms {
        let ids = &prompt[..prompt.len().min(seq_len).min(LONGEST)];
        let rotated = bundle.manifest().rotated.as_ref();
        let mut reference = oracle::trace(checkpoint, (stored, rotated), ids).map_err(Failure::bad_input)?;
        // Range repair gives the residual stream of the packages a factor.
        reference.scale(bundle.manifest().range_repair.as_ref().map_or(1.0, |repair| repair.stream));
        let mut driver = driver(args, bundle, Some(form), Numerics::Fp16Exact)?;
        let at_once = ids.len() - STEPS.min(ids.len() / 2);
        let found = layers(&mut driver, &places, (ids, at_once, seq_len), &reference, limit);
        let failed = |problem| Failure::bad_input(format!("{form} at length {seq_len}: {problem}"));
        traced.push(found.map_err(failed)?);
    }
    Ok(traced)
}

pub(super) fn all_places(bundle: &Bundle) -> Result<Vec<Places>> {
    let (manifest, hidden) = (bundle.manifest(), bundle.exported()?.architecture.hidden);
    let chunk = |chunk: &crate::bundle::Chunk| {
        let package = Package::open(bundle.path(&chunk.file.name))?;
        Ok(places(package.model(), chunk.first_layer, hidden))
    };
    manifest.chunks.iter().map(chunk).collect()
}

/// Writes a heat map per form.
pub(super) fn plot(traced: &[Layers], folder: &Path) -> Result<()> {
    create_folder(folder)?;
    for layers in traced {
        let map = HeatMap {
            title: format!("{} at length {}: error of hidden states", layers.kv, layers.seq_len),
            x: "position".to_owned(),
            unit: "length of the difference over the length of the state".to_owned(),
            rows: layers.points.iter().map(|found| (found.point.to_string(), found.errors.clone())).collect(),
        };
        let file = folder.join(format!("layers-{}-{}.svg", layers.kv, layers.seq_len));
        write_file(&file, heat_map(&map)?.as_bytes())?;
    }
    Ok(())
}

pub(super) fn print(traced: &[Layers], passed: bool, out: &mut Output) -> Result<()> {
    for layers in traced {
        out.line(format_args!(
            "\nhidden states of {} tokens, {} at length {}, fp16 rounded after every step, against {}",
            layers.tokens, layers.kv, layers.seq_len, layers.reference
        ))?;
        out.text(points(layers))?;
        out.line(verdict(layers, passed))?;
        if !layers.unseen.is_empty() {
            let unseen: Vec<String> = layers.unseen.iter().map(Point::to_string).collect();
            out.line(format_args!("not shown by the package: {}", unseen.join(", ")))?;
        }
        ranges(layers, out)?;
    }
    Ok(())
}

fn points(layers: &Layers) -> Table {
    let mut table = Table::new(&["after", ">error max", ">at position", ">cosine min"]);
    for found in &layers.points {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "not finite".to_owned(), |value| format!("{value:.digits$}"))
        };
        let mark = if layers.first_drift == Some(found.point) { " <" } else { "" };
        table.row([
            format!("{}{mark}", found.point),
            number(found.error_max, 6),
            found.position.to_string(),
            number(found.cosine_min, 8),
        ]);
    }
    table.indented(2)
}

fn verdict(layers: &Layers, passed: bool) -> String {
    let limit = layers.limit;
    match layers.first_drift {
        Some(Point::Embedding) => format!("first drift beyond {limit}: the token vectors, before layer 0"),
        Some(Point::Attention(layer)) => {
            format!("first drift beyond {limit}: layer {layer}, in its attention")
        }
        Some(Point::Layer(layer)) => {
            format!("first drift beyond {limit}: layer {layer}, after its attention")
        }
        None if passed => format!("no layer drifts beyond {limit}"),
        None => format!(
            "no layer drifts beyond {limit}{}: what differs comes after the last, in norm or head",
            largest(layers).map(|found| format!(", the most {found}")).unwrap_or_default()
        ),
    }
}

/// The point of the table with the largest error.
fn largest(layers: &Layers) -> Option<String> {
    let errors = layers.points.iter().filter_map(|found| Some((found.error_max?, found.point)));
    let (error, point) = errors.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("{error:.6} after {point}"))
}

fn ranges(layers: &Layers, out: &mut Output) -> Result<()> {
    out.line(match &layers.first_overflow {
        Some(tensor) => format!("first tensor that is not finite: {tensor}"),
        None => format!("no overflow in {} tensors of fp16; least headroom:", layers.ranges.len()),
    })?;
    let mut least: Vec<&TensorRange> = layers.ranges.iter().collect();
    let order = |range: &TensorRange| range.headroom.unwrap_or(f64::INFINITY);
    least.sort_by(|a, b| (b.not_finite > 0).cmp(&(a.not_finite > 0)).then(order(a).total_cmp(&order(b))));
    let mut table = Table::new(&["tensor", "operation", ">largest", ">headroom", ">not finite"]);
    for range in least.into_iter().take(LISTED) {
        table.row([
            range.tensor.clone(),
            range.operation.to_owned(),
            format!("{}", range.largest),
            range.headroom.map_or_else(|| "-".to_owned(), |headroom| format!("{headroom:.1}")),
            range.not_finite.to_string(),
        ]);
    }
    out.text(table.indented(2))
}
