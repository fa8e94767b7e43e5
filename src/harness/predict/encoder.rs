//! The workload of an encoder: one prediction per sequence length, with token ids that its tables have.

use anemeter_convert::bundle::{Encoder, Exported, Manifest, Port};

use super::config::{PredictConfig, RangeText, ShapeText};
use crate::plan::PlanError;

/// What is asked for, with the integers that an encoder takes and the shapes of the lengths that are wanted.
pub(crate) fn of_encoder(
    config: &PredictConfig,
    wanted: Option<&[usize]>,
    (manifest, encoder): (&Manifest, &Encoder),
) -> Result<PredictConfig, PlanError> {
    let mut config = config.clone();
    let Some(Exported { architecture, settings, .. }) = manifest.exported() else { return Ok(config) };
    let ends = [
        ("input_ids", architecture.vocabulary),
        ("position_ids", architecture.max_positions),
        ("token_type_ids", encoder.segment_kinds),
    ];
    let ports = || manifest.chunks.iter().flat_map(|chunk| &chunk.functions).flat_map(|of| &of.inputs);
    for (input, end) in ends.into_iter().filter(|(input, _)| ports().any(|port| port.name == *input)) {
        let end = i32::try_from(end.max(1)).unwrap_or(i32::MAX);
        config.ranges.entry(input.to_owned()).or_insert(RangeText { low: 0, end });
    }
    let Some(wanted) = wanted else { return Ok(config) };
    let mut places = Vec::with_capacity(wanted.len());
    for seq_len in wanted {
        let place = settings.seq_lens.iter().position(|known| known == seq_len).ok_or_else(|| {
            let known: Vec<String> = settings.seq_lens.iter().map(ToString::to_string).collect();
            PlanError {
                problem: format!("the bundle has no seq_len {seq_len}"),
                remedy: format!("it has {}", known.join(", ")).into(),
            }
        })?;
        places.push(place);
    }
    for port in ports().filter(|port| port.shapes.len() > 1) {
        let Port { name, shapes, .. } = port;
        let chosen = places.iter().filter_map(|&place| shapes.get(place).cloned().map(ShapeText));
        config.shapes.entry(name.clone()).or_insert_with(|| chosen.collect());
    }
    Ok(config)
}
