//! Which profile a machine matches, and why.

use super::{Machine, Profile, Profiles, keys};

/// The outcome of matching.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The profile.
    pub profile: Profile,
    /// Whether it is a listed one.
    pub listed: bool,
    /// Why this one, in a sentence.
    pub reason: String,
}

/// Finds the profile of a machine: the chip must be the one listed, word for word; a profile for the machine's
/// memory goes before one for any. A machine that matches nothing gets a profile with a key of its own.
pub fn match_profile(profiles: &Profiles, machine: &Machine) -> Match {
    let Some(chip) = machine.chip.as_deref() else {
        return unlisted(profiles, machine, "the system does not name its processor".to_owned());
    };
    let same_chip = profiles
        .listed()
        .iter()
        .filter(|profile| profile.chip.as_deref().is_some_and(|listed| same_words(listed, chip)));
    let memory = machine.memory_gb();
    let fitting = same_chip.filter(|profile| profile.memory_gb.is_none() || profile.memory_gb == memory);
    let Some(profile) = fitting.max_by_key(|profile| profile.memory_gb.is_some()) else {
        let reason = match virtual_chip(chip) {
            Some(host) => {
                format!("the chip `{chip}` is a virtual one on {host}, whose figures do not hold for it")
            }
            None => format!("no profile lists the chip `{chip}`"),
        };
        return unlisted(profiles, machine, reason);
    };
    let reason = match profile.memory_gb {
        Some(memory) => format!("the chip is `{chip}` with {memory} GB"),
        None => format!("the chip is `{chip}`"),
    };
    Match { profile: profile.clone(), listed: true, reason }
}

fn unlisted(profiles: &Profiles, machine: &Machine, reason: String) -> Match {
    Match { profile: profiles.unlisted(keys::make(machine)), listed: false, reason }
}

fn same_words(a: &str, b: &str) -> bool {
    let mut words = (a.split_whitespace(), b.split_whitespace());
    loop {
        match (words.0.next(), words.1.next()) {
            (None, None) => return true,
            (Some(x), Some(y)) if x.eq_ignore_ascii_case(y) => {}
            _ => return false,
        }
    }
}

/// The host of a virtual Apple chip, such as `Apple M1 (Virtual)`.
fn virtual_chip(chip: &str) -> Option<&str> {
    chip.strip_suffix("(Virtual)").map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::super::source::scripted::Scripted;
    use super::*;

    fn key(chip: Option<&str>, memory_gb: u64) -> (String, bool) {
        let blank = Machine::of("none", &Scripted::default());
        let machine = Machine {
            os: "macos".to_owned(),
            chip: chip.map(str::to_owned),
            logical_cores: 8,
            memory_bytes: Some(memory_gb << 30),
            ..blank
        };
        let found = match_profile(&Profiles::built_in().unwrap(), &machine);
        assert!(!found.reason.is_empty());
        assert_eq!(found.listed, found.profile.chip.is_some());
        (found.profile.key, found.listed)
    }

    #[test]
    fn brand_strings_of_real_machines() {
        let listed = [
            ("Apple M1", 8, "apple-m1"),
            ("Apple M1 Pro", 16, "apple-m1-pro"),
            ("Apple M1 Max", 64, "apple-m1-max-64gb"),
            ("Apple M1 Max", 32, "apple-m1-max"),
            ("Apple M1 Ultra", 128, "apple-m1-ultra"),
            ("Apple M2", 24, "apple-m2"),
            ("Apple M2 Pro", 32, "apple-m2-pro"),
            ("Apple M2 Max", 96, "apple-m2-max"),
            ("Apple M2 Ultra", 192, "apple-m2-ultra"),
            ("Apple M3", 16, "apple-m3"),
            ("Apple M3 Pro", 18, "apple-m3-pro"),
            ("Apple M3 Max", 128, "apple-m3-max"),
            ("Apple M3 Ultra", 512, "apple-m3-ultra"),
            ("Apple M4", 16, "apple-m4"),
            ("Apple M4 Pro", 48, "apple-m4-pro"),
            ("Apple M4 Max", 128, "apple-m4-max"),
            ("Apple M5", 32, "apple-m5"),
            ("Apple M5 Pro", 64, "apple-m5-pro"),
            ("Apple M5 Max", 128, "apple-m5-max"),
            ("Apple  M1  max ", 64, "apple-m1-max-64gb"),
        ];
        for (chip, memory, expected) in listed {
            assert_eq!(key(Some(chip), memory), (expected.to_owned(), true), "{chip}");
        }
        let unlisted = [
            ("Apple M1 (Virtual)", "macos-apple-m1-virtual-8c-16gb"),
            ("VirtualApple @ 2.50GHz", "macos-virtualapple-2-50ghz-8c-16gb"),
            ("Apple M6", "macos-apple-m6-8c-16gb"),
            ("Apple M11", "macos-apple-m11-8c-16gb"),
            ("Apple M1 Maximum", "macos-apple-m1-maximum-8c-16gb"),
            ("Apple A18 Pro", "macos-apple-a18-pro-8c-16gb"),
            ("Intel(R) Core(TM) i9-9980HK CPU @ 2.40GHz", "macos-intel-core-i9-9980hk-2-40ghz-8c-16gb"),
            ("", "macos-unknown-x86-64-8c-16gb"),
        ];
        for (chip, expected) in unlisted {
            let expected = expected.replace("x86-64", &std::env::consts::ARCH.replace('_', "-"));
            assert_eq!(key(Some(chip), 16), (expected, false), "{chip}");
        }
        assert!(!key(None, 16).1);
    }

    #[test]
    fn every_listed_profile_can_be_matched() {
        let profiles = Profiles::built_in().unwrap();
        for profile in profiles.listed() {
            let memory = profile.memory_gb.unwrap_or(1);
            assert_eq!(key(profile.chip.as_deref(), memory), (profile.key.clone(), true));
        }
    }
}
