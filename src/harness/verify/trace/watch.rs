//! Watching predictions: the tensors that are wanted, and the range of every one.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use half::f16;
use serde::Serialize;

use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::{DType, TensorView};
use anemeter_runtime::{Observer, OpExecution};

/// What to keep of a tensor each time it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// Of `[batch, channels, 1, tokens]` or `[batch, tokens, channels]` the first sequence, token by token, so many tokens at most.
    Tokens(usize),
    /// So many elements at most, evenly spread.
    Sample(usize),
}

/// Which tensors to keep, by name.
pub(super) type TensorsToKeep = Arc<BTreeMap<String, Keep>>;

/// How large the elements of a tensor became.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorRange {
    /// The tensor.
    pub tensor: String,
    /// The operation that computes it.
    pub operation: &'static str,
    /// The layer that its name speaks of.
    pub layer: Option<u32>,
    /// The largest finite magnitude.
    pub largest: f32,
    /// How many times larger it could be in fp16; absent if it is zero.
    pub headroom: Option<f64>,
    /// Elements that were NaN or infinite.
    pub not_finite: usize,
}

/// An observer that keeps what is wanted.
pub(super) struct Watch {
    wanted: TensorsToKeep,
    kept: BTreeMap<String, Vec<Vec<f32>>>,
    ranges: Vec<TensorRange>,
    places: HashMap<String, usize>,
}

/// What a [`Watch`] has seen.
pub(super) struct WatchedTensors {
    /// Of each wanted tensor, what was kept each time.
    pub(super) kept: BTreeMap<String, Vec<Vec<f32>>>,
    /// fp16 tensors in the order in which they were first computed.
    pub(super) ranges: Vec<TensorRange>,
}

impl Watch {
    pub(super) fn new(wanted: TensorsToKeep) -> Watch {
        Watch { wanted, kept: BTreeMap::new(), ranges: Vec::new(), places: HashMap::new() }
    }

    /// Takes back what an observer has seen; nothing if it is another kind of observer.
    pub(super) fn take(observer: Box<dyn Observer>) -> Option<WatchedTensors> {
        let watch = observer.into_any().downcast::<Watch>().ok()?;
        Some(WatchedTensors { kept: watch.kept, ranges: watch.ranges })
    }

    fn range(&mut self, step: &OpExecution<'_>, view: &TensorView<'_>) {
        let Ok(values) = view.slice::<f16>() else { return };
        let place = match self.places.get(step.name) {
            Some(&place) => place,
            None => {
                self.places.insert(step.name.to_owned(), self.ranges.len());
                self.ranges.push(TensorRange {
                    tensor: step.name.to_owned(),
                    operation: step.kind,
                    layer: anemeter_mil::graph::layer_in(step.name),
                    largest: 0.0,
                    headroom: None,
                    not_finite: 0,
                });
                self.ranges.len() - 1
            }
        };
        let range = &mut self.ranges[place];
        for value in values {
            match value.is_finite() {
                true => range.largest = range.largest.max(value.to_f32().abs()),
                false => range.not_finite += 1,
            }
        }
        let largest = f64::from(range.largest);
        range.headroom = (largest > 0.0).then(|| f64::from(f16::MAX.to_f32()) / largest);
    }
}

impl Observer for Watch {
    fn executed(&mut self, step: &OpExecution<'_>) {
        let Some(view) = step.outputs.first() else { return };
        self.range(step, view);
        let Some(&keep) = self.wanted.get(step.name) else { return };
        if let Some(values) = keep.of(view) {
            self.kept.entry(step.name.to_owned()).or_default().push(values);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Keep {
    /// Its part of a tensor; nothing of tensors that are no floats, or not of the shape.
    pub(super) fn of(self, view: &TensorView<'_>) -> Option<Vec<f32>> {
        if !matches!(view.dtype(), DType::F16 | DType::F32) {
            return None;
        }
        match self {
            Keep::Tokens(most) => tokens(view, most),
            Keep::Sample(most) => Some(sample(view, most)),
        }
    }
}

fn tokens(view: &TensorView<'_>, most: usize) -> Option<Vec<f32>> {
    let (channels, columns) = match *view.shape() {
        [_, channels, 1, columns] => (channels, columns),
        [_, rows, channels] => {
            let mut out = vec![0.0; rows.min(most) * channels];
            to_f32(view, 0..out.len(), &mut out);
            return Some(out);
        }
        _ => return None,
    };
    let mut row = vec![0.0; columns];
    let count = columns.min(most);
    let mut out = vec![0.0; count * channels];
    for channel in 0..channels {
        to_f32(view, channel * columns..(channel + 1) * columns, &mut row);
        for (token, &value) in row[..count].iter().enumerate() {
            out[token * channels + channel] = value;
        }
    }
    Some(out)
}

fn sample(view: &TensorView<'_>, most: usize) -> Vec<f32> {
    let count = view.len();
    let step = count.div_ceil(most.max(1)).max(1);
    let element = |index: usize| {
        let mut value = [0.0];
        to_f32(view, index..index + 1, &mut value);
        value[0]
    };
    (0..count).step_by(step).map(element).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use anemeter_kernels::tensor::Tensor;

    fn executed(name: &str, tensor: &Tensor, watch: &mut Watch) {
        let outputs = [tensor.view()];
        let (started, elapsed) = (Instant::now(), Duration::ZERO);
        let step = OpExecution { kind: "add", name, started, elapsed, outputs: &outputs, bytes: 0, flops: 0 };
        watch.executed(&step);
    }

    #[test]
    fn wanted_tensors_are_kept_and_all_are_measured() {
        let half = |values: &[f32]| -> Vec<f16> { values.iter().map(|&v| f16::from_f32(v)).collect() };
        let two_channels = Tensor::from_slice(&[1, 2, 1, 3], &half(&[1., 2., 3., 4., 5., -6.])).unwrap();
        let wide = Tensor::from_slice(&[4], &half(&[0.0, f32::INFINITY, 8.0, f32::NAN])).unwrap();
        let wanted = [("a".to_owned(), Keep::Tokens(2)), ("layers_3_b".to_owned(), Keep::Sample(2))];
        let mut watch = Watch::new(Arc::new(wanted.into()));
        executed("a", &two_channels, &mut watch);
        executed("layers_3_b", &wide, &mut watch);
        executed("a", &two_channels, &mut watch);
        executed("a", &wide, &mut watch);
        let seen = Watch::take(Box::new(watch)).unwrap();
        assert_eq!(seen.kept["a"], [[1., 4., 2., 5.]; 2], "two tokens, twice; another shape is left out");
        assert_eq!(seen.kept["layers_3_b"], [[0., 8.]]);
        let found: Vec<_> =
            seen.ranges.iter().map(|r| (r.tensor.as_str(), r.layer, r.largest, r.not_finite)).collect();
        assert_eq!(found, [("a", None, 8.0, 2), ("layers_3_b", Some(3), 8.0, 2)]);
        assert_eq!(seen.ranges[0].headroom, Some(8188.0));
    }
}
