//! `--calibration` for palettes: how much each input of each weight matters, on a text.
//!
//! The model is exported once as it is and given the text on the CPU runtime. What a convolution takes is watched: an
//! error of a weight's element reaches the output times that input, so its mean square is what the error counts by.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::error::ExportError;
use super::trial;
use super::{Progress, Request, Source};
use crate::atomic::Staging;
use crate::bundle::{Bundle, digest_text};
use crate::compress::{Calibration, Importance, Plan};
use crate::generate::{Driver, GenerateError, SystemClock};
use crate::graph::Graph;
use crate::kernels::convert::to_f32;
use crate::mil::Model;
use crate::runtime::{LoadedModel, Observer, OpExecution};
use crate::tensor::TensorView;
use crate::vocabulary::KvForm;

/// Tokens that are given at once, and how many more one after the other, so that the head is seen more than once.
const PROMPT: usize = 96;
const FOLLOWING: usize = 32;
/// Pieces of the text that are taken.
const PIECES: usize = 8;

/// Measures how much inputs matter on a text.
pub(super) fn measure(
    request: &Request,
    source: &Source,
    text: &str,
    progress: &dyn Progress,
) -> Result<(Importance, Calibration), ExportError> {
    let plan = request.options.precision.as_ref();
    if !plan.is_some_and(Plan::is_weighted) {
        let asked = plan.map_or_else(|| "fp16".to_owned(), ToString::to_string);
        return Err(failed(&format!(
            "is for automatic precision and for palettes, lut1 to lut8; the precision is {asked}"
        )));
    }
    // Never committed: it goes when it is dropped, or with the next export if this one is killed.
    let scratch = Staging::new(&request.output).map_err(|e| ExportError::io(&request.output, &e))?;
    let bundle = trial::export_layers(request, source, (scratch.path(), PROMPT + FOLLOWING), progress)?;
    let ids = trial::tokens(&bundle, text, PROMPT, failed)?;
    progress.began("activations on the calibration text", None);
    let pieces: Vec<&[u32]> =
        ids.chunks(PROMPT + FOLLOWING).take(PIECES).filter(|piece| piece.len() >= PROMPT).collect();
    let importance = importance(&bundle, &pieces)?;
    let tokens = pieces.iter().map(|piece| piece.len()).sum();
    Ok((importance, Calibration { tokens, digest: digest_text(xxh3_128(text.as_bytes())) }))
}

fn failed(message: &str) -> ExportError {
    ExportError::option("calibration", message)
}

fn importance(bundle: &Bundle, pieces: &[&[u32]]) -> Result<Importance, ExportError> {
    let packages = trial::packages(bundle)?;
    let inputs: Vec<Inputs> = packages.iter().map(|package| inputs(package.model())).collect();
    let loaded: Vec<Arc<dyn LoadedModel>> =
        packages.iter().map(|package| trial::load_shown(package, failed)).collect::<Result<_, _>>()?;
    let sessions = loaded.into_iter().map(LoadedModel::session).collect();
    let generation = |e: GenerateError| failed(&e.to_string());
    let clock = Arc::new(SystemClock::default());
    let mut driver = Driver::new(bundle, sessions, Some(KvForm::Io), clock).map_err(generation)?;
    let watch = |inputs: &Inputs| -> Box<dyn Observer> {
        let sum = |(name, input): (&String, &Input)| (name.clone(), Sum::new(input.channels));
        Box::new(Squares { seen: inputs.iter().map(sum).collect() })
    };
    driver.watch(inputs.iter().map(watch).collect());
    let mut followed = Ok(());
    for piece in pieces {
        followed = driver.teacher_force(piece, PROMPT, None, &mut |_, _| Ok(()));
        if followed.is_err() {
            break;
        }
    }
    let (observers, _) = driver.unwatch();
    followed.map_err(generation)?;
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (observer, inputs) in observers.into_iter().zip(&inputs) {
        let Ok(squares) = observer.into_any().downcast::<Squares>() else { continue };
        for (name, found) in &squares.seen {
            let Input { channels, weights } = &inputs[name];
            weights
                .iter()
                .for_each(|weight| sums.entry(weight).or_insert_with(|| Sum::new(*channels)).join(found));
        }
    }
    let mut importance = Importance::default();
    for (weight, sum) in sums {
        if sum.tokens == 0 {
            return Err(failed(&format!("the runtime does not show the input of weight `{weight}`")));
        }
        let means: Vec<f64> = sum.squares.iter().map(|square| square / sum.tokens as f64).collect();
        importance.insert(weight, &means);
    }
    Ok(importance)
}

