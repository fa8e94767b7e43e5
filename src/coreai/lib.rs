//! Core AI assets: aicode, the language of `.aimodel`, as plain data, and how MIL programs become it.

pub mod convert;
mod program;

pub use program::{
    Attribute, Dim, Graph, HwConstraints, Op, Port, Program, Region, Resource, ResourceData, Scalar, Type,
    ValueId,
};
