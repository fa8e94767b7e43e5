//! How an operation is defined: its parameters, the rule for its output types, and its evaluation.
//!
//! One [`OpDef`] says everything about one generation of one operation. The same [`Call`] serves type
//! inference (where only some values are known) and evaluation (where all are), so that an output shape that
//! depends on values is computed by the same rule at build, plan and run time.

#[macro_use]
mod error;
mod apply;
mod call;
mod class;
mod decode;
mod def;
mod outputs;

pub use apply::{KnownArguments, KnownValue, apply, decode_all, storage_type};
pub use call::{ArgValue, Bindings, Call, Ints};
pub use class::{FirstElement, Flops, NORM_FLOPS, OpClass, SOFTMAX_FLOPS, elements, per_element, products};
pub use decode::{Decode, Weight};
pub use def::{
    Arity, Constexpr, Decoders, Default, Eval, Infer, Kernel, OpDef, Param, Presence, WeightAxes, constexpr,
    define, domain, executed,
};
pub use error::{OpError, Result};
pub use outputs::{Output, OutputBuffer, Outputs, Scratch};

pub use anemeter_base::vocabulary::Numerics;
