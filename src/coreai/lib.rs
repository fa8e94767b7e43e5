//! Core AI assets: aicode, the language of `.aimodel`, as plain data.

mod program;

pub use program::{
    Attribute, Dim, Graph, HwConstraints, Op, Port, Program, Region, Resource, ResourceData, Scalar, Type,
    ValueId,
};
