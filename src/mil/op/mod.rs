//! How an operation is defined: its parameters, the rule for its output types, and its evaluation.
//!
//! One [`OpDef`] says everything about one generation of one operation. The same [`Call`] serves type
//! inference (where only some values are known) and evaluation (where all are), so that an output shape that
//! depends on values is computed by the same rule at build, plan and run time.

mod apply;
mod call;
mod decode;
mod def;
mod error;
mod outputs;

pub use apply::{KnownArguments, KnownValue, apply, decode_all, storage_type};
pub use call::{ArgValue, Bindings, Call, Ints};
pub use decode::{Decode, Weight};
pub use def::{Arity, Decoders, Default, Eval, Infer, Kernel, OpDef, Param, Presence, define, domain};
pub use error::OpError;
pub use outputs::{Output, OutputBuffer, Outputs, Scratch};

/// How fp16 arithmetic is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numerics {
    /// fp16 tensors are computed in f32 and rounded where a tensor is stored.
    #[default]
    Fast,
    /// Accumulation and intermediates are rounded as a device that works in fp16 rounds them.
    Fp16Exact,
}
