//! Compute devices, and which of them would take an operation.

use objc2::rc::Retained;
use objc2::runtime::{NSObject, ProtocolObject};
use objc2::{ClassType, define_class};
use objc2_core_ml::MLComputeDeviceProtocol;

use crate::instance::make;

macro_rules! devices {
    ($($type:ident $name:literal)*) => {$(
        define_class!(
            #[unsafe(super(NSObject))]
            #[name = $name]
            #[ivars = ()]
            struct $type;

            unsafe impl MLComputeDeviceProtocol for $type {}
        );
    )*};
}

devices! {
    Cpu "MLCPUComputeDevice"
    Gpu "MLGPUComputeDevice"
    NeuralEngine "MLNeuralEngineComputeDevice"
}

// SAFETY: the class inherits from the root class; the protocol of devices asks for this.
unsafe impl objc2::runtime::NSObjectProtocol for Cpu {}
// SAFETY: as above.
unsafe impl objc2::runtime::NSObjectProtocol for Gpu {}
// SAFETY: as above.
unsafe impl objc2::runtime::NSObjectProtocol for NeuralEngine {}

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    Cpu,
    Gpu,
    NeuralEngine,
}

impl Device {
    pub(super) fn object(self) -> Retained<ProtocolObject<dyn MLComputeDeviceProtocol>> {
        match self {
            Device::Cpu => ProtocolObject::from_retained(make::<Cpu>(())),
            Device::Gpu => ProtocolObject::from_retained(make::<Gpu>(())),
            Device::NeuralEngine => ProtocolObject::from_retained(make::<NeuralEngine>(())),
        }
    }
}

/// Operations that stay on the CPU here, as gathers and control flow do.
const CPU_ONLY: &[&str] =
    &["gather", "gather_along_axis", "gather_nd", "cond", "while_loop", "topk", "argsort"];
/// Operations that the Neural Engine could run but is not preferred for.
const NOT_PREFERRED: &[&str] = &["cast", "shape"];

/// Devices that support an operation under the given `MLComputeUnits`, the preferred one first.
pub(super) fn placement(kind: &str, units: isize) -> Vec<Device> {
    let (has_gpu, has_engine) = (matches!(units, 1 | 2), matches!(units, 2 | 3));
    let mut devices = Vec::new();
    if has_engine && !CPU_ONLY.contains(&kind) {
        devices.push(Device::NeuralEngine);
    }
    if has_gpu && !CPU_ONLY.contains(&kind) {
        devices.push(Device::Gpu);
    }
    devices.push(Device::Cpu);
    if NOT_PREFERRED.contains(&kind) {
        devices.rotate_right(1);
    }
    devices
}

pub(super) fn register() {
    Cpu::class();
    Gpu::class();
    NeuralEngine::class();
}
