//! Whether a machine is newer than anything that is known here: limits and figures of older ones may not hold for it.

use super::{Machine, Profiles};

/// The newest macOS that targets of `lint` are named after.
const NEWEST_MACOS: u32 = 27;
/// The newest chip of Macs that devices of `lint` are named after.
const NEWEST_M: u32 = 6;
/// The newest chip of a phone, which some Macs have, that devices of `lint` are named after.
const NEWEST_A: u32 = 20;

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
    found.extend(machine.chip.as_deref().and_then(|chip| of_chip(profiles, chip)));
    found
}

/// What is not known of a chip.
fn of_chip(profiles: &Profiles, chip: &str) -> Option<String> {
    let newer = |family: char, known: u32| {
        generation(chip, family).filter(|own| *own > known).map(|_| {
            format!(
                "`{chip}` is newer than any chip known here, the newest of which is the {family}{known}: there are no \
                 figures for it"
            )
        })
    };
    let without_figures = || {
        let listed = profiles.listed();
        let last = listed.iter().filter_map(|profile| generation(profile.chip.as_deref()?, 'M')).max()?;
        generation(chip, 'M').filter(|own| *own > last).map(|_| {
            format!("there are no public figures for `{chip}`: the newest chip with a profile is the M{last}")
        })
    };
    newer('M', NEWEST_M).or_else(|| newer('A', NEWEST_A)).or_else(without_figures)
}

/// The number of an `Apple M…` or an `Apple A…`.
fn generation(chip: &str, family: char) -> Option<u32> {
    let mut words = chip.split_whitespace();
    let is_apple = words.next()?.eq_ignore_ascii_case("apple");
    let number = words.next()?.strip_prefix([family, family.to_ascii_lowercase()])?.parse().ok()?;
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
        let found = newer("macos", "27.0", Some("Apple A21 Pro"));
        assert!(found[0].contains("the newest of which is the A20"), "{found:?}");
        let found = newer("macos", "27.2", Some("Apple M7"));
        assert!(found[0].contains("the newest of which is the M6"), "lint knows it: {found:?}");
        let found = newer("macos", "27.2", Some("Apple M6 Pro"));
        assert_eq!(
            found,
            ["there are no public figures for `Apple M6 Pro`: the newest chip with a profile is the M5"]
        );
        for (os, version, chip) in [
            ("macos", "27.2", Some("Apple M5 Max")),
            ("macos", "15.7.1", Some("Apple M1")),
            ("macos", "27.1", Some("Apple A18 Pro")),
            ("macos", "unknown", None),
            ("linux", "99.1", Some("AMD EPYC 7M99")),
        ] {
            assert_eq!(newer(os, version, chip), Vec::<String>::new(), "{os} {version} {chip:?}");
        }
    }
}
