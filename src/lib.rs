//! anemeter: Core ML export and Apple Neural Engine benchmarking.

pub mod cli;
pub mod kernels;
pub mod mil;
pub mod package;
pub mod runtime;
pub mod tensor;
