//! The model layer by layer, run from any layer on.
//!
//! A text goes through the model once, all its tokens at a time, and what every layer takes is kept. A package in a
//! layer's place is given what the layer took, so that only the layers after it run again. The head gives the logits of all
//! positions that are compared.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use half::f16;
use rayon::prelude::*;

use super::Source;
use super::error::ExportError;
use super::trial::{self, Failed};
use crate::bundle::Bundle;
use crate::generate::{Driver, GenerateError, SystemClock};
use crate::kernels::convert::to_f32;
use crate::lower::lower_head;
use crate::mil::verify::verify;
use crate::package::{self, Package, WriteOptions};
use crate::runtime::{LoadedModel, Observer, OpExecution, Session, around};
use crate::stats::kl_divergence;
use crate::tensor::{Tensor, TensorError, TensorView};
use crate::vocabulary::{FunctionRole, KvForm};
use anemeter_base::function_name::is_embedding;

/// The input that comes from the layer before.
const HIDDEN: &str = "hidden";
/// Outputs that go to the next prediction: of a layer, of the head, of `embed`.
const OUTPUTS: [&str; 3] = ["hidden_out", "logits", HIDDEN];

/// The layers and the head, with what each takes on a text.
pub(super) struct Layers {
    /// The layers in order, then the head.
    stages: Vec<Stage>,
    /// The value that the last layer gives. Its package has the head of one position too, so that it is no output.
    last_hidden: String,
    /// Positions at the end of the text whose logits are compared.
    compared: usize,
    /// Their logits, as the model is.
    reference: Vec<Vec<f32>>,
    failed: Failed,
}

/// A layer or the head.
struct Stage {
    package: Package,
    session: Box<dyn Session>,
    /// Its predictions on the text.
    calls: Vec<Call>,
}

/// A prediction of the model as it is.
struct Call {
    function: String,
    inputs: Vec<(String, Tensor)>,
}

impl Layers {
    /// Runs the text through a bundle that has a layer to a package.
    pub(super) fn new(
        (bundle, source): (&Bundle, &Source),
        scratch: &Path,
        (ids, compared): (&[u32], usize),
        failed: Failed,
    ) -> Result<Layers, ExportError> {
        let mut packages = trial::packages(bundle)?;
        let last = packages.len() - 1;
        let load = |(place, package): (usize, &Package)| load(package, place == last, failed);
        let mut loaded = packages.iter().enumerate().map(load).collect::<Result<Vec<_>, _>>()?;
        let mut calls = calls(bundle, &loaded, ids).map_err(|e| failed(&e.to_string()))?;

        let head = scratch.join("head.mlpackage");
        let staged = WriteOptions { staged: true, ..WriteOptions::default() };
        package::write(&verify(lower_head(&source.decoder, compared)?)?, &head, staged)?;
        packages.push(Package::open(&head)?);
        loaded.push(trial::load(&packages[last + 1], failed)?);
        calls.push(Vec::new());

        let stages = packages.into_iter().zip(loaded).zip(calls);
        let stages = stages.map(|((package, loaded), calls)| {
            let session = loaded.session();
            Stage { package, session, calls }
        });
        let last_hidden = format!("layers_{last}_out");
        let mut layers =
            Layers { stages: stages.collect(), last_hidden, compared, reference: Vec::new(), failed };
        let hidden = layers.run(0..=last, &mut Vec::new(), None)?;
        let hidden = layers.compared_columns(&hidden)?;
        let inputs = vec![(HIDDEN.to_owned(), hidden)];
        layers.stages[last + 1].calls = vec![Call { function: FunctionRole::MAIN.to_owned(), inputs }];
        layers.reference = by_position(&layers.run(last + 1..=last + 1, &mut Vec::new(), None)?);
        Ok(layers)
    }

    /// The place of the head; those before it are the places of layers.
    pub(super) fn head(&self) -> usize {
        self.stages.len() - 1
    }

    /// The package at a place.
    pub(super) fn package(&self, place: usize) -> &Package {
        &self.stages[place].package
    }

    /// Mean KL divergence of the logits, in nats, with other packages at some places.
    pub(super) fn divergence(&mut self, others: &[(usize, Package)]) -> Result<f64, ExportError> {
        let (head, failed) = (self.head(), self.failed);
        let first = others.iter().map(|(place, _)| *place).min().unwrap_or(head);
        let mut sessions = Vec::with_capacity(others.len());
        for (place, package) in others {
            sessions.push((*place, load(package, place + 1 == head, failed)?.session()));
        }
        let mut hidden = None;
        if first < head {
            let last = self.run(first..=head - 1, &mut sessions, None)?;
            hidden = Some(self.compared_columns(&last)?);
        }
        let found = by_position(&self.run(head..=head, &mut sessions, hidden)?);
        let pairs = self.reference.par_iter().zip(&found);
        let nats: Vec<f64> = pairs.map(|(reference, found)| kl_divergence(reference, found)).collect();
        Ok(nats.iter().sum::<f64>() / nats.len() as f64)
    }

