//! What making a package ready took and what was found out on the way.

use std::time::Duration;

use anemeter_base::engine::Engine;
use anemeter_base::vocabulary::ComputeUnits;

/// How a package was made ready.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loading {
    /// Compilation, where the runtime compiles.
    pub compilation: Option<Compilation>,
    /// Lowering or specialisation by a framework that does not tell whether it used an earlier result.
    pub lowering: Option<Duration>,
    /// Functions in the order in which they were loaded.
    pub functions: Vec<FunctionLoad>,
    /// Where operations may run, as the runtime itself says after loading.
    pub units: Option<ComputeUnits>,
    /// What a user should know, such as a fallback that was taken.
    pub remarks: Vec<String>,
    /// What does the work, where the runtime only asks for it.
    pub engine: Option<Engine>,
}

/// How a package was compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compilation {
    /// What it took, looking for an earlier result included.
    pub elapsed: Duration,
    /// Whether an earlier result was used.
    pub cached: bool,
}

/// How a function was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionLoad {
    /// The function.
    pub function: String,
    /// Time that loading it took.
    pub elapsed: Duration,
}

/// How often shapes change from one prediction to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReshapeFrequency {
    /// Often: a change is cheap.
    #[default]
    Frequent,
    /// Seldom: a change may take long, which allows flexible shapes on the Neural Engine.
    Infrequent,
}

/// What a runtime may spend time on when it loads a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Specialization {
    /// Core ML's own choice.
    #[default]
    Default,
    /// Slower loading for faster predictions.
    FastPrediction,
}

/// Hints for a runtime that optimises a model when it loads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// How often shapes change.
    pub reshape: ReshapeFrequency,
    /// What to spend time on.
    pub specialization: Specialization,
}
