//! Mixtures of experts: how they are recognised, and which dense models are their relatives.

use crate::checkpoint::Config;

/// Keys that count experts.
const COUNTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];

/// Values of `model_type`, and the architecture of dense models of the family.
const DENSE: &[(&str, &str)] = &[
    ("ernie4_5_moe", "ernie4_5"),
    ("gemma4", "gemma4"),
    ("gemma4_text", "gemma4"),
    ("granitemoe", "granite"),
    ("granitemoehybrid", "granite4"),
    ("granitemoeshared", "granite"),
    ("lfm2_moe", "lfm2"),
    ("minicpm", "minicpm"),
    ("mixtral", "mistral"),
    ("olmoe", "olmo2"),
    ("phimoe", "phi3"),
    ("qwen2_moe", "qwen2"),
    ("qwen3_5_moe", "qwen3_5"),
    ("qwen3_5_moe_text", "qwen3_5"),
    ("qwen3_moe", "qwen3"),
];

/// Whether a configuration counts any experts.
pub(super) fn are_in(config: &Config) -> bool {
    let text = config.opt_section("text_config").ok().flatten();
    let counted = |config: &Config| {
        COUNTS.iter().any(|key| config.opt_size(key).is_ok_and(|count| count.is_some_and(|count| count > 0)))
    };
    counted(config) || text.is_some_and(|text| counted(&text))
}

/// The dense architecture of the family that some of the words name.
pub(super) fn dense_relative(words: &[&str]) -> Option<&'static str> {
    DENSE.iter().find(|(kind, _)| words.contains(kind)).map(|&(_, dense)| dense)
}
