//! Texts as an encoder takes them: with a prompt before them, cut to a length, and with the tokens around them that the
//! checkpoint's tokenizer adds.

use anemeter_convert::bundle::{Bundle, Encoder};

use super::EncoderTokens;
use crate::generate::{GenerateError, Tokenizer};

/// How texts of an encoder become tokens.
pub struct EncoderText {
    tokenizer: Tokenizer,
    described: Encoder,
    /// Tokens of the longest text.
    longest: usize,
}

impl EncoderText {
    /// Reads what a bundle has; nothing if it has no tokenizer.
    pub fn open(bundle: &Bundle) -> Result<Option<EncoderText>, GenerateError> {
        let described = bundle.encoder().map_err(|error| GenerateError::request(error.to_string()))?;
        let manifest = bundle.manifest();
        let Some(tokenizer) = &manifest.tokenizer else { return Ok(None) };
        let settings = manifest.settings.as_ref();
        let most = settings.and_then(|settings| settings.seq_lens.iter().max().copied());
        let longest = most.map_or(described.max_tokens, |most| most.min(described.max_tokens));
        let tokenizer = Tokenizer::open(&bundle.path(&tokenizer.file.name))?.cut_to(longest)?;
        Ok(Some(EncoderText { tokenizer, described: described.clone(), longest }))
    }

    /// Tokens of the longest text; others are cut.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The tokens of a text, and of a second one that it is paired with, behind the prompt of a name, or else the
    /// default one.
    pub fn tokens(
        &self,
        text: &str,
        pair: Option<&str>,
        prompt: Option<&str>,
    ) -> Result<EncoderTokens, GenerateError> {
        let Encoder { prompts, default_prompt, lower_case, .. } = &self.described;
        let prompt = match prompt.or(default_prompt.as_deref()) {
            Some(name) => prompts.get(name).map(String::as_str).ok_or_else(|| {
                let known: Vec<&str> = prompts.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let problem = format!("the bundle has no prompt `{}`; it has {known}", name.escape_debug());
                GenerateError::request(problem)
            })?,
            None => "",
        };
        let cased = |text: String| if *lower_case { text.to_lowercase() } else { text };
        let text = cased(format!("{prompt}{text}"));
        let pair = pair.map(|pair| cased(pair.to_owned()));
        let (ids, types) = self.tokenizer.encode_framed(&text, pair.as_deref())?;
        Ok(EncoderTokens { ids, types })
    }
}
