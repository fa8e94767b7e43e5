//! The verifier: everything that is wrong with a model, at once.
//!
//! Only a [`Verified`] model can be written. [`verify`] makes one of a model that is built here, [`verify_rewritten`] one of a
//! package by others that was changed.

mod interface;
mod names;
mod operations;
mod shapes;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::propagate::Finding;
use super::{Function, Model};

/// A model without findings, or with none that a rewrite has added.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified(Model);

impl Verified {
    /// Takes a model as it is.
    #[cfg(test)]
    pub(crate) fn unchecked(model: Model) -> Verified {
        Verified(model)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.0
    }

    /// The model, to be changed and verified again.
    pub fn into_model(self) -> Model {
        self.0
    }
}

/// A model that cannot be written, with every reason.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the model has {} {}, the first in {}", .0.len(), if .0.len() == 1 { "fault" } else { "faults" }, .0[0])]
pub struct Faults(pub Vec<Finding>);

/// Checks a model; all findings are reported at once.
pub fn verify(model: Model) -> Result<Verified, Faults> {
    let findings = findings(&model);
    if findings.is_empty() { Ok(Verified(model)) } else { Err(Faults(findings)) }
}

/// Checks what a rewrite made of a model. Packages by others may hold what [`verify`] does not pass: what was found in
/// the original may stay.
pub fn verify_rewritten(original: &Model, model: Model) -> Result<Verified, Faults> {
    let mut added = findings(&model);
    if !added.is_empty() {
        let known = findings(original);
        added.retain(|finding| !known.contains(finding));
    }
    if added.is_empty() { Ok(Verified(model)) } else { Err(Faults(added)) }
}

/// Everything that is wrong with a model. Where values are not even defined before they are used, only that.
pub fn findings(model: &Model) -> Vec<Finding> {
    let structure = structure(model);
    if !structure.is_empty() {
        return structure;
    }
    let mut report = Report::default();
    names::check(model, &mut report);
    let functions = &model.program.functions;
    let types: Vec<Report> = functions.par_iter().map(operations::check_types).collect();
    report.0.extend(types.into_iter().flat_map(|types| types.0));
    interface::check(model, &mut report);
    if report.0.is_empty() {
        report.0.extend(shapes::check_enumerated(model));
    }
    report.0
}

/// Values that are used before they are defined, defined twice or not there at all.
pub fn structure(model: &Model) -> Vec<Finding> {
    let mut report = Report::default();
    for function in &model.program.functions {
        operations::check_structure(function, &mut report);
    }
    report.0
}

/// Findings so far.
#[derive(Default)]
struct Report(Vec<Finding>);

impl Report {
    fn add(&mut self, function: &str, place: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding {
            function: function.to_owned(),
            operation: place.into(),
            message: message.into(),
        });
    }

    fn in_function(&mut self, function: &Function, place: impl Into<String>, message: impl Into<String>) {
        self.add(&function.name, place, message);
    }
}
