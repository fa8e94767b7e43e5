//! From a trained checkpoint to a MIL program: reading checkpoints, decoder models as plain data, their lowering,
//! weight compression, and the bundle that an export leaves behind.

pub mod bundle;
pub mod calibrate;
pub mod checkpoint;
pub mod compress;
pub mod contract;
pub mod lower;
pub mod model;
