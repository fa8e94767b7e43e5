//! macOS: `sysctl`, `sw_vers` and `pmset`.

use super::conditions::{Conditions, PowerSource};
use super::{Machine, Source};

const SYSCTL: &str = "/usr/sbin/sysctl";
const SW_VERS: &str = "/usr/bin/sw_vers";
const PMSET: &str = "/usr/bin/pmset";

pub(super) fn machine(source: &dyn Source, blank: Machine) -> Machine {
    let sysctl = |name: &str| line(source.command(SYSCTL, &["-n", name]));
    let number = |name: &str| sysctl(name)?.parse::<u64>().ok();
    let cores =
        |name: &str, other: usize| number(name).and_then(|n| usize::try_from(n).ok()).unwrap_or(other);
    Machine {
        os_version: line(source.command(SW_VERS, &["-productVersion"])),
        os_build: line(source.command(SW_VERS, &["-buildVersion"])),
        chip: sysctl("machdep.cpu.brand_string"),
        model: sysctl("hw.model"),
        logical_cores: cores("hw.logicalcpu", blank.logical_cores),
        physical_cores: cores("hw.physicalcpu", blank.physical_cores),
        memory_bytes: number("hw.memsize"),
        ..blank
    }
}

pub(super) fn conditions(source: &dyn Source) -> Conditions {
    let load = source.command(SYSCTL, &["-n", "vm.loadavg"]);
    let battery = source.command(PMSET, &["-g", "batt"]);
    let settings = source.command(PMSET, &["-g"]);
    Conditions {
        load_average: load
            .and_then(|text| text.trim_matches(['{', '}', ' ', '\n']).split(' ').next()?.parse().ok()),
        power_source: battery.and_then(|text| {
            let known = [("'AC Power'", PowerSource::Mains), ("'Battery Power'", PowerSource::Battery)];
            known.into_iter().find(|(words, _)| text.contains(words)).map(|(_, kind)| kind)
        }),
        throttled: source.command(PMSET, &["-g", "therm"]).and_then(|text| throttled(&text)),
        low_power_mode: settings.and_then(|text| low_power_mode(&text)),
        ..Conditions::default()
    }
}

/// `pmset -g therm` notes limits below 100; silence means that none was recorded.
fn throttled(text: &str) -> Option<bool> {
    let limits = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        name.trim().ends_with("_Limit").then(|| value.trim().parse::<u32>().ok())?
    });
    let limits: Vec<u32> = limits.collect();
    let silent = text.contains("No thermal warning level has been recorded");
    (silent || !limits.is_empty()).then(|| limits.iter().any(|&limit| limit < 100))
}

fn low_power_mode(text: &str) -> Option<bool> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "lowpowermode").then(|| words.next() == Some("1"))
    })
}

fn line(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::source::scripted::Scripted;
    use super::*;

    fn laptop() -> Scripted {
        Scripted::default()
            .with_command("/usr/sbin/sysctl -n machdep.cpu.brand_string", "Apple M1 Max\n")
            .with_command("/usr/sbin/sysctl -n hw.model", "MacBookPro18,4\n")
            .with_command("/usr/sbin/sysctl -n hw.memsize", "68719476736\n")
            .with_command("/usr/sbin/sysctl -n hw.logicalcpu", "10\n")
            .with_command("/usr/sbin/sysctl -n hw.physicalcpu", "10\n")
            .with_command("/usr/sbin/sysctl -n vm.loadavg", "{ 2.10 1.80 1.75 }\n")
            .with_command("/usr/bin/sw_vers -productVersion", "15.2\n")
            .with_command("/usr/bin/sw_vers -buildVersion", "24C101\n")
    }

    #[test]
    fn a_laptop_is_described() {
        let machine = Machine::of("macos", &laptop());
        assert_eq!(machine.chip.as_deref(), Some("Apple M1 Max"));
        assert_eq!(machine.model.as_deref(), Some("MacBookPro18,4"));
        let (version, build) = (machine.os_version.as_deref(), machine.os_build.as_deref());
        assert_eq!((version, build), (Some("15.2"), Some("24C101")));
        assert_eq!((machine.physical_cores, machine.memory_gb()), (10, Some(64)));
    }

    #[test]
    fn power_and_heat_are_read() {
        let source = laptop()
            .with_command(
                "/usr/bin/pmset -g batt",
                "Now drawing from 'Battery Power'\n -InternalBattery-0\t81%;\n",
            )
            .with_command(
                "/usr/bin/pmset -g",
                "System-wide power settings:\n lowpowermode         1\n sleep 1\n",
            )
            .with_command(
                "/usr/bin/pmset -g therm",
                "CPU Power notify\n\tCPU_Scheduler_Limit \t= 100\n\tCPU_Speed_Limit \t= 70\n",
            );
        let conditions = conditions(&source);
        assert_eq!(conditions.load_average, Some(2.10));
        assert_eq!(conditions.power_source, Some(PowerSource::Battery));
        assert_eq!((conditions.throttled, conditions.low_power_mode), (Some(true), Some(true)));
    }

    #[test]
    fn a_cool_machine_is_not_throttled() {
        let silent = "Note: No thermal warning level has been recorded\n";
        assert_eq!(throttled(silent), Some(false));
        assert_eq!(throttled("\tCPU_Speed_Limit \t= 100\n"), Some(false));
        assert_eq!(throttled(""), None);
    }
}
