//! What this machine is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Source, linux, macos};

/// What a machine is. Facts that the system does not tell are absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// `linux`, `macos` or another name of Rust's targets.
    pub os: String,
    /// Version of the system, such as `15.2` or the kernel's release.
    pub os_version: Option<String>,
    /// Build of the system, such as `24C101`.
    pub os_build: Option<String>,
    /// `x86_64`, `aarch64` or another architecture that the program was built for.
    pub architecture: String,
    /// The processor as it calls itself.
    pub chip: Option<String>,
    /// The computer's model, such as `Mac15,8`.
    pub model: Option<String>,
    /// Processors the system schedules on.
    pub logical_cores: usize,
    /// Cores, however many threads each has.
    pub physical_cores: usize,
    /// Bytes of memory that the program may use: the machine's, or less where a container sets a limit.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// Finds out about the machine that the program runs on.
    pub fn detect(source: &dyn Source) -> Machine {
        Machine::of(std::env::consts::OS, source)
    }

    /// Finds out about a machine with a given system.
    pub(super) fn of(os: &str, source: &dyn Source) -> Machine {
        let blank = Machine {
            os: os.to_owned(),
            os_version: None,
            os_build: None,
            architecture: std::env::consts::ARCH.to_owned(),
            chip: None,
            model: None,
            logical_cores: num_cpus::get(),
            physical_cores: num_cpus::get_physical(),
            memory_bytes: None,
        };
        match os {
            "linux" => linux::machine(source, blank),
            "macos" => macos::machine(source, blank),
            _ => blank,
        }
    }

    /// Memory in whole GiB, rounded up to what is sold: systems keep some for themselves.
    pub fn memory_gb(&self) -> Option<u64> {
        self.memory_bytes.map(|bytes| bytes.div_ceil(1 << 30))
    }

    /// Memory that a program may fill without pressing the system: three quarters.
    pub fn safe_memory_bytes(&self) -> Option<u64> {
        self.memory_bytes.map(|bytes| bytes / 4 * 3)
    }
}
