//! Compute units and hints as Core ML's constants, and back.

use objc2::rc::Retained;
use objc2_core_ml::{
    MLComputeUnits, MLModelConfiguration, MLOptimizationHints, MLReshapeFrequencyHint,
    MLSpecializationStrategy,
};
use objc2_foundation::NSString;

use crate::{Hints, LoadOptions, ReshapeFrequency, Specialization};
use anemeter_base::vocabulary::ComputeUnits;

/// Core ML's constants by our names; by name, since numbers are easily mistaken.
const UNITS: [(ComputeUnits, MLComputeUnits); 4] = [
    (ComputeUnits::All, MLComputeUnits::All),
    (ComputeUnits::Cpu, MLComputeUnits::CPUOnly),
    (ComputeUnits::CpuGpu, MLComputeUnits::CPUAndGPU),
    (ComputeUnits::CpuAne, MLComputeUnits::CPUAndNeuralEngine),
];

/// A configuration; without a function it means the default one.
pub(super) fn configuration(options: &LoadOptions, function: Option<&str>) -> Retained<MLModelConfiguration> {
    // SAFETY: plain setters on a new object, with arguments of the declared types.
    unsafe {
        let configuration = MLModelConfiguration::new();
        configuration.setComputeUnits(to_core_ml(options.units));
        if options.hints != Hints::default() {
            configuration.setOptimizationHints(&hints(options.hints));
        }
        if let Some(function) = function {
            configuration.setFunctionName(Some(&NSString::from_str(function)));
        }
        configuration
    }
}

fn hints(hints: Hints) -> Retained<MLOptimizationHints> {
    let reshape = match hints.reshape {
        ReshapeFrequency::Frequent => MLReshapeFrequencyHint::Frequent,
        ReshapeFrequency::Infrequent => MLReshapeFrequencyHint::Infrequent,
    };
    let strategy = match hints.specialization {
        Specialization::Default => MLSpecializationStrategy::Default,
        Specialization::FastPrediction => MLSpecializationStrategy::FastPrediction,
    };
    // SAFETY: plain setters on a new object, with Core ML's own constants.
    unsafe {
        let made = MLOptimizationHints::new();
        made.setReshapeFrequency(reshape);
        made.setSpecializationStrategy(strategy);
        made
    }
}

fn to_core_ml(units: ComputeUnits) -> MLComputeUnits {
    UNITS.iter().find(|(ours, _)| *ours == units).map_or(MLComputeUnits::All, |(_, theirs)| *theirs)
}

/// The units that a configuration has; `None` if Core ML has learned new ones.
pub(super) fn units_of(configuration: &MLModelConfiguration) -> Option<ComputeUnits> {
    // SAFETY: a plain getter.
    let units = unsafe { configuration.computeUnits() };
    UNITS.iter().find(|(_, theirs)| *theirs == units).map(|(ours, _)| *ours)
}
