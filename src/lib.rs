//! anemeter: Core ML export and Apple Neural Engine benchmarking.

pub mod kernels;
pub mod mil;
pub mod package;
pub mod tensor;
