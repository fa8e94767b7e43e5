//! Keys of profiles: listed ones, and ones made for machines that no list knows.
//!
//! The two never meet: made keys begin with the name of a system, and listed keys may not.

use super::Machine;

const SYSTEMS: &[&str] = &["linux-", "macos-", "other-"];

/// What is wrong with a key in a list, if anything.
pub(super) fn problem(key: &str) -> Option<String> {
    if let Some(system) = SYSTEMS.iter().find(|system| key.starts_with(**system)) {
        return Some(format!("the key begins with `{system}`, which is kept for unlisted machines"));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (key.is_empty() || !key.chars().all(plain))
        .then(|| "the key may have small letters, digits and `-` only".to_owned())
}

/// A key for a machine from its system, chip, cores and memory.
pub(super) fn make(machine: &Machine) -> String {
    let system = match machine.os.as_str() {
        "linux" | "macos" => &machine.os,
        _ => "other",
    };
    let chip = machine.chip.as_deref().map(words).filter(|chip| !chip.is_empty());
    let chip = chip.unwrap_or_else(|| format!("unknown-{}", words(&machine.architecture)));
    let memory = machine.memory_gb().map_or("unknown-memory".to_owned(), |gb| format!("{gb}gb"));
    format!("{system}-{chip}-{}c-{memory}", machine.logical_cores)
}

/// Letters and digits in small letters, joined by hyphens, without marks that carry no meaning.
fn words(text: &str) -> String {
    let text = text.to_ascii_lowercase().replace("(r)", " ").replace("(tm)", " ");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.filter(|word| !matches!(*word, "cpu" | "processor")).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::super::source::scripted::Scripted;
    use super::*;
    use proptest::prelude::*;

    fn machine(os: &str, chip: Option<&str>, cores: usize, memory: Option<u64>) -> Machine {
        let blank = Machine::of("none", &Scripted::default());
        Machine {
            os: os.to_owned(),
            architecture: "x86_64".to_owned(),
            chip: chip.map(str::to_owned),
            logical_cores: cores,
            memory_bytes: memory,
            ..blank
        }
    }

    #[test]
    fn keys_tell_system_chip_cores_and_memory() {
        let key = |chip, cores, gb: u64| make(&machine("linux", Some(chip), cores, Some((gb << 30) - 12345)));
        assert_eq!(key("AMD EPYC 7763 64-Core Processor", 2, 24), "linux-amd-epyc-7763-64-core-2c-24gb");
        let xeon = key("Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", 4, 16);
        assert_eq!(xeon, "linux-intel-xeon-platinum-8370c-2-80ghz-4c-16gb");
        assert_eq!(make(&machine("linux", None, 8, None)), "linux-unknown-x86-64-8c-unknown-memory");
        assert_eq!(make(&machine("freebsd", Some("X"), 1, Some(1))), "other-x-1c-1gb");
    }

    proptest! {
        #[test]
        fn a_made_key_is_never_a_listed_one(os in "[a-z]{0,8}", chip in "\\PC{0,60}", cores in 1usize..512) {
            prop_assert!(problem(&make(&machine(&os, Some(&chip), cores, Some(1 << 34)))).is_some());
        }
    }
}
