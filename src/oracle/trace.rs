//! Hidden states of a checkpoint, layer by layer.

use candle_core::{Device, Result, Tensor};

use super::Reference;
use crate::turned::{Turned, each};
use anemeter_convert::bundle::Rotated;
use anemeter_convert::checkpoint::Checkpoint;
use anemeter_harness::verify::{Oracle, OracleError, Point, StoredWeights, Trace};

/// Computes the hidden states of a sequence by the reference of a checkpoint, with compressed weights as a bundle
/// stores them if it is given, and in the coordinates that the bundle has.
pub fn trace(
    checkpoint: &Checkpoint,
    (weights, rotated): (Option<&StoredWeights>, Option<&Rotated>),
    ids: &[u32],
) -> std::result::Result<Trace, OracleError> {
    let (mut reference, _) = Reference::open(checkpoint, ids.len(), weights)?;
    reference.check(ids)?;
    let architecture = reference.architecture;
    let points = watched(&mut reference, ids);
    let failed = |error| super::error::computation(architecture, &error);
    let mut points = points.map_err(failed)?;
    let hidden = points.first().map_or(0, |(_, values)| values.len() / ids.len());
    if let Some(stream) = Turned::stream_of(rotated, architecture, hidden).map_err(failed)? {
        points.iter_mut().for_each(|(_, states)| each(states, hidden, |x| stream.turn(x)));
    }
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
