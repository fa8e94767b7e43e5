//! What the system says of itself: its version, heat, power, and the memory of this process.

use objc2::rc::autoreleasepool;
use objc2_foundation::{NSProcessInfo, NSProcessInfoThermalState};

use crate::runtime::system::{OsVersion, SystemState, Thermal};

/// The version of the system, such as `Version 15.2 (Build 24C101)`.
pub(in crate::runtime) fn os_version() -> OsVersion {
    let text = autoreleasepool(|_| NSProcessInfo::processInfo().operatingSystemVersionString().to_string());
    OsVersion::parse(&text)
}

/// The state of the system now.
pub(in crate::runtime) fn observe() -> SystemState {
    autoreleasepool(|_| {
        let process = NSProcessInfo::processInfo();
        let thermal = match process.thermalState() {
            NSProcessInfoThermalState::Nominal => Some(Thermal::Nominal),
            NSProcessInfoThermalState::Fair => Some(Thermal::Fair),
            NSProcessInfoThermalState::Serious => Some(Thermal::Serious),
            NSProcessInfoThermalState::Critical => Some(Thermal::Critical),
            _ => None,
        };
        SystemState { thermal, low_power_mode: Some(process.isLowPowerModeEnabled()) }
    })
}
