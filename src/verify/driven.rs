//! A bundle as a candidate or as a reference: the generator's driver, told which tokens follow.

use super::compare::Candidate;
use crate::bundle::KvForm;
use crate::generate::{Driver, GenerateError};
use crate::oracle::{Oracle, OracleError};

/// A driver at some of its lengths.
pub struct Driven {
    driver: Driver,
    shapes: Vec<usize>,
}

impl Driven {
    /// A driver at the lengths wanted, or at all it has; an error names a length that it does not have.
    pub fn new(driver: Driver, wanted: Option<&[usize]>) -> Result<Driven, String> {
        let lengths = driver.lengths();
        if let Some(length) = wanted.unwrap_or_default().iter().find(|length| !lengths.contains(length)) {
            let known: Vec<String> = lengths.iter().map(usize::to_string).collect();
            let form = driver.form();
            return Err(format!("the form `{form}` has no length {length}, but {}", known.join(", ")));
        }
        let shapes = wanted.map_or_else(|| lengths.to_vec(), <[usize]>::to_vec);
        Ok(Driven { driver, shapes })
    }
}

impl Candidate for Driven {
    fn kv(&self) -> KvForm {
        self.driver.form()
    }

    fn shapes(&self) -> &[usize] {
        &self.shapes
    }

    fn logits(&mut self, shape: usize, prompt: &[u32], rest: &[u32]) -> Result<Vec<Vec<f32>>, String> {
        let ids = [prompt, rest].concat();
        let mut logits = Vec::with_capacity(rest.len() + 1);
        let mut keep = |_: usize, found: &[f32]| {
            logits.push(found.to_vec());
            Ok(())
        };
        self.driver.follow(&ids, prompt.len(), Some(shape), &mut keep).map_err(|error| error.to_string())?;
        Ok(logits)
    }
}

/// A bundle as the reference of another.
pub struct DrivenReference {
    driver: Driver,
    name: String,
    begun: bool,
}

impl DrivenReference {
    /// A driver under a name.
    pub fn new(driver: Driver, name: String) -> DrivenReference {
        DrivenReference { driver, name, begun: false }
    }
}

impl Oracle for DrivenReference {
    fn feed(&mut self, ids: &[u32]) -> Result<Vec<f32>, OracleError> {
        let failed = |error: GenerateError| OracleError::Computation {
            architecture: "the other bundle",
            message: error.to_string(),
        };
        let batch = self.driver.batch();
        if self.begun {
            ids.iter().try_for_each(|&id| self.driver.step(&vec![id; batch])).map_err(failed)?;
        } else {
            self.driver.prefill(&vec![ids; batch], None).map_err(failed)?;
            self.begun = true;
        }
        Ok(self.driver.logits(0).to_vec())
    }

    fn reset(&mut self) {
        self.begun = false;
    }

    fn vocabulary(&self) -> usize {
        self.driver.vocabulary()
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}
