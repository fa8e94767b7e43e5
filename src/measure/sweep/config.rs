//! What a sweep goes through, as YAML states it.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use anemeter_base::config::{self, ConfigFileError};
use anemeter_base::vocabulary::{ComputeUnits, KvForm, RuntimeName};

const SCHEMA: &str = "anemeter.sweep/1";

/// A sweep: every bundle on all compute units in every form with every number of threads.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// `anemeter.sweep/1`.
    schema: String,
    /// The bundles; precision, batch and sequence lengths are those of their exports.
    bundles: Vec<NamedBundle>,
    /// Where Core ML may place operations; as each bundle says if none are given.
    #[serde(default)]
    compute_units: Vec<ComputeUnits>,
    /// Forms of the KV cache; the bundle's first if none are given.
    #[serde(default)]
    kv: Vec<KvForm>,
    /// Numbers of threads; the number of physical cores if none are given.
    #[serde(default)]
    threads: Vec<usize>,
    /// Name of the candidate that others are compared with; the first if none is given.
    #[serde(default)]
    pub reference: Option<String>,
    /// Memory that the best candidate may take; the machine's safe budget if none is given.
    #[serde(default)]
    pub memory_limit_gb: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NamedBundle {
    /// Its name in the table.
    name: String,
    /// Its folder, relative to this file.
    path: PathBuf,
}

/// One configuration to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name in the table.
    pub name: String,
    /// The bundle's folder.
    pub bundle: PathBuf,
    /// Where Core ML may place operations, if the sweep sets it.
    pub units: Option<ComputeUnits>,
    /// Form of the KV cache, if the sweep sets it.
    pub kv: Option<KvForm>,
    /// Threads, if the sweep sets them.
    pub threads: Option<usize>,
}

impl SweepConfig {
    /// Reads a sweep. Bundles are looked for beside it.
    pub fn read(path: &Path) -> Result<SweepConfig, ConfigFileError> {
        let mut sweep: SweepConfig = config::load(path)?;
        if let Some(problem) = sweep.problem() {
            return Err(ConfigFileError::new(path, problem));
        }
        if let Some(folder) = path.parent() {
            sweep.bundles.iter_mut().for_each(|bundle| bundle.path = folder.join(&bundle.path));
        }
        Ok(sweep)
    }

    fn problem(&self) -> Option<String> {
        if self.schema != SCHEMA {
            return Some(format!("schema is `{}`, expected `{SCHEMA}`", self.schema));
        }
        if self.bundles.is_empty() {
            return Some("`bundles` is empty, expected at least one".to_owned());
        }
        if self.threads.iter().any(|threads| !(1..=4096).contains(threads)) {
            return Some(format!("`threads` is {:?}, expected numbers from 1 to 4096", self.threads));
        }
        if self.memory_limit_gb.is_some_and(|limit| !(limit > 0.0 && limit.is_finite())) {
            return Some("`memory_limit_gb` is not a size".to_owned());
        }
        let names: Vec<String> = self.candidates().into_iter().map(|candidate| candidate.name).collect();
        if let Some((_, twice)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Some(format!("`{twice}` is there twice"));
        }
        let reference = self.reference.as_ref().filter(|reference| !names.contains(reference))?;
        Some(format!("`reference` is `{reference}`, expected one of {}", names.join(", ")))
    }

    /// Every configuration, in order. A name has only the parts that differ from others.
    pub fn candidates(&self) -> Vec<Candidate> {
        let bundles = self.bundles.iter().map(|bundle| Candidate {
            name: bundle.name.clone(),
            bundle: bundle.path.clone(),
            units: None,
            kv: None,
            threads: None,
        });
        let found = spread(bundles.collect(), &self.compute_units, "", |candidate, units| {
            candidate.units = Some(units);
        });
        let found = spread(found, &self.kv, "", |candidate, kv| candidate.kv = Some(kv));
        spread(found, &self.threads, " threads", |candidate, threads| candidate.threads = Some(threads))
    }
}

