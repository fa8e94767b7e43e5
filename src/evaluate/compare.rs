//! Every kind of comparison: bundles measured in turns, reports and packages side by side, one bundle on two runtimes.

pub mod assets;
pub mod bundles;
pub mod document;
pub mod packages;
pub mod reports;
pub mod runtimes;
