//! The ~9B distilled student: Llama's layers and names with grouped keys and values, whose count must be given.

use super::{Architecture, llama};
use crate::model::keys::Keys;

pub(super) const DEF: Architecture = Architecture {
    name: "student",
    classes: &["StudentForCausalLM", "StudentGqaForCausalLM"],
    model_types: &["student_gqa", "student_9b_gqa"],
    build: |config, tensors| {
        Keys::new(config, &[]).size("num_key_value_heads")?;
        llama::build(DEF.name, config, tensors)
    },
    ..llama::DEF
};
