//! Core AI assets: aicode, the language of `.aimodel`, as plain data, and the files that hold it.
//!
//! ```text
//! Program -> bytecode::encode -> main.mlirb     asset::write, whole or not at all
//! main.mlirb -> bytecode::decode -> Program     asset::Asset::open, weights stay mapped
//! ```

pub mod asset;
pub mod bytecode;
pub mod convert;
pub mod describe;
mod error;
pub mod lint;
mod program;
mod scalar;
mod text;
mod verify;

pub use error::{AssetError, At, ErrorKind};
pub use program::{
    Attribute, Dim, Graph, HwConstraints, Op, Port, Program, Region, Resource, ResourceData, Scalar, Type,
    ValueId,
};
pub use verify::verify;
