//! The workload `predict`: functions of packages, one prediction per request. It needs to know nothing of what they are for.

mod cases;
mod config;
mod encoder;
mod run;
mod samples;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use anemeter_base::advice::{Advice, Remedy};
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
use samples::{InputSamples, Sample};

/// The most bytes that inputs of all cases take: a worker keeps them as long as it lives.
const MOST_INPUT_BYTES: u64 = 1 << 29;

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
        if runtime == RuntimeName::CoreMl {
            takes_no_images(&packages, &cases)?;
        }
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
        let cases = || {
            let interface = |of: &PlannedCase| packages[of.package].1.model().interface(&of.case.function);
            self.cases.iter().filter_map(move |planned| Some((&planned.case, interface(planned)?)))
        };
        let mut bytes = 0u64;
        // Before any is made: one may be too large for this process.
        for (case, interface) in cases().filter(|_| given.is_none()) {
            bytes = bytes.saturating_add(samples::bytes_made_up(case, interface));
            check_bytes(bytes, case, "made up")?;
        }
        for (case, interface) in cases() {
            let samples = samples::of_case(case, interface, given, (self, seed))
                .map_err(|problem| PlanError { problem, remedy: Remedy::GiveShape })?;
            if given.is_some() {
                bytes = samples.iter().map(Sample::bytes).fold(bytes, u64::saturating_add);
                check_bytes(bytes, case, "kept in memory")?;
            }
        }
        Ok(())
    }

    /// The cases, as a report tells them.
    pub(crate) fn cases(&self) -> Vec<Case> {
        self.cases.iter().map(|planned| planned.case.clone()).collect()
    }
}

/// Core ML is given tensors only, which is better known before a worker starts.
fn takes_no_images(packages: &[(String, Package)], cases: &[PlannedCase]) -> Result<(), PlanError> {
    for PlannedCase { package, case } in cases {
        let (name, package) = &packages[*package];
        let interface = package.model().interface(&case.function);
        let mut inputs = interface.iter().flat_map(|interface| &interface.inputs);
        if let Some(input) = inputs.find(|feature| matches!(feature.ty, FeatureType::Image(_))) {
            let (input, function) = (input.name.escape_debug(), case.function.escape_debug());
            let problem = format!(
                "{name}: the input `{input}` of `{function}` is an image, and the coreml runtime takes tensors only"
            );
            let remedy = "measure it with --runtime cpu, or convert the model with a tensor as input".into();
            return Err(PlanError { problem, remedy });
        }
    }
    Ok(())
}

fn check_bytes(bytes: u64, case: &Case, what: &str) -> Result<(), PlanError> {
    if bytes <= MOST_INPUT_BYTES {
        return Ok(());
    }
    let (gib, most) = (bytes as f64 / f64::from(1 << 30), MOST_INPUT_BYTES >> 20);
    let problem = format!(
        "the inputs of the cases up to {} take {gib:.1} GiB, which is too large to be {what}: at most {most} MiB",
        case.name.escape_debug()
    );
    Err(PlanError { problem, remedy: Remedy::GiveShape })
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
