//! Memory of this process and of the machine.

use super::{Source, process_memory};

/// Memory of a process in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Resident, mapped files included.
    pub resident: Option<u64>,
    /// Resident and backed by no file.
    pub private: Option<u64>,
    /// The most that was ever resident.
    pub peak: Option<u64>,
}

/// Memory of this process: where the system tells it in `/proc`, or as its kernel accounts for it.
pub fn footprint(source: &dyn Source) -> Footprint {
    let Some(status) = source.file("/proc/self/status") else {
        return process_memory().map_or_else(Footprint::default, |memory| Footprint {
            resident: Some(memory.resident),
            private: Some(memory.footprint),
            peak: Some(memory.peak_footprint),
        });
    };
    let [resident, private, peak] = ["VmRSS:", "RssAnon:", "VmHWM:"].map(|name| kib(&status, name));
    Footprint { resident, private, peak }
}

/// Memory of the machine, or what this process may have of it.
pub fn total(source: &dyn Source) -> Option<u64> {
    let total = source.file("/proc/meminfo").and_then(|text| kib(&text, "MemTotal:"));
    let limit = source.file("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    match (total, limit) {
        (Some(total), Some(limit)) => Some(total.min(limit)),
        (total, limit) => total.or(limit),
    }
}

/// Memory that programs could still get.
pub fn available(source: &dyn Source) -> Option<u64> {
    kib(&source.file("/proc/meminfo")?, "MemAvailable:")
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))?;
    value.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::hardware::System;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory() {
        let before = footprint(&System);
        assert!(before.resident > before.private && before.peak >= before.resident);
        let block = vec![1u8; 32 << 20];
        // Other tests of the process may give memory back meanwhile, so nothing is known but what is in use here.
        assert!(footprint(&System).private.unwrap() >= block.len() as u64);
        assert!(available(&System).unwrap() > 0);
    }

    #[test]
    fn lines_are_found_by_name() {
        assert_eq!(kib("VmHWM:\t  20 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 << 10));
        assert_eq!(kib("VmRSS:\t lots kB\n", "VmRSS:"), None);
        assert_eq!(kib("", "VmRSS:"), None);
    }
}
