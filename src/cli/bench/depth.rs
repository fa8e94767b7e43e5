//! The flags of prompts after a context: prompt, generated tokens, repetitions and depths.

use crate::harness::BenchConfig;

/// Tokens of a prompt if only depths are given: llama-bench's.
const PROMPT: usize = 512;

/// How many tokens requests have.
#[derive(clap::Args)]
pub(in crate::cli) struct DepthArgs {
    /// Tokens of a prompt, which are random, in place of text that fills the sequence lengths; 512 if only --depths is given.
    #[arg(short, long, value_name = "N", conflicts_with = "shapes")]
    prompt_tokens: Option<usize>,
    /// Tokens to generate per request, the first included [default: the workload's].
    #[arg(short, long, value_name = "N")]
    generated_tokens: Option<usize>,
    /// Tokens of context before each prompt; they are taken in before the clock starts [default: 0].
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', conflicts_with = "shapes")]
    depths: Option<Vec<usize>>,
    /// Measured requests per sequence length or depth and launch, or predictions per function, shape and launch [default:
    /// the workload's].
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<usize>,
}

impl DepthArgs {
    /// The first of its flags that was given.
    pub(in crate::cli) fn given(&self) -> Option<&'static str> {
        let DepthArgs { prompt_tokens, generated_tokens, depths, requests } = self;
        let given = [
            ("--prompt-tokens", prompt_tokens.is_some()),
            ("--generated-tokens", generated_tokens.is_some()),
            ("--depths", depths.is_some()),
            ("--requests", requests.is_some()),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// Puts what was given in place of what the workload says.
    pub(in crate::cli) fn apply(&self, config: &mut BenchConfig) {
        config.prompt_tokens = self.prompt_tokens.or(config.prompt_tokens);
        if let Some(depths) = &self.depths {
            config.depths.clone_from(depths);
            config.prompt_tokens.get_or_insert(PROMPT);
        }
        config.generated_tokens = self.generated_tokens.unwrap_or(config.generated_tokens);
        config.requests_per_seq_len = self.requests.unwrap_or(config.requests_per_seq_len);
        config.predict.predictions_per_case = self.requests.unwrap_or(config.predict.predictions_per_case);
    }
}
