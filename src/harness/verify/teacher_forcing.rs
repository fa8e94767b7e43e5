//! Teacher forcing: a bundle given the tokens of a reference, as a candidate or as a reference itself.

use super::compare::Candidate;
use crate::generate::{Driver, GenerateError};
use crate::verify::{Oracle, OracleError, VerifyError};
use anemeter_base::vocabulary::KvForm;

/// A driver at some of its lengths.
pub struct TeacherForced {
    driver: Driver,
    seq_lens: Vec<usize>,
}

impl TeacherForced {
    /// A driver at the lengths wanted, or at all it has; an error names a length that it does not have.
    pub fn new(driver: Driver, wanted: Option<&[usize]>) -> Result<TeacherForced, VerifyError> {
        let lengths = driver.lengths();
        if let Some(length) = wanted.unwrap_or_default().iter().find(|length| !lengths.contains(length)) {
            let known = lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            return Err(VerifyError::NoLength { kv: driver.form(), length: *length, known });
        }
        let seq_lens = wanted.map_or_else(|| lengths.to_vec(), <[usize]>::to_vec);
        Ok(TeacherForced { driver, seq_lens })
    }
}

impl Candidate for TeacherForced {
    fn kv(&self) -> KvForm {
        self.driver.form()
    }

    fn seq_lens(&self) -> &[usize] {
        &self.seq_lens
    }

    fn logits(&mut self, seq_len: usize, prompt: &[u32], rest: &[u32]) -> Result<Vec<Vec<f32>>, String> {
        let ids = [prompt, rest].concat();
        let mut logits = Vec::with_capacity(rest.len() + 1);
        let mut keep = |_: usize, found: &[f32]| {
            logits.push(found.to_vec());
            Ok(())
        };
        self.driver
            .teacher_force(&ids, prompt.len(), Some(seq_len), &mut keep)
            .map_err(|error| error.to_string())?;
        Ok(logits)
    }
}

/// A bundle as the reference of another.
pub struct BundleOracle {
    driver: Driver,
    name: String,
    begun: bool,
}

impl BundleOracle {
    /// A driver under a name.
    pub fn new(driver: Driver, name: String) -> BundleOracle {
        BundleOracle { driver, name, begun: false }
    }
}

impl Oracle for BundleOracle {
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
