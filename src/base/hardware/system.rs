//! What the operating system tells a process, in plain words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsVersion {
    /// As the system says it, such as `Version 15.2 (Build 24C101)`.
    pub text: String,
    /// The number before the first dot.
    pub major: Option<u32>,
    /// The build, such as `24C101`; the whole text where there is none.
    pub build: String,
}

impl OsVersion {
    /// Reads what the system says.
    pub fn parse(text: &str) -> OsVersion {
        let after = |word: &str| text.split_once(word).map(|(_, rest)| rest);
        let digits = after("Version ").map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let build = after("(Build ").and_then(|rest| rest.split(')').next());
        OsVersion {
            text: text.to_owned(),
            major: digits.flatten().and_then(|digits| digits.parse().ok()),
            build: build.unwrap_or(text).to_owned(),
        }
    }
}

/// How hot the machine is, as far as it limits itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Thermal {
    /// As it should be.
    Nominal,
    /// Slightly hot.
    Fair,
    /// So hot that it slows down.
    Serious,
    /// So hot that it has to slow down a lot.
    Critical,
}

/// The state of the system at a moment. What it does not tell is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SystemState {
    /// How hot it is.
    pub thermal: Option<Thermal>,
    /// Whether it saves power at the cost of speed.
    pub low_power_mode: Option<bool>,
}

/// Memory of this process in bytes, as the system accounts for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// What counts against the process: dirty and compressed memory.
    pub footprint: u64,
    /// The most that it ever was.
    pub peak_footprint: u64,
    /// Resident, mapped files included.
    pub resident: u64,
}

impl ProcessMemory {
    /// Reads `task_vm_info`, whose fields lie without padding. Kernels that are older give fewer of them.
    #[cfg(any(test, target_os = "macos"))]
    pub(super) fn of_task_vm_info(words: &[u32]) -> Option<ProcessMemory> {
        const RESIDENT_SIZE: usize = 4;
        const PHYS_FOOTPRINT: usize = 36;
        const LEDGER_PHYS_FOOTPRINT_PEAK: usize = 42;
        let field = |at: usize| Some(u64::from(*words.get(at)?) | u64::from(*words.get(at + 1)?) << 32);
        let footprint = field(PHYS_FOOTPRINT)?;
        let peak_footprint = field(LEDGER_PHYS_FOOTPRINT_PEAK).unwrap_or(footprint);
        Some(ProcessMemory { footprint, peak_footprint, resident: field(RESIDENT_SIZE)? })
    }
}

/// Memory of this process, where the system's kernel is asked for it.
#[cfg(target_os = "macos")]
pub fn process_memory() -> Option<ProcessMemory> {
    super::task_memory::process_memory()
}

/// Memory of this process, which this system tells otherwise.
#[cfg(not(target_os = "macos"))]
pub fn process_memory() -> Option<ProcessMemory> {
    None
}

/// The state of the system now.
#[cfg(any(target_os = "macos", coreml_standin))]
pub fn system_state() -> SystemState {
    super::foundation::observe()
}

/// The state of the system now, of which this one tells nothing.
#[cfg(not(any(target_os = "macos", coreml_standin)))]
pub fn system_state() -> SystemState {
    SystemState::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of `task_vm_info` in order, as the kernel's header declares them; those in brackets have 32 bits.
    const FIELDS: &str = "virtual_size [region_count] [page_size] resident_size resident_size_peak device device_peak internal \
        internal_peak external external_peak reusable reusable_peak purgeable_volatile_pmap purgeable_volatile_resident \
        purgeable_volatile_virtual compressed compressed_peak compressed_lifetime phys_footprint min_address max_address \
        ledger_phys_footprint_peak ledger_purgeable_nonvolatile";

    #[test]
    fn fields_of_the_kernel_are_found() {
        let mut words = Vec::new();
        for (number, field) in (1..).zip(FIELDS.split_whitespace()) {
            words.push(number);
            words.extend((!field.starts_with('[')).then_some(number));
        }
        let place = |name: &str| {
            let number = 1 + FIELDS.split_whitespace().position(|field| field == name).unwrap() as u64;
            number | number << 32
        };
        let memory = ProcessMemory::of_task_vm_info(&words).unwrap();
        assert_eq!(memory.resident, place("resident_size"));
        assert_eq!(memory.footprint, place("phys_footprint"));
        assert_eq!(memory.peak_footprint, place("ledger_phys_footprint_peak"));
        let older = ProcessMemory::of_task_vm_info(&words[..42]).unwrap();
        assert_eq!(older.peak_footprint, older.footprint);
        assert_eq!(ProcessMemory::of_task_vm_info(&words[..36]), None);
    }

    #[test]
    fn version_and_build_are_found() {
        let version = OsVersion::parse("Version 15.2 (Build 24C101)");
        assert_eq!((version.major, version.build.as_str()), (Some(15), "24C101"));
        let odd = OsVersion::parse("Something else");
        assert_eq!((odd.major, odd.build.as_str()), (None, "Something else"));
        assert_eq!(OsVersion::parse("Version 99999999999 (Build").major, None);
    }
}
