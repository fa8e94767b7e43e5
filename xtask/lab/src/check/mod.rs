//! `cargo xtask check WHAT`: what the tests cannot show, against other programs, real models and other machines.

mod architectures;
mod classes;
pub(crate) mod conformance;
mod coreai;
mod coreai_assets;
mod coreai_llm;
mod coreai_models;
mod coreai_runtime;
mod coreml;
mod decision;
mod docs;
mod encoders;
mod hostile;
mod mac_coreai;
mod mac_smoke;
mod minilm;
mod packages;
mod quickstart;
mod remote;
mod smollm2;

use crate::Task;

pub(crate) const TASKS: &[Task] = &[
    ("architectures", architectures::run),
    ("conformance", conformance::run),
    ("coreai", coreai::run),
    ("coreai-llm", coreai_llm::run),
    ("coreai-models", coreai_models::small),
    ("coreai-runtime", coreai_runtime::run),
    ("coreai-smollm2", coreai_models::smollm2),
    ("coreml", coreml::run),
    ("decision", decision::run),
    ("docs", docs::run),
    ("encoders", encoders::run),
    ("hostile", hostile::run),
    ("mac-coreai", mac_coreai::run),
    ("mac-smoke", mac_smoke::run),
    ("minilm", minilm::run),
    ("packages", packages::run),
    ("quickstart", quickstart::run),
    ("remote", remote::run),
    ("smollm2", smollm2::run),
];
