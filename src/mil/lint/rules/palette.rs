//! Weights as palettes.

use super::pattern::{LinearMap, count, linear_maps};
use super::*;

/// Output channels that share a palette at least.
const LEAST_GROUP: usize = 4;
/// Smaller weights are left alone by compressors on purpose.
const SMALL: usize = 2048;

/// A palette and how its weight is divided.
struct Palette<'m> {
    op: Op<'m>,
    map: LinearMap<'m>,
    dtype: DType,
    /// Groups along the outputs, and along everything else.
    groups: (usize, usize),
    /// Output channels.
    outputs: usize,
}

/// Palettes of linear maps, behind scales too.
fn palettes<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = Palette<'m>> + 'g {
    linear_maps(graph).filter_map(|map| {
        let op = lookup(graph, map.weight)?;
        let (ty, dims) = (graph.arg_ty(&op, "lut")?, graph.dims(map.weight)?);
        let table = ty.concrete()?;
        let axis = map.output_axis(graph, dims.len());
        let grouped = table.len() == dims.len() + 2;
        let groups = if grouped { table[axis] } else { 1 };
        let others = if grouped { count(&table[..dims.len()]) / groups.max(1) } else { 1 };
        let outputs = dims.get(axis).copied()?;
        Some(Palette { op, map, dtype: ty.dtype, groups: (groups, others), outputs })
    })
}

/// The lookup that a weight comes from, behind scales and masks.
fn lookup<'m>(graph: &Graph<'m>, mut id: ValueId) -> Option<Op<'m>> {
    loop {
        let op = graph.producer(id).filter(Op::is_stored)?;
        if op.kind().starts_with("constexpr_lut") {
            return Some(op);
        }
        id = graph.arg(&op, "data").or_else(|| graph.arg(&op, "nonzero_data"))?;
    }
}

fn report(graph: &Graph<'_>, sink: &mut Sink<'_>, palette: &Palette<'_>, message: String) {
    sink.tensor(graph, &palette.map.op, palette.map.weight, message);
}

pub(super) static SMALL_PALETTE_GROUP: Rule = Rule {
    title: "a palette shared by fewer than 4 output channels",
    why: "Below 4 channels per palette the speed of palettes is lost: OPT-1.3B took 14.8 ms with one palette per tensor, \
          17.1 with groups of 4, 30.7 with groups of 2, 59.1 with one per channel, and 92.2 uncompressed.",
    evidence: &["apple/coremltools, palettisation performance: iPhone 15 Pro, 64 tokens"],
    remedy: "use groups of 8 to 32 channels",
    check: Check::Function(|graph, _, sink| {
        for palette in palettes(graph).filter(|palette| palette.groups.0 > 1) {
            let size = palette.outputs / palette.groups.0;
            if size < LEAST_GROUP {
                report(graph, sink, &palette, format!("has a palette per {size} output channels"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::palettised((32, 1)), || examples::palettised((8, 1))),
    ..Rule::warning("A43", "small-palette-group", Documented).decided_by("precision")
};

pub(super) static SCALED_PALETTE: Rule = Rule {
    title: "a palette is scaled before the convolution",
    why: "The Neural Engine wants the per-channel scale of a palette after the convolution; before it, the weight is no \
          longer a palette to the compiler. The option that makes such weights also crashed on macOS 26.",
    evidence: &[
        "apple/coremltools, pass reorder_lut_per_channel_scale",
        "apple/coremltools issue 2688: enable_per_channel_scale crashed on macOS 26",
    ],
    remedy: "multiply the convolution's result by the scale instead",
    check: Check::Function(|graph, _, sink| {
        for palette in palettes(graph) {
            if graph.produced_by(palette.map.weight, &["constexpr_blockwise_shift_scale"]).is_some() {
                report(graph, sink, &palette, "is scaled after the lookup".to_owned());
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::scaled_palette, || examples::palettised((8, 1))),
    ..Rule::warning("A44", "scaled-palette", Documented).decided_by("precision")
};

pub(super) static UNUSUAL_PALETTE: Rule = Rule {
    title: "a palette of an unusual form",
    why: "int8 entries lowered the share on the Neural Engine from 92.9 to 86.7 %, a palette per row and block failed \
          with error -14, and sparse palettes were slower.",
    evidence: &["john-rocky/CoreML-LLM"],
    remedy: "use fp16 entries, grouped along output channels only, without sparsity",
    check: Check::Function(|graph, _, sink| {
        for palette in palettes(graph) {
            let mut faults = Vec::new();
            if matches!(palette.dtype, DType::I8 | DType::U8) {
                faults.push(format!("has {} entries", palette.dtype));
            }
            if palette.groups.0 > 1 && palette.groups.1 > 1 {
                faults.push("has palettes by row and block".to_owned());
            }
            if palette.op.kind() == "constexpr_lut_to_sparse" {
                faults.push("is sparse too".to_owned());
            }
            if !faults.is_empty() {
                report(graph, sink, &palette, faults.join(", "));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::palettised((8, 2)), || examples::palettised((8, 1))),
    ..Rule::warning("A45", "unusual-palette", SingleReport).decided_by("precision")
};

pub(super) static INDIVISIBLE_WEIGHT: Rule = Rule {
    title: "a weight was left uncompressed because it does not divide",
    why: "Compressors skip weights whose size is not a multiple of the group or block, without a word. One such layer \
          can cost more bytes than all others save. Weights under 2048 elements are not meant.",
    evidence: &["apple/coreai-models: layers whose width is not divisible are skipped uncompressed"],
    remedy: "choose a group that divides the weight, or compress it per tensor or channel",
    check: Check::Function(|graph, _, sink| {
        let groups: Vec<usize> =
            palettes(graph).filter(|p| p.groups.0 > 1).map(|p| p.outputs / p.groups.0).collect();
        let Some(&group) = groups.iter().min() else { return };
        for map in linear_maps(graph) {
            let Some(dims) = graph.dims(map.weight).filter(|dims| count(dims) >= SMALL) else { continue };
            let outputs = dims.get(map.output_axis(graph, dims.len())).copied().unwrap_or(0);
            if graph.produced_by(map.weight, &["const"]).is_some() && outputs % group != 0 {
                let message =
                    format!("is plain; its {outputs} outputs are not a multiple of the group of {group}");
                sink.tensor(graph, &map.op, map.weight, message);
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::mixed(60), || examples::mixed(72)),
    ..Rule::error("A47", "indivisible-weight", Documented).decided_by("precision")
};

#[cfg(test)]
mod examples {
    use super::*;
    use half::f16;

    pub(super) fn palettised(groups: (usize, usize)) -> Case {
        convolved(|b| palette(b, (64, 64), groups))
    }

    pub(super) fn scaled_palette() -> Case {
        convolved(|b| {
            let weight = palette(b, (64, 64), (1, 1));
            let scale = filled(&[64, 1, 1, 1], f16::ONE);
            b.op("constexpr_blockwise_shift_scale").arg("data", weight).arg("scale", scale).push().unwrap()
        })
    }

    /// A weight with palettes of 8 channels, and a plain one.
    pub(super) fn mixed(outputs: usize) -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            let weight = palette(b, (64, 64), (8, 1));
            let y = conv_by(b, x, weight);
            conv(b, y, (outputs, 64))
        })
    }
}
