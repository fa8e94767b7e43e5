//! What compression did to the weights of all packages.

use std::collections::BTreeSet;
use std::io;

use super::error::ExportError;
use crate::compress::{Calibration, Compression, Log, Plan, Precision};

/// The logs of the packages so far, and the rules that none of them needed.
#[derive(Default)]
pub(super) struct Compressed {
    log: Log,
    unmatched: Option<BTreeSet<String>>,
}

impl Compressed {
    /// Adds a package that was written.
    pub(super) fn add(&mut self, compression: &Compression) -> io::Result<()> {
        let unmatched: BTreeSet<String> = compression.unmatched_rules().iter().cloned().collect();
        self.unmatched = Some(match self.unmatched.take() {
            Some(before) => &before & &unmatched,
            None => unmatched,
        });
        self.log.extend(compression.log()?);
        Ok(())
    }

    /// The log, if there was anything to compress. A rule that no package needed is an error.
    pub(super) fn finish(
        mut self,
        plan: &Plan,
        calibration: Option<Calibration>,
    ) -> Result<Option<Log>, ExportError> {
        if let Some(rule) = self.unmatched.into_iter().flatten().next() {
            return Err(ExportError::Unmatched(rule));
        }
        self.log.calibration = calibration;
        let plain = plan.default == Precision::Keep && plan.rules.is_empty();
        Ok((!plain).then_some(self.log))
    }
}
