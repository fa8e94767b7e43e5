//! The Python that has Apple's module, as commands are told.

use std::path::PathBuf;

use super::output::note;
use crate::runtime::{Runtime, coreai};

/// An interpreter for the runtime `coreai`.
#[derive(clap::Args)]
pub(super) struct PythonArg {
    /// Python with Apple's coreai-core, for the `coreai` runtime [default: that of ANEMETER_PYTHON, or python3].
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

impl PythonArg {
    /// Makes it the one that this process and its workers use.
    pub(super) fn apply(&self) {
        if let Some(python) = &self.python {
            coreai::use_interpreter(python);
        }
    }
}

/// Says what stands behind a runtime, where that is another program: an interpreter's times are nobody's.
pub(super) fn say_engine(runtime: &dyn Runtime) {
    if let Some(about) = runtime.about() {
        note(format_args!("note: {}: {about}", runtime.name()));
    }
}
