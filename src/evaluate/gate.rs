//! The one place where a gate is composed: limits of the hardware profile and of a gates file with its waivers, the
//! sessions of a baseline, and the day. `gate`, `report --baseline`, `compare`, `bless` and `--rerun` all judge here.

use std::path::Path;
use std::time::SystemTime;

use crate::baseline::{BaselineError, Key, Store};
use crate::config::ConfigFileError;
use crate::gate::{self, Arm, GateError, GatesFile, InterimLook, Options, Policy, Verdict};
use crate::hardware::Profiles;
use crate::report::Report;
use crate::time::Date;

/// What is allowed, and on which day.
#[derive(Debug, Clone)]
pub struct GateRules {
    /// Hardware profiles with their limits.
    pub profiles: Profiles,
    /// Limits and waivers of the project.
    pub gates: GatesFile,
    /// The day, for waivers.
    pub today: Date,
    /// Whether speeds of different hardware profiles may be compared.
    pub allow_cross_hardware: bool,
}

/// What a report is judged by.
#[derive(Debug, Clone, Copy)]
pub enum Baseline<'a> {
    /// Sessions of other days, oldest first.
    Sessions(&'a [Report]),
    /// Launches that were interleaved with those of the candidate.
    Interleaved {
        /// Their report.
        report: &'a Report,
        /// The launches of both in the order in which they ran.
        order: &'a [Arm],
    },
}

impl GateRules {
    /// Reads limits and profiles; without a file, those that come with the program.
    pub fn read(gates: Option<&Path>, profiles: Option<&Path>) -> Result<GateRules, ConfigFileError> {
        Ok(GateRules {
            profiles: profiles.map_or_else(Profiles::built_in, Profiles::read)?,
            gates: gates.map_or_else(GatesFile::built_in, GatesFile::read)?,
            today: Date::of(SystemTime::now()),
            allow_cross_hardware: false,
        })
    }

    /// Judges a report.
    pub fn judge(
        &self,
        candidate: &Report,
        baseline: Baseline<'_>,
        look: InterimLook,
    ) -> Result<Verdict, GateError> {
        let (policy, options) = self.compose(candidate, look);
        match baseline {
            Baseline::Sessions(sessions) => {
                gate::judge(candidate, &sessions.iter().collect::<Vec<_>>(), &policy, &options)
            }
            Baseline::Interleaved { report, order } => {
                gate::paired(report, candidate, order, &policy, &options)
            }
        }
    }

    /// Refuses reports that were not measured alike.
    pub fn check_comparable(&self, candidate: &Report, baseline: &Report) -> Result<(), GateError> {
        let (policy, options) = self.compose(candidate, InterimLook::only());
        gate::check_comparable(candidate, baseline, &policy, &options)
    }

    fn compose(&self, candidate: &Report, look: InterimLook) -> (Policy, Options) {
        let profile = self.profiles.of_key(&candidate.header.hardware_profile_key);
        let options = Options { today: self.today, look, allow_cross_hardware: self.allow_cross_hardware };
        (Policy::new(&profile, &self.gates), options)
    }

    /// The blessed sessions for a report. Where hardware may be crossed and its own profile has none, those of the only
    /// other profile with the same model and workload.
    pub fn blessed_sessions(&self, store: &Store, report: &Report) -> Result<Vec<Report>, BaselineError> {
        let key = Key::of(report);
        if self.allow_cross_hardware && store.find(&key)?.is_none() {
            let others = store.keys()?;
            let what = |key: &Key| (key.model.clone(), key.precision.clone(), key.workload.clone());
            let mut same = others.iter().filter(|other| what(other) == what(&key));
            if let (Some(other), None) = (same.next(), same.next()) {
                return Ok(store.latest(other)?.sessions);
            }
        }
        Ok(store.latest(&key)?.sessions)
    }
}
