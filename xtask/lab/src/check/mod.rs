//! `cargo xtask check WHAT`: what the tests cannot show, against other programs, real models and other machines.

pub(crate) mod conformance;
mod coreml;
mod docs;
mod mac_smoke;
mod quickstart;
mod remote;
mod smollm2;

use crate::Task;

pub(crate) const TASKS: &[Task] = &[
    ("conformance", conformance::run),
    ("coreml", coreml::run),
    ("docs", docs::run),
    ("mac-smoke", mac_smoke::run),
    ("quickstart", quickstart::run),
    ("remote", remote::run),
    ("smollm2", smollm2::run),
];
