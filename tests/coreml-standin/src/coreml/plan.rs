//! `MLComputePlan`: where operations would run, and their cost.

use std::path::Path;
use std::sync::Arc;

use objc2::rc::Retained;
use objc2::runtime::{NSObject, ProtocolObject};
use objc2::{ClassType, DefinedClass, define_class};
use objc2_core_ml::{
    MLComputeDeviceProtocol, MLComputePlan, MLComputePlanCost, MLComputePlanDeviceUsage,
    MLModelConfiguration, MLModelStructure, MLModelStructureProgramOperation,
};
use objc2_foundation::{NSArray, NSURL};

use super::device::{Device, placement};
use super::handler::{Handler, complete};
use super::model::path;
use super::structure::{self, Program};
use super::{code, compile, configuration};
use crate::fault::{self, Fault};
use crate::foundation::error::Failure;
use crate::instance::make_public;

struct Planned {
    program: Arc<Program>,
    units: isize,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLComputePlan"]
    #[ivars = Planned]
    struct Plan;

    impl Plan {
        #[unsafe(method(loadContentsOfURL:configuration:completionHandler:))]
        fn load(url: &NSURL, configuration: &MLModelConfiguration, handler: &Handler<MLComputePlan>) {
            let (path, units) = (path(url), configuration::units(configuration));
            complete(handler, move || make(&path, units).map(Some));
        }

        #[unsafe(method_id(modelStructure))]
        fn structure(&self) -> Retained<MLModelStructure> {
            structure::of(&self.ivars().program)
        }

        #[unsafe(method_id(computeDeviceUsageForMLProgramOperation:))]
        fn usage(&self, operation: &MLModelStructureProgramOperation) -> Option<Retained<MLComputePlanDeviceUsage>> {
            let kind = &structure::operation(operation).kind;
            let usage = || make_public::<Usage, _>(placement(kind, self.ivars().units));
            (!structure::is_constant(kind)).then(usage)
        }

        #[unsafe(method_id(estimatedCostOfMLProgramOperation:))]
        fn cost(&self, operation: &MLModelStructureProgramOperation) -> Option<Retained<MLComputePlanCost>> {
            let operation = structure::operation(operation);
            let is_known = !structure::is_constant(&operation.kind) && !fault::is_on(Fault::NoCosts);
            is_known.then(|| make_public::<Cost, _>(operation.weight))
        }
    }
);

fn make(compiled: &Path, units: isize) -> Result<Retained<MLComputePlan>, Failure> {
    fault::hang();
    if fault::is_on(Fault::NoPlan) {
        return Err(Failure::new(code::GENERIC, "Failed to make a compute plan."));
    }
    let model = compile::content(compiled)?.into_model();
    Ok(make_public::<Plan, _>(Planned { program: Arc::new(Program::new(&model.program)), units }))
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLComputePlanDeviceUsage"]
    #[ivars = Vec<Device>] // the preferred one first
    struct Usage;

    impl Usage {
        #[unsafe(method_id(supportedComputeDevices))]
        fn supported(&self) -> Retained<NSArray<ProtocolObject<dyn MLComputeDeviceProtocol>>> {
            NSArray::from_retained_slice(&self.ivars().iter().map(|device| device.object()).collect::<Vec<_>>())
        }

        #[unsafe(method_id(preferredComputeDevice))]
        fn preferred(&self) -> Retained<ProtocolObject<dyn MLComputeDeviceProtocol>> {
            self.ivars()[0].object()
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLComputePlanCost"]
    #[ivars = f64]
    struct Cost;

    impl Cost {
        #[unsafe(method(weight))]
        fn weight(&self) -> f64 {
            *self.ivars()
        }
    }
);

pub(super) fn register() {
    Plan::class();
    Usage::class();
    Cost::class();
}
