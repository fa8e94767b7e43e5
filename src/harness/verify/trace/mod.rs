//! Where a package leaves its reference: hidden states layer by layer, and the range of every tensor.

mod against;
mod places;
mod watch;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

pub(super) use against::divergence;
pub use against::{PackageComparison, TensorDivergence, compare_bundles, compare_packages};
pub use places::{Places, places};
pub use watch::TensorRange;

use crate::encode::{EncoderDriver, EncoderTokens};
use crate::generate::Driver;
use crate::verify::{Point, Trace};
use anemeter_base::vocabulary::KvForm;
use anemeter_measure::stats::cosine;
use anemeter_runtime::Observer;
use watch::{Keep, TensorsToKeep, Watch, WatchedTensors};

/// More tokens than this are not traced.
pub const LONGEST: usize = 256;

/// Hidden states of one form at one length against the reference's.
#[derive(Debug, Clone, Serialize)]
pub struct Layers {
    /// The cache form.
    pub kv: KvForm,
    /// The length.
    pub seq_len: usize,
    /// Tokens compared.
    pub tokens: usize,
    /// What computed the reference.
    pub reference: String,
    /// Every point in order.
    pub points: Vec<PointError>,
    /// Points that the reference has and no prediction showed.
    pub unseen: Vec<Point>,
    /// A relative error above this counts as drift.
    pub limit: f64,
    /// The first point that drifts.
    pub first_drift: Option<Point>,
    /// The fp16 tensors, in the order in which they were first computed.
    pub ranges: Vec<TensorRange>,
    /// The first tensor with an element that is not finite.
    pub first_overflow: Option<String>,
}

/// Hidden states at one point against the reference's.
#[derive(Debug, Clone, Serialize)]
pub struct PointError {
    /// The point.
    pub point: Point,
    /// Length of the difference over the length of the reference's state, at each position; absent where a state is
    /// not finite.
    pub errors: Vec<Option<f64>>,
    /// The largest of them; absent if one is.
    pub error_max: Option<f64>,
    /// The position where it is largest.
    pub position: usize,
    /// Smallest cosine; absent if a state is not finite.
    pub cosine_min: Option<f64>,
}

/// Runs a sequence through a driver and compares hidden states with the reference's. The first `prompt` tokens are
/// taken at once, the others one by one; `places` has the points of each chunk.
pub fn layers(
    driver: &mut Driver,
    places: &[Places],
    (ids, prompt, seq_len): (&[u32], usize, usize),
    reference: &Trace,
    limit: f64,
) -> Result<Layers, String> {
    let (seen, spans) = watched(driver, &to_keep(places), (ids, prompt, seq_len))?;
    let run = Run { kv: driver.form(), seq_len, tokens: ids.len(), limit };
    Ok(run.compared(places, seen, &spans, reference))
}

/// Runs a text through the packages of an encoder and compares hidden states with the reference's.
pub fn encoder_layers(
    driver: &mut EncoderDriver,
    places: &[Places],
    (text, seq_len): (&EncoderTokens, usize),
    reference: &Trace,
    limit: f64,
) -> Result<Layers, String> {
    let wanted = to_keep(places);
    driver.watch(wanted.iter().map(|of| Box::new(Watch::new(of.clone())) as Box<dyn Observer>).collect());
    let texts = vec![text.clone(); driver.batch()];
    let encoded = driver.encode(&texts, Some(seq_len));
    let observers = driver.unwatch();
    encoded.map_err(|error| error.to_string())?;
    let seen = taken(observers, wanted.len())?;
    let tokens = text.ids.len();
    let run = Run { kv: KvForm::None, seq_len, tokens, limit };
    Ok(run.compared(places, seen, std::slice::from_ref(&(0..tokens)), reference))
}

/// What is kept of each chunk to compare the points of it.
fn to_keep(places: &[Places]) -> Vec<TensorsToKeep> {
    let keep = |places: &Places| -> TensorsToKeep {
        Arc::new(places.keys().map(|name| (name.clone(), Keep::Tokens(LONGEST))).collect())
    };
    places.iter().map(keep).collect()
}

/// What was run, and what counts as drift.
struct Run {
    kv: KvForm,
    seq_len: usize,
    tokens: usize,
    limit: f64,
}

impl Run {
    fn compared(
        self,
        places: &[Places],
        seen: Vec<WatchedTensors>,
        spans: &[Range<usize>],
        reference: &Trace,
    ) -> Layers {
        let Run { kv, seq_len, tokens, limit } = self;
        let mut states: BTreeMap<Point, Vec<f32>> = BTreeMap::new();
        for (places, seen) in places.iter().zip(&seen) {
            for (name, kept) in &seen.kept {
                states.insert(places[name], in_order(kept, spans, reference));
            }
        }
        let mut ranges: Vec<TensorRange> = seen.into_iter().flat_map(|seen| seen.ranges).collect();
        ranges.dedup_by(|a, b| a.tensor == b.tensor);
        let compared = |(point, expected): &(Point, Vec<f32>)| {
            Some(point_error(*point, expected, states.get(point)?, reference.hidden))
        };
        let points: Vec<PointError> = reference.points.iter().filter_map(compared).collect();
        let unseen = reference.points.iter().map(|(point, _)| *point);
        Layers {
            kv,
            seq_len,
            tokens,
            reference: reference.reference.clone(),
            unseen: unseen.filter(|point| !states.contains_key(point)).collect(),
            limit,
            first_drift: points.iter().find(|found| found.drifts(limit)).map(|found| found.point),
            first_overflow: ranges
                .iter()
                .find(|range| range.not_finite > 0)
                .map(|range| range.tensor.clone()),
            points,
            ranges,
        }
    }
}

