//! What Foundation says of the system: its version, heat and power.

use objc2::rc::autoreleasepool;
use objc2_foundation::{NSProcessInfo, NSProcessInfoThermalState};

use super::system::{OsVersion, SystemState, Thermal};

/// The version of the system, such as `Version 15.2 (Build 24C101)`.
pub fn os_version() -> OsVersion {
    let text = autoreleasepool(|_| NSProcessInfo::processInfo().operatingSystemVersionString().to_string());
    OsVersion::parse(&text)
}

/// The state of the system now.
pub(super) fn observe() -> SystemState {
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
