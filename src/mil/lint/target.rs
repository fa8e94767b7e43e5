//! What a package is meant for: the system and the chip, which set limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ActivationRange;
use crate::Opset;
use anemeter_base::vocabulary::Choice;

/// The system a package is to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each variant is the Apple release of the same name")]
pub enum Target {
    #[default]
    Macos15,
    Macos26,
    Macos27,
    Ios18,
    Ios26,
    Ios27,
}

/// The family of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Platform {
    Macos,
    Ios,
}

impl Choice for Target {
    const ALL: &'static [Target] = {
        use Target::*;
        &[Macos15, Macos26, Macos27, Ios18, Ios26, Ios27]
    };

    fn name(self) -> &'static str {
        match self {
            Target::Macos15 => "macos15",
            Target::Macos26 => "macos26",
            Target::Macos27 => "macos27",
            Target::Ios18 => "ios18",
            Target::Ios26 => "ios26",
            Target::Ios27 => "ios27",
        }
    }
}

impl Target {
    /// The operating system.
    pub fn platform(self) -> Platform {
        match self {
            Target::Macos15 | Target::Macos26 | Target::Macos27 => Platform::Macos,
            Target::Ios18 | Target::Ios26 | Target::Ios27 => Platform::Ios,
        }
    }

    /// The newest opset it reads. coremltools has none for the systems of 2026.
    pub fn opset(self) -> Opset {
        match self {
            Target::Macos15 | Target::Ios18 => Opset::Ios18,
            Target::Macos26 | Target::Macos27 | Target::Ios26 | Target::Ios27 => Opset::Ios26,
        }
    }

    /// Bytes of weights that a package may have, and whether more is known to fail.
    pub(super) fn weight_limit(self) -> (u64, bool) {
        match self.platform() {
            Platform::Ios => (1_000_000_000, true),
            Platform::Macos => (2_000_000_000, false),
        }
    }
}

/// The chip a package is to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each variant is the Apple chip family of the same name")]
pub enum Device {
    M1,
    M2,
    M3,
    M4,
    M5,
    M6,
    A14,
    A15,
    A16,
    A17,
    A18,
    A19,
    A20,
}

impl Choice for Device {
    const ALL: &'static [Device] = {
        use Device::*;
        &[M1, M2, M3, M4, M5, M6, A14, A15, A16, A17, A18, A19, A20]
    };

    fn name(self) -> &'static str {
        match self {
            Device::M1 => "m1",
            Device::M2 => "m2",
            Device::M3 => "m3",
            Device::M4 => "m4",
            Device::M5 => "m5",
            Device::M6 => "m6",
            Device::A14 => "a14",
            Device::A15 => "a15",
            Device::A16 => "a16",
            Device::A17 => "a17",
            Device::A18 => "a18",
            Device::A19 => "a19",
            Device::A20 => "a20",
        }
    }
}

impl Device {
    /// Whether its Neural Engine multiplies int8 by int8 faster than fp16. No report says so of the M6 or the A20.
    pub(super) fn has_fast_int8(self) -> bool {
        matches!(self, Device::M4 | Device::M5 | Device::A17 | Device::A18 | Device::A19)
    }

    /// Bytes its Neural Engine can address, where a report says.
    pub(super) fn address_space(self) -> Option<u64> {
        (self == Device::M1).then_some(3_750_000_000)
    }
}

/// What a subject is held against.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The system version that packages are made for.
    pub target: Target,
    /// The chip, if it is known.
    pub device: Option<Device>,
    /// Sequence lengths that the model was trained at, if they are known.
    pub training_seq_lens: Option<Vec<u64>>,
    /// The compute units that runs ask for, if they are known, such as `cpuAndNeuralEngine`.
    pub compute_units: Option<String>,
    /// Largest magnitudes of activations, if a calibration measured them.
    pub activations: Option<Vec<ActivationRange>>,
}
