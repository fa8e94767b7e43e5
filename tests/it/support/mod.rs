//! What tests are made of: checkpoints, models, damaged packages, and the program itself.

pub(crate) mod apple_python;
pub(crate) mod architectures;
pub(crate) mod checkpoints;
pub(crate) mod command;
pub(crate) mod compile;
pub(crate) mod damage;
pub(crate) mod decoders;
pub(crate) mod encoders;
pub(crate) mod fixtures;
pub(crate) mod for_packages;
pub(crate) mod gemma4;
pub(crate) mod gguf;
pub(crate) mod hybrids;
pub(crate) mod mlmodelc;
pub(crate) mod numbers;
pub(crate) mod packages;
pub(crate) mod report;
pub(crate) mod scene;
pub(crate) mod tiny;
