//! Definitions: what the operation tables are made of.

use std::sync::Arc;

use super::{Call, Decode, OpClass, Outputs, Result};
use crate::{Opset, Type};
use anemeter_kernels::tensor::DType;

/// One generation of one operation.
#[derive(Debug)]
pub struct OpDef {
    /// The operation's name.
    pub name: &'static str,
    /// The first opset this definition holds for; it holds until a later definition replaces it.
    pub since: Opset,
    /// What kind of work it is: its cost follows from this.
    pub class: OpClass,
    /// Its parameters.
    pub params: &'static [Param],
    /// The rule for the output types.
    pub infer: Infer,
    /// How it is computed.
    pub eval: Eval,
}

/// How an operation is evaluated.
#[derive(Debug, Clone, Copy)]
pub enum Eval {
    /// Computes outputs from inputs. Output shapes that `infer` could determine are already set.
    Kernel(Kernel),
    /// Yields compressed weights, one per output, that are decoded where they are used.
    Constexpr(Constexpr),
    /// Carried out by the executor itself: constants, control flow and states.
    Executor,
}

/// A rule for output types.
pub type Infer = fn(&Call<'_>) -> Result<Vec<Type>>;

/// An evaluation that computes outputs from inputs.
pub type Kernel = fn(&Call<'_>, &mut Outputs<'_, '_>) -> Result;

/// An evaluation that yields compressed weights.
pub type Constexpr = fn(&Call<'_>) -> Result<Decoders>;

/// Compressed weights, one per output.
pub type Decoders = Vec<Arc<dyn Decode>>;

/// A generation of an operation that a kernel evaluates; [`OpDef::takes`] says its parameters.
pub const fn define(class: OpClass, name: &'static str, since: Opset, infer: Infer, kernel: Kernel) -> OpDef {
    OpDef { name, since, class, params: &[], infer, eval: Eval::Kernel(kernel) }
}

/// A generation of an operation that yields compressed weights.
pub const fn constexpr(name: &'static str, since: Opset, infer: Infer, decoders: Constexpr) -> OpDef {
    OpDef { name, since, class: OpClass::Constant, params: &[], infer, eval: Eval::Constexpr(decoders) }
}

/// A generation of an operation that the executor carries out itself.
pub const fn executed(class: OpClass, name: &'static str, since: Opset, infer: Infer) -> OpDef {
    OpDef { name, since, class, params: &[], infer, eval: Eval::Executor }
}

impl OpDef {
    /// The same operation with these parameters.
    pub const fn takes(mut self, params: &'static [Param]) -> OpDef {
        self.params = params;
        self
    }
}

/// One parameter of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// Data types it accepts.
    pub dtypes: &'static [DType],
    /// Parameters of the same group must have the same data type.
    pub group: Option<char>,
    /// One value or a list.
    pub arity: Arity,
    /// Whether it must be known when the program is loaded.
    pub constant: bool,
    /// Whether it may be left out.
    pub presence: Presence,
    /// Whether the evaluation takes a compressed weight here as it is.
    pub packed: bool,
    /// Which axes are channels, where a constant bound here is a weight that can be compressed.
    pub weight: Option<WeightAxes>,
}

/// Which axes of a weight are its output and its input channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightAxes {
    /// The first two: output, input.
    OutputInput,
    /// The first two: input, output.
    InputOutput,
    /// The last two of a left factor: output, input, or the other way round where this parameter is true.
    Left(&'static str),
    /// The last two of a right factor: input, output, or the other way round where this parameter is true.
    Right(&'static str),
    /// The first two of a table whose rows are looked up.
    Table,
    /// The first two of a recurrent layer: the outputs of its gates, input.
    Recurrent,
}

impl WeightAxes {
    /// The axes of the output and of the input channels of a weight; `is_set` reads a boolean parameter.
    pub fn output_input(self, rank: usize, is_set: impl Fn(&str) -> bool) -> Option<(usize, usize)> {
        let (row, column) = (rank.checked_sub(2)?, rank.checked_sub(1)?);
        Some(match self {
            WeightAxes::OutputInput | WeightAxes::Table | WeightAxes::Recurrent => (0, 1),
            WeightAxes::InputOutput => (1, 0),
            WeightAxes::Left(transpose) if is_set(transpose) => (column, row),
            WeightAxes::Left(_) => (row, column),
            WeightAxes::Right(transpose) if is_set(transpose) => (row, column),
            WeightAxes::Right(_) => (column, row),
        })
    }
}

/// How many values a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly one value.
    One,
    /// One or more values.
    Many,
}

/// What happens when a parameter is left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Presence {
    /// It must be given.
    Required,
    /// It may be left out, which means something of its own.
    Optional,
    /// It has this value.
    Default(Default),
}

/// The default of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "one variant per kind of scalar")]
pub enum Default {
    Int(i32),
    Float(f32),
    Bool(bool),
    Text(&'static str),
}

impl Param {
    /// A required parameter that may be computed by the program.
    pub const fn value(name: &'static str, dtypes: &'static [DType]) -> Param {
        Param {
            name,
            dtypes,
            group: None,
            arity: Arity::One,
            constant: false,
            presence: Presence::Required,
            packed: false,
            weight: None,
        }
    }

    /// A required parameter that must be constant.
    pub const fn constant(name: &'static str, dtypes: &'static [DType]) -> Param {
        let mut param = Param::value(name, dtypes);
        param.constant = true;
        param
    }

    /// Members of one group share their data type.
    pub const fn group(mut self, group: char) -> Param {
        self.group = Some(group);
        self
    }

    /// Takes a list of values.
    pub const fn many(mut self) -> Param {
        self.arity = Arity::Many;
        self
    }

    /// May be left out.
    pub const fn optional(mut self) -> Param {
        self.presence = Presence::Optional;
        self
    }

    /// May be left out and is this integer then.
    pub const fn or_int(mut self, default: i32) -> Param {
        self.presence = Presence::Default(Default::Int(default));
        self
    }

    /// May be left out and is this number then.
    pub const fn or_float(mut self, default: f32) -> Param {
        self.presence = Presence::Default(Default::Float(default));
        self
    }

    /// May be left out and is this boolean then.
    pub const fn or_bool(mut self, default: bool) -> Param {
        self.presence = Presence::Default(Default::Bool(default));
        self
    }

    /// May be left out and is this string then.
    pub const fn or_text(mut self, default: &'static str) -> Param {
        self.presence = Presence::Default(Default::Text(default));
        self
    }

    /// A constant here is a weight with these channels.
    pub const fn weight(mut self, axes: WeightAxes) -> Param {
        self.weight = Some(axes);
        self
    }

    /// The evaluation reads a compressed weight here through [`Call::weight`].
    pub const fn packed(mut self) -> Param {
        self.packed = true;
        self
    }
}

/// Data type domains that several operations share.
#[expect(missing_docs, reason = "the names say what the lists hold")]
pub mod domain {
    use anemeter_kernels::tensor::DType::{self, *};

    pub const FLOAT: &[DType] = &[F16, F32];
    pub const FLOAT_INT: &[DType] = &[F16, F32, I32];
    pub const FLOAT_INT_BOOL: &[DType] = &[F16, F32, I32, Bool];
    pub const INT: &[DType] = &[I32];
    pub const BOOL: &[DType] = &[Bool];
    pub const TEXT: &[DType] = &[String];
    /// Index types from iOS 16 on.
    pub const INDEX_16: &[DType] = &[I16, U16, I32];
    /// Index types from iOS 17 on.
    pub const INDEX_17: &[DType] = &[I8, U8, I16, U16, I32];
    /// What data movement accepts from iOS 17 on.
    pub const MOVABLE_17: &[DType] = &[F16, F32, I32, Bool, I8, U8, I16, U16];
    /// Numbers from iOS 17 on.
    pub const NUMBER_17: &[DType] = &[F16, F32, I32, I8, U8, I16, U16];
    pub const ANY: &[DType] =
        &[Bool, String, F16, F32, F64, BF16, I4, I8, I16, I32, I64, U1, U2, U3, U4, U6, U8, U16, U32, U64];
}
