//! What may disturb a measurement: load, power, heat, frequency settings; and what to do about each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Machine, Source, Thermal, linux, macos, system_state};

/// The state of a machine at a moment. What the system does not tell is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Conditions {
    /// Processes that wanted to run, averaged over a minute.
    pub load_average: Option<f64>,
    /// Where power comes from.
    pub power_source: Option<PowerSource>,
    /// How the system chooses frequencies (Linux).
    pub governor: Option<String>,
    /// Whether frequencies may exceed the nominal one (Linux).
    pub boost: Option<bool>,
    /// Whether the system limits speed because of heat (macOS).
    pub throttled: Option<bool>,
    /// The hottest sensor, in degrees Celsius (Linux).
    pub hottest_celsius: Option<f64>,
    /// Whether the system saves power at the cost of speed (macOS).
    pub low_power_mode: Option<bool>,
    /// How hot the machine is, as far as it limits itself (macOS).
    #[serde(default)]
    pub thermal: Option<Thermal>,
}

/// Where power comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PowerSource {
    /// The mains.
    Mains,
    /// A battery.
    Battery,
}

/// Something that disturbs measurements, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Noise {
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub advice: String,
}

/// Beyond this temperature most machines are about to slow down.
const HOT_CELSIUS: f64 = 85.0;
/// Load per core, before a measurement starts, that others cause.
const BUSY_SHARE: f64 = 0.2;

impl Conditions {
    /// Looks at the machine that the program runs on.
    pub fn observe(source: &dyn Source) -> Conditions {
        let conditions = match std::env::consts::OS {
            "linux" => linux::conditions(source),
            "macos" => macos::conditions(source),
            _ => Conditions::default(),
        };
        let told = system_state();
        let low_power_mode = told.low_power_mode.or(conditions.low_power_mode);
        Conditions { thermal: told.thermal, low_power_mode, ..conditions }
    }

    /// Whether processes wanted to run besides `own` threads of a measurement.
    pub fn is_busy_beside(&self, own: usize, machine: &Machine) -> bool {
        let cores = machine.logical_cores.max(1) as f64;
        self.load_average.is_some_and(|load| load > own as f64 + cores * BUSY_SHARE)
    }

    /// What is likely to disturb a measurement that starts now.
    pub fn noise(&self, machine: &Machine) -> Vec<Noise> {
        let mut found = Vec::new();
        let mut add = |condition: bool, what: &str, advice: &str| {
            if condition {
                found.push(Noise { found: what.to_owned(), advice: advice.to_owned() });
            }
        };
        let cool = "let the machine cool down";
        if let Some(load) = self.load_average {
            let cores = machine.logical_cores.max(1) as f64;
            let busy = self.is_busy_beside(0, machine);
            add(busy, &format!("load average {load:.2} on {cores} cores"), "stop other work, then measure");
        }
        let battery = self.power_source == Some(PowerSource::Battery);
        add(battery, "running on battery", "connect the mains: speed is limited on battery");
        if let Some(governor) = self.governor.as_ref().filter(|governor| *governor != "performance") {
            let advice = "select the governor `performance` (cpupower frequency-set -g performance)";
            add(true, &format!("frequency governor `{governor}`"), advice);
        }
        let no_boost =
            "turn boost off for the steadiest figures: the boost frequency depends on heat and load";
        add(self.boost == Some(true), "frequency boost is on", no_boost);
        add(self.throttled == Some(true), "the system limits its speed because of heat", cool);
        add(self.thermal >= Some(Thermal::Serious), "the machine is so hot that it slows down", cool);
        if let Some(celsius) = self.hottest_celsius {
            add(celsius >= HOT_CELSIUS, &format!("a sensor shows {celsius:.0} °C"), cool);
        }
        add(self.low_power_mode == Some(true), "low power mode is on", "turn low power mode off");
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::scripted::Scripted;
    use super::*;

    #[test]
    fn every_disturbance_has_advice_and_quiet_machines_have_none() {
        let machine = Machine { logical_cores: 4, ..Machine::of("linux", &Scripted::default()) };
        let noisy = Conditions {
            load_average: Some(3.0),
            power_source: Some(PowerSource::Battery),
            governor: Some("powersave".to_owned()),
            boost: Some(true),
            throttled: Some(true),
            hottest_celsius: Some(95.0),
            low_power_mode: Some(true),
            thermal: Some(Thermal::Serious),
        };
        let noise = noisy.noise(&machine);
        assert_eq!(noise.len(), 8);
        assert_eq!(noise[0].found, "load average 3.00 on 4 cores");
        assert!(noise.iter().all(|noise| !noise.advice.is_empty()));
        let quiet = Conditions {
            load_average: Some(0.1),
            power_source: Some(PowerSource::Mains),
            governor: Some("performance".to_owned()),
            boost: Some(false),
            throttled: Some(false),
            hottest_celsius: Some(40.0),
            low_power_mode: Some(false),
            thermal: Some(Thermal::Fair),
        };
        assert_eq!(quiet.noise(&machine), []);
        assert_eq!(Conditions::default().noise(&machine), []);
    }
}