/// Values that convolutions take, by name.
type Inputs = BTreeMap<String, Input>;

/// What takes a value.
struct Input {
    channels: usize,
    /// Names of the weights that it meets.
    weights: Vec<String>,
}

fn inputs(model: &Model) -> Inputs {
    let mut inputs = Inputs::new();
    for function in &model.program.functions {
        let graph = Graph::new(function, model.interface(&function.name), 0);
        for op in graph.runtime_ops().filter(|op| op.kind() == "conv") {
            let (Some(x), Some(weight)) = (graph.arg(&op, "x"), graph.arg(&op, "weight")) else { continue };
            let Some(&[_, channels, 1, 1]) = graph.dims(weight).as_deref() else { continue };
            // A runtime need not compute a value that has the elements of another in the same order.
            let x = graph.arranged_from(x, &["expand_dims", "reshape", "squeeze"]);
            let input = inputs
                .entry(graph.name(x).to_owned())
                .or_insert_with(|| Input { channels, weights: Vec::new() });
            let weight = graph.name(weight).to_owned();
            if !input.weights.contains(&weight) {
                input.weights.push(weight);
            }
        }
    }
    inputs
}

/// Sums up the squares of values, channel by channel.
struct Squares {
    seen: BTreeMap<String, Sum>,
}

struct Sum {
    squares: Vec<f64>,
    tokens: usize,
}

impl Observer for Squares {
    fn executed(&mut self, step: &OpExecution<'_>) {
        if let (Some(sum), Some(view)) = (self.seen.get_mut(step.name), step.outputs.first()) {
            sum.add(view);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Sum {
    fn new(channels: usize) -> Sum {
        Sum { squares: vec![0.0; channels], tokens: 0 }
    }

    fn join(&mut self, other: &Sum) {
        self.squares.iter_mut().zip(&other.squares).for_each(|(sum, more)| *sum += more);
        self.tokens += other.tokens;
    }

    /// Adds elements that are channel by channel and in each token by token; tokens after a prompt are padding.
    fn add(&mut self, view: &TensorView<'_>) {
        let channels = self.squares.len();
        if !view.dtype().is_float() || channels == 0 || !view.len().is_multiple_of(channels) {
            return;
        }
        let columns = view.len() / channels;
        let tokens = columns.min(PROMPT);
        let mut row = vec![0.0; tokens];
        for (channel, sum) in self.squares.iter_mut().enumerate() {
            to_f32(view, channel * columns..channel * columns + tokens, &mut row);
            *sum += row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
        }
        self.tokens += tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn squares_are_those_of_tokens_and_not_of_padding() {
        let value = |at: usize| if at % 128 < PROMPT { (at / 128 + 1) as f32 } else { 1e4 };
        let values: Vec<f32> = (0..3 * 128).map(value).collect();
        let prompt = Tensor::from_slice(&[1, 3, 1, 128], &values).unwrap();
        let next = Tensor::from_slice(&[1, 3, 1, 1], &[10.0f32, 0.0, -1.0]).unwrap();
        let other = Tensor::from_slice(&[4], &[1.0f32; 4]).unwrap();
        let mut sum = Sum::new(3);
        [prompt, next, other].iter().for_each(|tensor| sum.add(&tensor.view()));
        assert_eq!(sum.tokens, PROMPT + 1, "a tensor of other channels is left out");
        assert_eq!(sum.squares, [96.0 + 100.0, 96.0 * 4.0, 96.0 * 9.0 + 1.0]);
    }
}
