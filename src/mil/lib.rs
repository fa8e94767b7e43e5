//! MIL, the language of ML programs: `Program` -> `Function` -> `Block` -> `Operation` -> value.
//!
//! Everything here is plain data in Apple's vocabulary. Values are named by [`ValueId`]s that index their
//! function's value table; constants are [`Literal`]s whose bytes are shared, so that a program over a
//! 10 GB weight file costs as much memory as its graph.

#[macro_use]
pub mod op;
mod agreement;
pub mod arguments;
mod builder;
pub mod cost;
pub mod graph;
pub mod lint;
mod literal;
mod model;
pub mod ops;
mod opset;
pub mod package;
mod program;
pub mod propagate;
mod text;
mod types;
pub mod verify;
pub mod widen;

pub use builder::{Arg, BuildError, Builder, Pending};
pub use literal::{Literal, LiteralData, Payload, QuantizedSource};
pub use model::{
    ArrayType, ColorSpace, DefaultValue, Feature, FeatureType, Flexibility, ImageSizes, ImageType, Interface,
    Interfaces, Metadata, Model,
};
pub use opset::Opset;
pub use program::{Argument, Binding, Block, Function, Operation, Program, Value, ValueId};
pub use types::{Dim, TensorType, Type};
