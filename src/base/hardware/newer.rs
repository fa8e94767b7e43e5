//! Whether a machine is newer than anything that is known here: limits and figures of older ones may not hold for it.

use super::{Machine, Profiles};

/// The newest macOS that targets of `lint` are named after.
const NEWEST_MACOS: u32 = 27;

/// What about a machine is newer than what is known, a sentence each.
pub fn newer_than_known(profiles: &Profiles, machine: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    if machine.os == "macos"
        && let Some(version) = &machine.os_version
        && version.split('.').next().and_then(|major| major.parse::<u32>().ok()) > Some(NEWEST_MACOS)
    {
        found.push(format!(
            "macOS {version} is newer than any system known here, the newest of which is {NEWEST_MACOS}: rules of lint \
             and expectations are of older ones"
        ));
    }
    let known = profiles.listed().iter().filter_map(|profile| generation(profile.chip.as_deref()?)).max();
    if let Some(chip) = &machine.chip
        && let (Some(own), Some(known)) = (generation(chip), known)
        && own > known
    {
        found.push(format!(
            "`{chip}` is newer than any chip known here, the newest of which is the M{known}: there are no figures for it"
        ));
    }
    found
}

/// The number of an `Apple M…`.
fn generation(chip: &str) -> Option<u32> {
    let mut words = chip.split_whitespace();
    let is_apple = words.next()?.eq_ignore_ascii_case("apple");
    let number = words.next()?.strip_prefix(['M', 'm'])?.parse().ok()?;
    is_apple.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::super::source::scripted::Scripted;
    use super::*;

    fn newer(os: &str, version: &str, chip: Option<&str>) -> Vec<String> {
        let machine = Machine {
            os: os.to_owned(),
            os_version: Some(version.to_owned()),
            chip: chip.map(str::to_owned),
            ..Machine::of("none", &Scripted::default())
        };
        newer_than_known(&Profiles::built_in().unwrap(), &machine)
    }

    #[test]
    fn systems_and_chips_of_the_future_are_named() {
        let found = newer("macos", "28.1", Some("Apple M19 Max"));
        assert!(found[0].starts_with("macOS 28.1 is newer than any system known here"), "{found:?}");
        assert!(found[1].starts_with("`Apple M19 Max` is newer than any chip known here"), "{found:?}");
        for (os, version, chip) in [
            ("macos", "27.2", Some("Apple M5 Max")),
            ("macos", "15.7.1", Some("Apple M1")),
            ("macos", "unknown", None),
            ("linux", "99.1", Some("AMD EPYC 7M99")),
        ] {
            assert_eq!(newer(os, version, chip), Vec::<String>::new(), "{os} {version} {chip:?}");
        }
    }
}
