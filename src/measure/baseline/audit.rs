//! A whole store checked: every digest, every link, every name.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::document::Blessed;
use super::error::{BaselineError, Problem};
use super::store::Store;

/// What checking a store found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Present baselines.
    pub baselines: usize,
    /// Predecessors in their histories.
    pub ancestors: usize,
    /// Everything that is wrong, in the order of names.
    pub findings: Vec<Finding>,
}

/// Something that is wrong in a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file or object.
    pub at: String,
    /// What is wrong with it.
    pub problem: String,
}

impl From<BaselineError> for Finding {
    fn from(error: BaselineError) -> Finding {
        Finding { at: error.at, problem: error.problem.to_string() }
    }
}

impl Store {
    /// Checks every document of the store. Only a storage that cannot be listed is an error; all else is a finding.
    pub fn verify(&self) -> Result<Audit, BaselineError> {
        let names = self.storage.names()?;
        let (ancestors, present): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| name.contains(".history/"));
        let chains: Vec<(BTreeSet<String>, Option<BaselineError>)> = present
            .par_iter()
            .map(|name| {
                let mut reached = BTreeSet::new();
                let problem = self.check_chain(name, &mut reached).err();
                (reached, problem)
            })
            .collect();
        let mut reached = BTreeSet::new();
        let mut findings: Vec<Finding> = Vec::new();
        for (names, problem) in chains {
            reached.extend(names);
            findings.extend(problem.map(Finding::from));
        }
        for name in ancestors.iter().filter(|name| !reached.contains(**name)) {
            let problem = match self.read(name) {
                Ok(_) => "belongs to no baseline: nothing names it as its parent".to_owned(),
                Err(error) => error.problem.to_string(),
            };
            findings.push(Finding { at: self.storage.place(name), problem });
        }
        findings.sort();
        findings.dedup();
        Ok(Audit { baselines: present.len(), ancestors: ancestors.len(), findings })
    }

    /// Checks a present baseline and all of its predecessors, noting the names of the latter.
    fn check_chain(&self, name: &str, reached: &mut BTreeSet<String>) -> Result<(), BaselineError> {
        let mut blessed = self.read(name)?;
        if blessed.key.file() != name {
            let problem =
                Problem::NotABaseline(format!("it belongs at {}", self.storage.place(&blessed.key.file())));
            return Err(BaselineError::new(self.storage.place(name), problem));
        }
        // A bless that was ended early leaves a copy of the present one, which the next bless needs anyway.
        let copy = blessed.key.ancestor(&blessed.digest);
        if let Some(stored) = self.storage.read(&copy)? {
            self.parse(&copy, &stored, &blessed.key)?;
            reached.insert(copy);
        }
        loop {
            reached.extend(blessed.parent.as_ref().map(|digest| blessed.key.ancestor(digest)));
            let Some(parent) = self.parent(&blessed)? else { return Ok(()) };
            blessed = parent;
        }
    }

    fn read(&self, name: &str) -> Result<Blessed, BaselineError> {
        let wrong = |problem| BaselineError::new(self.storage.place(name), problem);
        let stored = self.storage.read(name)?;
        let stored = stored.ok_or_else(|| wrong(Problem::NotABaseline("it has gone".to_owned())))?;
        Blessed::parse(&stored.bytes).map_err(wrong)
    }
}
