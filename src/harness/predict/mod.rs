//! The workload `predict`: functions of packages, one prediction per request. It needs to know nothing of what they are for.

mod cases;
mod config;
mod encoder;
mod run;
mod samples;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use anemeter_base::advice::Advice;
use anemeter_base::vocabulary::{RuntimeName, StateUse};
use anemeter_convert::bundle::{Bundle, Chunk};
use anemeter_measure::report::{Case, InputRange, InputShape, InputSource};
use anemeter_mil::package::Package;
use anemeter_mil::{FeatureType, Flexibility, ImageSizes, Interface};

use crate::plan::PlanError;
pub(crate) use cases::cases;
pub use config::{PredictConfig, RangeText, ShapeText};
pub(crate) use encoder::of_encoder;
pub(crate) use run::{Loaded, Predictor};
use samples::InputSamples;

/// A case and the package that it is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCase {
    /// Which of the packages.
    pub package: usize,
    /// The case.
    pub case: Case,
}

/// What a worker is to predict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictUse {
    /// The packages.
    pub packages: Vec<PathBuf>,
    /// Functions at shapes; requests name them by their place here.
    pub cases: Vec<PlannedCase>,
    /// A file with inputs; without one they are made up.
    pub inputs: Option<PathBuf>,
    /// Integers that are made up, by input.
    pub ranges: BTreeMap<String, RangeText>,
    /// What a prediction finds in the states.
    pub states: StateUse,
}

impl PredictUse {
    /// Fits the workload to the packages of a bundle; also says where inputs come from.
    pub(crate) fn plan(
        config: &PredictConfig,
        bundle: &Bundle,
        runtime: RuntimeName,
        seed: u64,
    ) -> Result<(PredictUse, InputSource), PlanError> {
        let chunks = &bundle.manifest().chunks;
        let open = |chunk: &Chunk| {
            let package = bundle.open_for(chunk, runtime).map_err(|error| PlanError {
                problem: error.to_string(),
                remedy: error.remedy().unwrap_or_else(|| "give a package that can be opened".into()),
            })?;
            let file = chunk.file_of(runtime).unwrap_or(&chunk.file);
            Ok((file.name.clone(), package))
        };
        let packages: Vec<(String, Package)> = chunks.iter().map(open).collect::<Result<_, PlanError>>()?;
        let given =
            config.inputs.as_deref().map(InputSamples::read).transpose().map_err(|error| PlanError {
                problem: error.to_string(),
                remedy: "give a safetensors file, or none to have inputs made up".into(),
            })?;
        let cases = cases(&packages, config, given.as_ref())
            .map_err(|error| PlanError { problem: error.problem, remedy: error.remedy })?;
        let wanted = PredictUse {
            packages: packages.iter().map(|(name, _)| bundle.path(name)).collect(),
            cases,
            inputs: config.inputs.clone(),
            ranges: config.ranges.clone(),
            states: config.states,
        };
        wanted.try_samples(&packages, given.as_ref(), seed)?;
        let source = match (&config.inputs, &given) {
            (Some(path), Some(given)) => {
                let (path, digest) = (path.display().to_string(), given.digest().to_owned());
                InputSource::File { path, digest }
            }
            _ => InputSource::MadeUp { seed, ranges: config.ranges.iter().map(input_range).collect() },
        };
        Ok((wanted, source))
    }

    /// Makes the inputs of every case once: what cannot be made is better known now than in a worker.
    fn try_samples(
        &self,
        packages: &[(String, Package)],
        given: Option<&InputSamples>,
        seed: u64,
    ) -> Result<(), PlanError> {
        for PlannedCase { package, case } in &self.cases {
            let Some(interface) = packages[*package].1.model().interface(&case.function) else { continue };
            samples::of_case(case, interface, given, (self, seed))
                .map_err(|problem| PlanError { problem, remedy: anemeter_base::advice::Remedy::GiveShape })?;
        }
        Ok(())
    }

    /// The cases, as a report tells them.
    pub(crate) fn cases(&self) -> Vec<Case> {
        self.cases.iter().map(|planned| planned.case.clone()).collect()
    }
}

fn input_range((input, range): (&String, &RangeText)) -> InputRange {
    InputRange { input: input.clone(), low: range.low, end: range.end }
}

/// What a function's users see if its inputs have these shapes and no others.
pub(crate) fn at_shapes(interface: &Interface, shapes: &[InputShape]) -> Interface {
    let mut fixed = interface.clone();
    for feature in &mut fixed.inputs {
        let Some(InputShape { shape, .. }) = shapes.iter().find(|of| of.input == feature.name) else {
            continue;
        };
        match &mut feature.ty {
            FeatureType::Array(array) => {
                array.shape.clone_from(shape);
                array.flexibility = Flexibility::Fixed;
            }
            FeatureType::Image(image) => {
                if let [height, width, ..] = shape[..] {
                    (image.height, image.width, image.sizes) = (height, width, ImageSizes::Fixed);
                }
            }
            _ => {}
        }
    }
    fixed
}

#[cfg(test)]
mod tests;
