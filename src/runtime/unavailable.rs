//! A runtime that this build does not have.

use std::sync::Arc;

use super::{Availability, LoadOptions, Loaded, Runtime, RuntimeError};
use crate::package::Package;

/// Core ML, which is part of macOS.
pub(super) static CORE_ML: Missing =
    Missing { name: "coreml", why: "Core ML is part of macOS and exists nowhere else" };

/// A runtime that cannot work here.
pub(super) struct Missing {
    name: &'static str,
    why: &'static str,
}

impl Runtime for Missing {
    fn name(&self) -> &'static str {
        self.name
    }

    fn availability(&self) -> Availability {
        Availability::Unavailable(self.why.to_owned())
    }

    fn load(&self, _: &Package, _: &LoadOptions) -> Result<Arc<dyn Loaded>, RuntimeError> {
        Err(RuntimeError::Environment(self.why.to_owned()))
    }
}
