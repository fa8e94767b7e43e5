//! What a sweep goes through, as YAML states it.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::bundle::KvForm;
use crate::config::{self, ConfigFileError};

const SCHEMA: &str = "anemeter.sweep/1";

/// A sweep: every bundle in every form with every number of threads.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// `anemeter.sweep/1`.
    schema: String,
    /// The bundles; precision, batch and shapes are those of their exports.
    bundles: Vec<NamedBundle>,
    /// Forms of the key-value cache; the bundle's first if none are given.
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
    /// Form of the key-value cache, if the sweep sets it.
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
        let choices = |given: usize| given > 1;
        let forms: Vec<Option<KvForm>> = optional(&self.kv);
        let threads: Vec<Option<usize>> = optional(&self.threads);
        let mut found = Vec::new();
        for bundle in &self.bundles {
            for &kv in &forms {
                for &threads in &threads {
                    let mut name = bundle.name.clone();
                    if let Some(kv) = kv.filter(|_| choices(self.kv.len())) {
                        name += &format!(" {kv}");
                    }
                    if let Some(threads) = threads.filter(|_| choices(self.threads.len())) {
                        name += &format!(" {threads} threads");
                    }
                    found.push(Candidate { name, bundle: bundle.path.clone(), kv, threads });
                }
            }
        }
        found
    }
}

fn optional<T: Copy>(given: &[T]) -> Vec<Option<T>> {
    if given.is_empty() { vec![None] } else { given.iter().copied().map(Some).collect() }
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
    fn mistakes_are_named() {
        let refused = |from: &str, to: &str| read(&TEXT.replace(from, to)).unwrap_err();
        assert!(refused("threads: [1, 2]", "thread: [1]").contains("unknown key `thread`"));
        assert!(refused("fp16 1 threads", "fp32").contains("`reference` is `fp32`, expected one of fp16 1"));
        assert!(refused("name: int8", "name: fp16").contains("is there twice"));
        assert!(refused("[1, 2]", "[0]").contains("expected numbers from 1"));
        assert!(
            read("schema: anemeter.sweep/1\nbundles: []\n").unwrap_err().contains("expected at least one")
        );
        assert!(read("schema: anemeter.sweep/2\nbundles: []\n").unwrap_err().contains("anemeter.sweep/1"));
    }
}