    /// What the last of some stages gives, if the first is given `hidden` or, without it, what it was given as the model is.
    fn run(
        &mut self,
        places: std::ops::RangeInclusive<usize>,
        others: &mut Vec<(usize, Box<dyn Session>)>,
        mut hidden: Option<Tensor>,
    ) -> Result<Tensor, ExportError> {
        let last_layer = self.head() - 1;
        for place in places {
            let Stage { session, calls, .. } = &mut self.stages[place];
            let other = others.iter_mut().find(|(at, _)| *at == place).map(|(_, session)| session);
            let session = other.unwrap_or(session).as_mut();
            let watched = (place == last_layer).then_some(self.last_hidden.as_str());
            for call in calls {
                let given = call.again(session, hidden.as_ref(), watched);
                hidden = Some(given.map_err(|e| (self.failed)(&e))?);
            }
        }
        hidden.ok_or_else(|| (self.failed)("there is no layer to run"))
    }

    /// The columns of a value at the positions that are compared.
    fn compared_columns(&self, hidden: &Tensor) -> Result<Tensor, ExportError> {
        last_columns(hidden, self.compared).map_err(|e| (self.failed)(&e.to_string()))
    }
}

impl Call {
    /// Makes the prediction again, with another value of the layer before if there is one. Gives what the next takes.
    fn again(
        &self,
        session: &mut dyn Session,
        hidden: Option<&Tensor>,
        watched: Option<&str>,
    ) -> Result<Tensor, String> {
        let mut inputs: Vec<(&str, TensorView<'_>)> = Vec::with_capacity(self.inputs.len());
        for (name, kept) in &self.inputs {
            let given = hidden.filter(|_| name == HIDDEN).unwrap_or(kept);
            inputs.push((name, given.view()));
        }
        if let Some(name) = watched {
            session.observe(Some(Box::new(Watched { name: name.to_owned(), value: None })));
        }
        session.predict(&self.function, &inputs).map_err(|e| e.to_string())?;
        let seen = session.observe(None).and_then(|observer| observer.into_any().downcast::<Watched>().ok());
        let output = || OUTPUTS.iter().find_map(|name| session.output(name)).map(|view| view.to_tensor());
        let found = match watched.filter(|_| !is_embedding(&self.function)) {
            Some(_) => seen.and_then(|watched| watched.value),
            None => output(),
        };
        found.ok_or_else(|| format!("`{}` gives nothing that a layer could take", self.function))
    }
}

/// A package; that of the last layer shows all its values.
fn load(package: &Package, is_last_layer: bool, failed: Failed) -> Result<Arc<dyn LoadedModel>, ExportError> {
    match is_last_layer {
        true => trial::load_shown(package, failed),
        false => trial::load(package, failed),
    }
}

/// Keeps a value.
struct Watched {
    name: String,
    value: Option<Tensor>,
}

impl Observer for Watched {
    fn executed(&mut self, step: &OpExecution<'_>) {
        if step.name == self.name {
            self.value = step.outputs.first().map(TensorView::to_tensor);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The predictions of each package of a bundle for a text.
fn calls(
    bundle: &Bundle,
    loaded: &[Arc<dyn LoadedModel>],
    ids: &[u32],
) -> Result<Vec<Vec<Call>>, GenerateError> {
    let made: Vec<Arc<Mutex<Vec<Call>>>> = loaded.iter().map(|_| Arc::default()).collect();
    let sessions = loaded.iter().zip(&made).map(|(loaded, made)| {
        let made = made.clone();
        around(loaded.clone().session(), move |prediction| {
            let inputs =
                prediction.inputs().iter().map(|(name, view)| ((*name).to_owned(), view.to_tensor()));
            let call = Call { function: prediction.function().to_owned(), inputs: inputs.collect() };
            made.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            prediction.run()
        })
    });
    let clock = Arc::new(SystemClock::default());
    let mut driver = Driver::new(bundle, sessions.collect(), Some(KvForm::Io), clock)?;
    driver.prefill(&[ids], None)?;
    let taken = |made: &Arc<Mutex<Vec<Call>>>| {
        std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner))
    };
    Ok(made.iter().map(taken).collect())
}

/// The last columns of `[1, channels, 1, columns]`.
fn last_columns(value: &Tensor, count: usize) -> Result<Tensor, TensorError> {
    let columns = value.shape().last().copied().unwrap_or(0).max(1);
    let rows = value.view().slice::<f16>()?.chunks_exact(columns);
    let kept: Vec<f16> = rows.flat_map(|row| &row[columns.saturating_sub(count)..]).copied().collect();
    Tensor::from_slice(&[1, kept.len() / count.max(1), 1, count], &kept)
}

/// The logits `[1, vocabulary, 1, positions]` of each position.
fn by_position(logits: &Tensor) -> Vec<Vec<f32>> {
    let positions = logits.shape().last().copied().unwrap_or(0);
    let mut values = vec![0.0; logits.view().len()];
    to_f32(&logits.view(), 0..values.len(), &mut values);
    let of = |position: usize| values[position..].iter().step_by(positions).copied().collect();
    (0..positions).into_par_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_positions_are_those_of_the_text() {
        let halves: Vec<f16> = (0u8..12).map(f16::from).collect();
        let value = Tensor::from_slice(&[1, 3, 1, 4], &halves).unwrap();
        let last = last_columns(&value, 2).unwrap();
        assert_eq!(last.shape(), [1, 3, 1, 2]);
        assert_eq!(by_position(&last), [[2.0, 6.0, 10.0], [3.0, 7.0, 11.0]]);
    }
}
