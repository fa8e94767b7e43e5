//! What the resident memory of this process is made of.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Resident bytes by what they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Resident {
    /// Files of a package, mapped as they are.
    pub(super) weights: u64,
    /// The program's own file: code, constants.
    pub(super) program: u64,
    /// Files of the system's libraries.
    pub(super) libraries: u64,
    /// Small allocations: graphs, plans.
    pub(super) heap: u64,
    /// Large allocations, keys and values among them, and stacks.
    pub(super) buffers: u64,
}

impl Resident {
    /// Of this process now, where the system tells.
    pub(super) fn now(package: &Path) -> Option<Resident> {
        let (program, package) = (std::env::current_exe().ok()?, package.canonicalize().ok()?);
        Some(Resident::of(&fs::read_to_string("/proc/self/smaps").ok()?, &program, &package))
    }

    fn of(smaps: &str, program: &Path, package: &Path) -> Resident {
        let mut resident = Resident::default();
        let mut kind = &mut resident.buffers;
        for line in smaps.lines() {
            if let Some(size) = line.strip_prefix("Rss:") {
                let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap_or(0);
                *kind += kib * 1024;
            } else if let Some(name) = mapped(line) {
                kind = match Path::new(name) {
                    _ if name == "[heap]" => &mut resident.heap,
                    path if path == program => &mut resident.program,
                    path if path.starts_with(package) => &mut resident.weights,
                    path if path.is_absolute() => &mut resident.libraries,
                    _ => &mut resident.buffers,
                };
            }
        }
        resident
    }
}

/// What the line that begins a mapping says is mapped: `55e0-55f0 r--p 00000000 fe:00 1234   /bin/program`.
fn mapped(line: &str) -> Option<&str> {
    let (addresses, mut rest) = line.split_once(' ')?;
    addresses.split_once('-')?;
    for _ in 0..4 {
        rest = rest.trim_start();
        rest = &rest[rest.find(' ').unwrap_or(rest.len())..];
    }
    Some(rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_apart_by_what_is_mapped() {
        let smaps = "\
5623-5624 r-xp 00000000 fe:00 11   /bin/program
Size:                 16 kB
Rss:                   8 kB
5625-5626 rw-p 00000000 00:00 0    [heap]
Rss:                   3 kB
7ff0-7ff1 rw-p 00000000 00:00 0
Rss:                   5 kB
AnonHugePages:         4 kB
7ff2-7ff3 r--s 00000000 fe:00 12   /a b/model.mlpackage/weight.bin
Rss:                  70 kB
7ff4-7ff5 r-xp 00000000 fe:00 13   /lib/libc.so.6
Rss:                   2 kB
7ff6-7ff7 rw-p 00000000 00:00 0    [stack]
Rss:                   1 kB
";
        let found = Resident::of(smaps, Path::new("/bin/program"), Path::new("/a b/model.mlpackage"));
        let kib = |count: u64| count * 1024;
        let expected = Resident {
            weights: kib(70),
            program: kib(8),
            libraries: kib(2),
            heap: kib(3),
            buffers: kib(5 + 1),
        };
        assert_eq!(found, expected);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_a_program_and_a_heap() {
        let resident = Resident::now(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(resident.program > 0 && resident.heap > 0 && resident.weights == 0, "{resident:?}");
    }
}
