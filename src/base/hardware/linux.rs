//! Linux: `/proc` and `/sys`.

use super::conditions::{Conditions, PowerSource};
use super::{Machine, Source, memory};

const SUPPLIES: &str = "/sys/class/power_supply";
const ZONES: &str = "/sys/class/thermal";
const CPUS: &str = "/sys/devices/system/cpu";

pub(super) fn machine(source: &dyn Source, blank: Machine) -> Machine {
    Machine {
        os_version: source.file("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
        chip: source.file("/proc/cpuinfo").and_then(|text| chip(&text)),
        model: source.file("/sys/class/dmi/id/product_name").map(|text| text.trim().to_owned()),
        memory_bytes: memory::total(source),
        ..blank
    }
}

/// x86 gives a model name; ARM gives numbers that name a maker and a design.
fn chip(text: &str) -> Option<String> {
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    };
    field("model name").or_else(|| {
        let (maker, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("ARM {maker} {part}"))
    })
}

pub(super) fn conditions(source: &dyn Source) -> Conditions {
    let load = source.file("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok());
    let governors = frequency(source, "scaling_governor");
    Conditions {
        load_average: load,
        power_source: power(source),
        governor: governors.first().map(|first| {
            if governors.iter().all(|other| other == first) { first.clone() } else { governors.join(",") }
        }),
        boost: boost(source),
        throttled: None,
        hottest_celsius: hottest(source),
        low_power_mode: None,
        thermal: None,
    }
}

fn frequency(source: &dyn Source, name: &str) -> Vec<String> {
    let cpus = source.names(CPUS).into_iter().filter(|cpu| {
        cpu.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
    });
    cpus.filter_map(|cpu| source.file(&format!("{CPUS}/{cpu}/cpufreq/{name}")))
        .map(|text| text.trim().to_owned())
        .collect()
}

fn boost(source: &dyn Source) -> Option<bool> {
    let turned_off = source.file(&format!("{CPUS}/intel_pstate/no_turbo")).map(|text| text.trim() == "1");
    turned_off
        .map(|off| !off)
        .or_else(|| source.file(&format!("{CPUS}/cpufreq/boost")).map(|text| text.trim() == "1"))
}

fn power(source: &dyn Source) -> Option<PowerSource> {
    let attribute = |supply: &str, name: &str| {
        source.file(&format!("{SUPPLIES}/{supply}/{name}")).map(|text| text.trim().to_owned())
    };
    let supplies = source.names(SUPPLIES);
    let of_kind = |kind: &str| {
        supplies.iter().filter(|s| attribute(s, "type").as_deref() == Some(kind)).collect::<Vec<_>>()
    };
    let mains = of_kind("Mains");
    if mains.iter().any(|s| attribute(s, "online").as_deref() == Some("1")) {
        return Some(PowerSource::Mains);
    }
    let discharging = |s: &&&String| attribute(s, "status").as_deref() == Some("Discharging");
    if of_kind("Battery").iter().any(|s| discharging(&s)) {
        return Some(PowerSource::Battery);
    }
    None
}

fn hottest(source: &dyn Source) -> Option<f64> {
    let zones = source.names(ZONES).into_iter().filter(|zone| zone.starts_with("thermal_zone"));
    let temperatures =
        zones.filter_map(|zone| source.file(&format!("{ZONES}/{zone}/temp"))?.trim().parse::<f64>().ok());
    temperatures.map(|thousandths| thousandths / 1000.0).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::super::source::scripted::Scripted;
    use super::*;

    const X86: &str =
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7763 64-Core Processor\n";
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";

    #[test]
    fn a_server_with_a_container_limit() {
        let source = Scripted::default()
            .with_file("/proc/cpuinfo", X86)
            .with_file("/proc/meminfo", "MemTotal:       65842132 kB\nMemFree: 1 kB\n")
            .with_file("/sys/fs/cgroup/memory.max", "8589934592\n")
            .with_file("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        let machine = Machine::of("linux", &source);
        assert_eq!(machine.chip.as_deref(), Some("AMD EPYC 7763 64-Core Processor"));
        assert_eq!(machine.os_version.as_deref(), Some("6.1.0-18-amd64"));
        assert_eq!((machine.memory_gb(), machine.safe_memory_bytes()), (Some(8), Some(6 << 30)));
    }

    #[test]
    fn an_unlimited_arm_machine() {
        let source = Scripted::default()
            .with_file("/proc/cpuinfo", ARM)
            .with_file("/proc/meminfo", "MemTotal: 16096432 kB\n")
            .with_file("/sys/fs/cgroup/memory.max", "max\n");
        let machine = Machine::of("linux", &source);
        assert_eq!(machine.chip.as_deref(), Some("ARM 0x41 0xd0c"));
        assert_eq!(machine.memory_gb(), Some(16));
    }

    #[test]
    fn nothing_readable_means_nothing_claimed() {
        let machine = Machine::of("linux", &Scripted::default());
        assert_eq!((machine.chip, machine.memory_bytes, machine.os_version), (None, None, None));
        assert_eq!(conditions(&Scripted::default()), Conditions::default());
    }

    #[test]
    fn a_laptop_on_battery() {
        let source = Scripted::default()
            .with_file("/proc/loadavg", "1.52 0.90 0.71 2/845 12345\n")
            .with_file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
            .with_file("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
            .with_file("/sys/devices/system/cpu/cpufreq/boost", "1\n")
            .with_file("/sys/class/power_supply/AC/type", "Mains\n")
            .with_file("/sys/class/power_supply/AC/online", "0\n")
            .with_file("/sys/class/power_supply/BAT0/type", "Battery\n")
            .with_file("/sys/class/power_supply/BAT0/status", "Discharging\n")
            .with_file("/sys/class/thermal/thermal_zone0/temp", "41000\n")
            .with_file("/sys/class/thermal/thermal_zone1/temp", "67500\n");
        let conditions = conditions(&source);
        assert_eq!(conditions.load_average, Some(1.52));
        assert_eq!(conditions.power_source, Some(PowerSource::Battery));
        assert_eq!(conditions.governor.as_deref(), Some("powersave"));
        assert_eq!(conditions.boost, Some(true));
        assert_eq!(conditions.hottest_celsius, Some(67.5));
    }
}
