//! A sweep: every configuration that the runtime can run is measured in turn, and all are put side by side.

use std::path::{Path, PathBuf};

use crate::advice::{Advice, Remedy};
use crate::bundle::{Bundle, BundleError};
use crate::config::ConfigFileError;
use crate::hardware::{Machine, ProductionMix};
use crate::harness::BenchConfig;
use crate::report::Report;
use crate::sweep::{Candidate, NotRun, Sweep, SweepConfig};
use crate::vocabulary::RuntimeName;

/// What is going to be measured.
pub struct SweepPlan {
    config: SweepConfig,
    candidates: Vec<(Candidate, Bundle)>,
    not_run: Vec<NotRun>,
    /// Name of the candidate that others are compared with.
    reference: String,
}

/// Why a sweep was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Its file cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    /// There is nothing to compare with.
    #[error("{}: {problem}", path.display())]
    Reference {
        /// The file of the sweep.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A bundle cannot be opened.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// There is no length at which all can be compared.
    #[error("the bundles have no sequence length in common")]
    NothingInCommon,
}

impl Advice for SweepError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            SweepError::Config(error) => error.remedy(),
            SweepError::Reference { .. } => None,
            SweepError::Bundle(error) => error.remedy(),
            SweepError::NothingInCommon => Some(Remedy::CommonWorkload),
        }
    }
}

impl SweepPlan {
    /// Reads a sweep and opens the bundles that the runtime can run as they are meant.
    pub fn read(path: &Path, runtime: RuntimeName) -> Result<SweepPlan, SweepError> {
        let config = SweepConfig::read(path)?;
        let (run, not_run) = split(&config, runtime);
        let reference = reference(&config, &run, &not_run)
            .map_err(|problem| SweepError::Reference { path: path.to_owned(), problem })?;
        let open = |candidate: Candidate| Ok((Bundle::open_any(&candidate.bundle)?, candidate));
        let opened = run.into_iter().map(open).collect::<Result<Vec<_>, BundleError>>()?;
        let candidates = opened.into_iter().map(|(bundle, candidate)| (candidate, bundle)).collect();
        Ok(SweepPlan { config, candidates, not_run, reference })
    }

    /// The candidates that are going to be measured, in order.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().map(|(candidate, _)| candidate)
    }

    /// Has every candidate measured by `measure`, which is given its place in the order and its workload.
    pub fn run<E: From<SweepError>>(
        self,
        workload: &BenchConfig,
        (machine, mix): (&Machine, &ProductionMix),
        mut measure: impl FnMut(usize, &Candidate, &Bundle, BenchConfig) -> Result<Report, E>,
    ) -> Result<Sweep, E> {
        let mut reports: Vec<(String, Report)> = Vec::new();
        for (index, (candidate, bundle)) in self.candidates.iter().enumerate() {
            let mut config = workload.clone();
            config.compute_units = candidate.units.or(config.compute_units);
            config.kv = candidate.kv.or(config.kv);
            config.threads = candidate.threads.or(config.threads);
            reports.push((candidate.name.clone(), measure(index, candidate, bundle, config)?));
        }
        let limit = self.config.memory_limit_gb.map(|gb| gb * 1e9);
        let limit = limit.or(machine.safe_memory_bytes().map(|bytes| bytes as f64));
        let sweep = Sweep::new(&reports, &self.reference, mix, limit).ok_or(SweepError::NothingInCommon)?;
        Ok(sweep.without(self.not_run))
    }
}

/// What a runtime can run, and what it cannot.
fn split(sweep: &SweepConfig, runtime: RuntimeName) -> (Vec<Candidate>, Vec<NotRun>) {
    let (mut run, mut not_run) = (Vec::new(), Vec::new());
    for candidate in sweep.candidates() {
        match candidate.not_run_by(runtime) {
            Some(reason) => not_run.push(NotRun { name: candidate.name, reason }),
            None => run.push(candidate),
        }
    }
    (run, not_run)
}

/// Name of the candidate that others are compared with, known before anything is measured.
fn reference(sweep: &SweepConfig, run: &[Candidate], not_run: &[NotRun]) -> Result<String, String> {
    let wanted = sweep.reference.as_ref();
    let missing = not_run.iter().find(|left_out| wanted.is_none_or(|name| *name == left_out.name));
    match (wanted, run, missing) {
        (None, [first, ..], _) => Ok(first.name.clone()),
        (Some(name), [_, ..], None) => Ok(name.clone()),
        (_, [], Some(NotRun { reason, .. })) => Err(format!("nothing can be run: {reason}")),
        (_, _, Some(NotRun { name, reason })) => Err(format!("`reference` is `{name}`, but {reason}")),
        (_, [], None) => Err("nothing can be run".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::write_file;
    use crate::evaluate::testing::bundle;
    use crate::hardware::System;
    use crate::report::testing;

    fn written(folder: &Path, more: &str) -> PathBuf {
        let text = "schema: anemeter.sweep/1\nbundles: [{ name: x, path: p }]\n";
        let path = folder.join("sweep.yaml");
        write_file(&path, format!("{text}{more}").as_bytes()).unwrap();
        path
    }

    #[test]
    fn a_reference_that_cannot_be_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let chosen = |more: &str, units: &str| {
            let config = written(folder.path(), &format!("compute_units: {units}\n{more}"));
            let config = SweepConfig::read(&config).unwrap();
            let (run, not_run) = split(&config, RuntimeName::Cpu);
            reference(&config, &run, &not_run)
        };
        assert_eq!(chosen("", "[cpu, all]").unwrap(), "x cpu");
        assert_eq!(chosen("reference: x cpu", "[cpu, all]").unwrap(), "x cpu");
        let no_units = "the cpu runtime has no compute units";
        let refused = chosen("reference: x all", "[cpu, all]").unwrap_err();
        assert_eq!(refused, format!("`reference` is `x all`, but {no_units}"));
        assert_eq!(chosen("", "[all]").unwrap_err(), format!("nothing can be run: {no_units}"));
    }

    #[test]
    fn every_candidate_is_measured_with_its_own_choices_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        bundle(&folder.path().join("p"), &[64, 128], 1);
        let path = written(folder.path(), "threads: [1, 2]\ncompute_units: [cpu, all]\n");
        let plan = SweepPlan::read(&path, RuntimeName::Cpu).unwrap();
        let report = testing::report();
        let workload = BenchConfig::built_in().unwrap();
        let mut asked = Vec::new();
        let machine = (&Machine::detect(&System), &report.workload.mix);
        let swept = plan.run(&workload, machine, |index, candidate, _, config| {
            asked.push((index, candidate.name.clone(), config.threads));
            Ok::<_, SweepError>(report.clone())
        });
        let expected =
            [(0, "x cpu 1 threads".to_owned(), Some(1)), (1, "x cpu 2 threads".to_owned(), Some(2))];
        assert_eq!(asked, expected);
        let swept = swept.unwrap();
        assert_eq!((swept.rows.len(), swept.not_run.len(), &*swept.reference), (2, 2, "x cpu 1 threads"));
    }
}
