//! The plan of one function at one set of input shapes: constants folded, steps in order, every value given
//! a place.
//!
//! A value whose size is known lives at a fixed offset of the arena, which it shares with values that are
//! never alive at the same time. A value whose size depends on data, or that is computed in a nested block,
//! has a buffer of its own that grows to what it needs and is then reused.

use smallvec::SmallVec;

use anemeter_kernels::tensor::{DType, Shape, Tensor};
use anemeter_mil::Type;
use anemeter_mil::op::{KnownValue, OpDef};

/// Everything needed to execute a function at given input shapes.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) values: Vec<PlannedValue>,
    pub(super) constants: Vec<Constant>,
    pub(super) states: Vec<String>,
    pub(super) inputs: Vec<(String, usize)>,
    pub(super) outputs: Vec<(String, usize)>,
    pub(super) arena_bytes: usize,
    pub(super) growable: usize,
    /// Inputs that are outputs as they are: value and the buffer that keeps it after the prediction.
    pub(super) passed: Vec<(usize, usize)>,
}

/// A constant with its type.
pub(super) struct Constant {
    pub(super) value: KnownValue,
    pub(super) ty: Type,
}

/// A value: how it is typed and where it is.
pub(super) struct PlannedValue {
    pub(super) ty: Type,
    pub(super) dtype: DType,
    /// Its shape, if that is known before execution.
    pub(super) shape: Option<Shape>,
    pub(super) place: Place,
}

/// Where a value is while the function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Never executed or never used.
    Nowhere,
    /// In the plan's constants.
    Constant(usize),
    /// Lent by the caller.
    Input(usize),
    /// A state of the session.
    State(usize),
    /// At an offset of the arena.
    Arena { offset: usize, len: usize },
    /// Some bytes of what the caller lent.
    InputView { input: usize, offset: usize, len: usize },
    /// Some bytes of a state of the session.
    StateView { state: usize, offset: usize, len: usize },
    /// In a buffer of its own.
    Growable(usize),
}

/// One operation to execute.
pub(super) struct Step {
    pub(super) def: &'static OpDef,
    pub(super) name: String,
    pub(super) arguments: Vec<SmallVec<[Operand; 1]>>,
    pub(super) outputs: SmallVec<[usize; 4]>,
    pub(super) action: Action,
    /// Whether output sizes have to be worked out anew at each execution.
    pub(super) dynamic: bool,
    /// FLOPs of the steps that a fused one stands for.
    pub(super) fused_flops: Option<u64>,
}

impl Step {
    /// What it takes for a parameter.
    pub(super) fn argument(&self, name: &str) -> Option<&[Operand]> {
        let param = self.def.params.iter().position(|param| param.name == name)?;
        Some(&self.arguments[param])
    }
}

/// What an argument is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operand {
    /// A value of the function.
    Value(usize),
    /// A constant written in place, or decoded for an operation that needs it plain.
    Constant(usize),
}

/// How a step is executed.
pub(super) enum Action {
    /// By its kernel.
    Kernel,
    /// One of two blocks, by a condition.
    Cond { branches: [NestedBlock; 2] },
    /// A body as long as a condition holds.
    While { condition: NestedBlock, body: NestedBlock },
    /// Copies a state out.
    ReadState { state: usize },
    /// Copies a value into a state.
    WriteState { state: usize },
    /// Replaces a part of a state.
    UpdateState { state: usize },
    /// The label of the most likely class, and every probability.
    Classify { classes: Vec<Tensor> },
    /// Not at all.
    Nothing,
}

impl Action {
    /// The blocks it executes.
    pub(super) fn nested(&self) -> impl Iterator<Item = &NestedBlock> {
        let blocks: [Option<&NestedBlock>; 2] = match self {
            Action::Cond { branches: [then, otherwise] } => [Some(then), Some(otherwise)],
            Action::While { condition, body } => [Some(condition), Some(body)],
            _ => [None, None],
        };
        blocks.into_iter().flatten()
    }
}

/// A nested block.
pub(super) struct NestedBlock {
    pub(super) inputs: Vec<usize>,
    pub(super) steps: Vec<Step>,
    pub(super) outputs: Vec<usize>,
}
