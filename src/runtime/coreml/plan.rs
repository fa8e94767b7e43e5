//! The compute plan of a function: where Core ML means to run each operation, and at what cost.

use std::path::Path;

use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2::{ClassType, msg_send};
use objc2_core_ml::{
    MLCPUComputeDevice, MLComputeDeviceProtocol, MLComputePlan, MLComputePlanDeviceUsage, MLGPUComputeDevice,
    MLModelStructure, MLModelStructureProgram, MLModelStructureProgramBlock, MLModelStructureProgramFunction,
    MLModelStructureProgramOperation, MLNeuralEngineComputeDevice,
};
use objc2_foundation::NSString;

use super::compile::file_url;
use super::error;
use super::units::configuration;
use super::wait::CompletionWait;
use crate::placement::{FunctionPlan, PlannedOperation};
use crate::{LoadOptions, RuntimeError};
use anemeter_base::vocabulary::Device;

/// Blocks in blocks; no program nests this deep.
const DEEPEST: usize = 64;

pub(super) fn of_function(
    compiled: &Path,
    name: &str,
    options: &LoadOptions,
) -> Result<FunctionPlan, RuntimeError> {
    let doing = format!("plan the function `{name}`");
    let url = file_url(compiled, &doing)?;
    let meanwhile = "Core ML is working out a compute plan, which takes as long as loading the function";
    let waiting = CompletionWait { doing: doing.clone(), meanwhile, limit: options.load_limit };
    let plan = waiting.wait(|handler| {
        let configuration = configuration(options, Some(name));
        // SAFETY: URL and configuration are live, and the handler takes what the method gives: a plan or nil, an error or nil.
        unsafe {
            MLComputePlan::loadContentsOfURL_configuration_completionHandler(&url.0, &configuration, handler);
        }
    })?;
    autoreleasepool(|_| {
        let function = function(&plan, name).ok_or_else(|| error::gave_nothing(doing))?;
        // SAFETY: a plain getter.
        let block = unsafe { function.block() };
        let mut operations = Vec::new();
        walk(&plan, &block, 0, &mut operations);
        Ok(FunctionPlan { function: name.to_owned(), operations })
    })
}

/// A function of the planned program; its only one whatever its name is there.
fn function(plan: &MLComputePlan, name: &str) -> Option<Retained<MLModelStructureProgramFunction>> {
    // SAFETY: getters without arguments. The structure's header promises an object; nil would be no reason to fail here.
    let structure: Option<Retained<MLModelStructure>> = unsafe { msg_send![plan, modelStructure] };
    // SAFETY: plain getters.
    let program: Retained<MLModelStructureProgram> = unsafe { structure?.program() }?;
    // SAFETY: a plain getter.
    let functions = unsafe { program.functions() };
    let named = functions.objectForKey(&NSString::from_str(name));
    named.or_else(|| (functions.count() == 1).then(|| functions.allValues().firstObject()).flatten())
}

/// Adds the operations of a block in program order, each followed by those of its nested blocks.
fn walk(
    plan: &MLComputePlan,
    block: &MLModelStructureProgramBlock,
    depth: usize,
    into: &mut Vec<PlannedOperation>,
) {
    if depth > DEEPEST {
        return;
    }
    // SAFETY: a plain getter.
    let operations = unsafe { block.operations() };
    for operation in &operations {
        into.push(planned(plan, &operation));
        // SAFETY: a plain getter.
        let blocks = unsafe { operation.blocks() };
        for nested in &blocks {
            walk(plan, &nested, depth + 1, into);
        }
    }
}

fn planned(plan: &MLComputePlan, operation: &MLModelStructureProgramOperation) -> PlannedOperation {
    // SAFETY: getters of live objects that the plan itself gave; what may be nil is an option.
    let (kind, outputs, usage, cost) = unsafe {
        (
            operation.operatorName().to_string(),
            operation.outputs(),
            plan.computeDeviceUsageForMLProgramOperation(operation),
            plan.estimatedCostOfMLProgramOperation(operation).map(|cost| cost.weight()),
        )
    };
    // SAFETY: a plain getter.
    let name = outputs.firstObject().map(|output| unsafe { output.name() }.to_string());
    // Operators may come with the opset in front, as in `ios18.conv`.
    let kind = kind.rsplit_once('.').map_or(kind.as_str(), |(_, kind)| kind).to_owned();
    PlannedOperation {
        name: name.unwrap_or_else(|| kind.clone()),
        kind,
        preferred: usage.as_deref().and_then(preferred),
        supported: usage.as_deref().map(supported).unwrap_or_default(),
        cost: cost.filter(|cost| cost.is_finite() && *cost >= 0.0),
    }
}

type AnyDevice = ProtocolObject<dyn MLComputeDeviceProtocol>;

fn preferred(usage: &MLComputePlanDeviceUsage) -> Option<Device> {
    // SAFETY: a getter without arguments, which may give nil for an operation that runs nowhere.
    let device: Option<Retained<AnyDevice>> = unsafe { msg_send![usage, preferredComputeDevice] };
    device.map(|device| kind_of(&device))
}

fn supported(usage: &MLComputePlanDeviceUsage) -> Vec<Device> {
    // SAFETY: a plain getter.
    let devices = unsafe { usage.supportedComputeDevices() };
    devices.iter().map(|device| kind_of(&device)).collect()
}

fn kind_of(device: &AnyDevice) -> Device {
    if device.isKindOfClass(MLNeuralEngineComputeDevice::class()) {
        Device::NeuralEngine
    } else if device.isKindOfClass(MLGPUComputeDevice::class()) {
        Device::Gpu
    } else if device.isKindOfClass(MLCPUComputeDevice::class()) {
        Device::Cpu
    } else {
        Device::Other
    }
}
