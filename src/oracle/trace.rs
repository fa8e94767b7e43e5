//! Hidden states of a checkpoint, layer by layer.

use candle_core::{Device, Result, Tensor};

use super::Reference;
use anemeter_convert::checkpoint::Checkpoint;
use anemeter_harness::verify::{Oracle, OracleError, Point, StoredWeights, Trace};

/// Computes the hidden states of a sequence by the reference of a checkpoint, with compressed weights as a bundle
/// stores them if it is given.
pub fn trace(
    checkpoint: &Checkpoint,
    weights: Option<&StoredWeights>,
    ids: &[u32],
) -> std::result::Result<Trace, OracleError> {
    let (mut reference, _) = Reference::open(checkpoint, ids.len(), weights)?;
    reference.check(ids)?;
    let architecture = reference.architecture;
    let points = watched(&mut reference, ids);
    let points = points.map_err(|error| super::error::computation(architecture, &error))?;
    let hidden = points.first().map_or(0, |(_, values)| values.len() / ids.len());
    Ok(Trace { reference: Oracle::describe(&reference), tokens: ids.len(), hidden, points })
}

fn watched(reference: &mut Reference, ids: &[u32]) -> Result<Vec<(Point, Vec<f32>)>> {
    let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
    let mut points = Vec::new();
    reference.network.forward_watched(&ids, 0, &mut |point, states| {
        points.push((point, states.flatten_all()?.to_vec1()?));
        Ok(())
    })?;
    Ok(points)
}