/// Runs a sequence while every chunk is watched.
fn watched(
    driver: &mut Driver,
    wanted: &[TensorsToKeep],
    (ids, prompt, seq_len): (&[u32], usize, usize),
) -> Result<(Vec<WatchedTensors>, Vec<Range<usize>>), String> {
    let observers = wanted.iter().map(|wanted| Box::new(Watch::new(wanted.clone())) as Box<dyn Observer>);
    driver.watch(observers.collect());
    let followed = driver.teacher_force(ids, prompt, Some(seq_len), &mut |_, _| Ok(()));
    let (observers, spans) = driver.unwatch();
    followed.map_err(|error| error.to_string())?;
    Ok((taken(observers, wanted.len())?, spans))
}

/// What so many observers have seen.
fn taken(observers: Vec<Box<dyn Observer>>, count: usize) -> Result<Vec<WatchedTensors>, String> {
    let seen: Vec<WatchedTensors> = observers.into_iter().filter_map(Watch::take).collect();
    match seen.len() == count {
        true => Ok(seen),
        false => Err("the runtime does not show what it computes".to_owned()),
    }
}

/// States of all positions from those of each prediction; what was never computed is NaN.
fn in_order(kept: &[Vec<f32>], spans: &[Range<usize>], reference: &Trace) -> Vec<f32> {
    let width = reference.hidden;
    let mut states = vec![f32::NAN; reference.tokens * width];
    for (values, span) in kept.iter().zip(spans) {
        for (state, position) in values.chunks_exact(width.max(1)).zip(span.clone()) {
            if let Some(out) = states.get_mut(position * width..(position + 1) * width) {
                out.copy_from_slice(state);
            }
        }
    }
    states
}

impl PointError {
    fn drifts(&self, limit: f64) -> bool {
        self.error_max.is_none_or(|error| error > limit)
    }
}

fn point_error(point: Point, expected: &[f32], found: &[f32], width: usize) -> PointError {
    let pairs = || expected.chunks_exact(width.max(1)).zip(found.chunks_exact(width.max(1)));
    let errors: Vec<Option<f64>> = pairs().map(|(expected, found)| relative_error(expected, found)).collect();
    let worst = (0..errors.len()).max_by(|&a, &b| {
        let badness = |error: Option<f64>| error.unwrap_or(f64::INFINITY);
        badness(errors[a]).total_cmp(&badness(errors[b])).then(b.cmp(&a))
    });
    let position = worst.unwrap_or(0);
    let error_max = errors.get(position).copied().flatten();
    let cosines = pairs().map(|(expected, found)| cosine(expected, found));
    let cosine_min = error_max.and_then(|_| cosines.reduce(f64::min));
    PointError { point, errors, error_max, position, cosine_min }
}

/// Length of the difference over the length of what is expected; `None` if something is not finite.
fn relative_error(expected: &[f32], found: &[f32]) -> Option<f64> {
    let square = |x: f64| x * x;
    let difference: f64 =
        expected.iter().zip(found).map(|(&e, &f)| square(f64::from(e) - f64::from(f))).sum();
    let length: f64 = expected.iter().map(|&e| square(f64::from(e))).sum();
    if !difference.is_finite() || !length.is_finite() {
        return None;
    }
    match (difference == 0.0, length == 0.0) {
        (true, _) => Some(0.0),
        (false, true) => Some(difference.sqrt()),
        (false, false) => Some((difference / length).sqrt()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_hand() {
        assert_eq!(relative_error(&[3.0, 4.0], &[3.0, 4.5]), Some(0.1));
        assert_eq!(relative_error(&[0.0], &[0.0]), Some(0.0));
        assert_eq!(relative_error(&[0.0], &[0.5]), Some(0.5));
        assert_eq!(relative_error(&[1.0], &[f32::NAN]), None);
        let point = point_error(Point::Layer(1), &[3., 4., 0., 2.], &[3., 4.5, 0., 3.], 2);
        assert_eq!((point.error_max, point.position), (Some(0.5), 1));
        assert_eq!(point.errors, [Some(0.1), Some(0.5)]);
        assert!(point.cosine_min.unwrap() < 1.0);
        assert!(point.drifts(0.4) && !point.drifts(0.5));
        let lost = point_error(Point::Embedding, &[1., 1.], &[1., f32::INFINITY], 1);
        assert_eq!((lost.error_max, lost.position, lost.cosine_min), (None, 1, None));
        assert!(lost.drifts(1e9), "what is not finite drifts");
    }

    #[test]
    fn predictions_are_put_in_order() {
        let reference = Trace { reference: String::new(), tokens: 4, hidden: 1, points: Vec::new() };
        // Two pieces of a prompt that overlap, padding after the second, then one token.
        let kept = [vec![1., 2.], vec![2.5, 3., 9.], vec![4.]];
        assert_eq!(in_order(&kept, &[0..2, 1..3, 3..4], &reference), [1., 2.5, 3., 4.]);
        assert!(in_order(&kept[..1], std::slice::from_ref(&(0..2)), &reference)[2].is_nan());
    }
}