impl Candidate {
    /// Why a runtime cannot run it as it is meant.
    pub fn not_run_by(&self, runtime: RuntimeName) -> Option<String> {
        let elsewhere = self.units.is_some_and(|units| units != ComputeUnits::Cpu);
        (runtime == RuntimeName::Cpu && elsewhere).then(|| "the cpu runtime has no compute units".to_owned())
    }
}

/// Every candidate with every one of some choices. Names tell choices apart if there are several.
fn spread<T: Copy + Display>(
    candidates: Vec<Candidate>,
    choices: &[T],
    word: &str,
    choose: impl Fn(&mut Candidate, T),
) -> Vec<Candidate> {
    if choices.is_empty() {
        return candidates;
    }
    let chosen = |candidate: &Candidate, choice: T| {
        let mut candidate = candidate.clone();
        if choices.len() > 1 {
            candidate.name += &format!(" {choice}{word}");
        }
        choose(&mut candidate, choice);
        candidate
    };
    candidates.iter().flat_map(|candidate| choices.iter().map(|&choice| chosen(candidate, choice))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "schema: anemeter.sweep/1\nbundles:\n  - { name: fp16, path: a }\n  - { name: int8, path: b }\n\
                        threads: [1, 2]\nreference: fp16 1 threads\n";

    fn read(text: &str) -> Result<SweepConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.yaml");
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), text.as_bytes()).unwrap();
        SweepConfig::read(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn every_choice_is_a_candidate() {
        let names: Vec<String> = read(TEXT).unwrap().candidates().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["fp16 1 threads", "fp16 2 threads", "int8 1 threads", "int8 2 threads"]);
        let one = read("schema: anemeter.sweep/1\nbundles: [{ name: x, path: p }]\n").unwrap().candidates();
        assert_eq!((one.len(), one[0].name.as_str(), one[0].threads), (1, "x", None));
        assert!(one[0].bundle.ends_with("p"));
    }

    #[test]
    fn the_cpu_runtime_runs_what_is_meant_for_the_cpu() {
        let text = TEXT
            .replace("threads: [1, 2]\nreference: fp16 1 threads", "compute_units: [cpu, cpu+ane]\nkv: [io]");
        let candidates = read(&text).unwrap().candidates();
        let named: Vec<(&str, Option<KvForm>)> = candidates.iter().map(|c| (c.name.as_str(), c.kv)).collect();
        let io = Some(KvForm::Io);
        assert_eq!(named, [("fp16 cpu", io), ("fp16 cpu+ane", io), ("int8 cpu", io), ("int8 cpu+ane", io)]);
        assert_eq!(candidates[0].not_run_by(RuntimeName::Cpu), None);
        assert_eq!(
            candidates[1].not_run_by(RuntimeName::Cpu).unwrap(),
            "the cpu runtime has no compute units"
        );
        assert_eq!(candidates[1].not_run_by(RuntimeName::CoreMl), None);
        assert_eq!(read(TEXT).unwrap().candidates()[0].not_run_by(RuntimeName::Cpu), None);
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |from: &str, to: &str| read(&TEXT.replace(from, to)).unwrap_err();
        assert!(refused("threads: [1, 2]", "thread: [1]").contains("unknown key `thread`"));
        assert!(refused("fp16 1 threads", "fp32").contains("`reference` is `fp32`, expected one of fp16 1"));
        assert!(refused("name: int8", "name: fp16").contains("is there twice"));
        let units = refused("threads: [1, 2]", "compute_units: [ane]");
        assert!(units.contains("ane") && units.contains("cpu+ane"), "{units}");
        assert!(refused("[1, 2]", "[0]").contains("expected numbers from 1"));
        let empty = read("schema: anemeter.sweep/1\nbundles: []\n").unwrap_err();
        assert!(empty.contains("expected at least one"));
        assert!(read("schema: anemeter.sweep/2\nbundles: []\n").unwrap_err().contains("anemeter.sweep/1"));
    }
}
