//! Prompts of requests: text or random tokens, as many tokens as asked for.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use serde::Deserialize;

use super::config::{PromptConfig, PromptSource};
use crate::generate::{Generator, Input, Prompt};

/// English text that comes with the program.
const BUILT_IN: &str = include_str!("prompt.txt");
/// No file of prompts is longer than this.
const LONGEST_FILE: u64 = 1 << 28;
/// More bytes of a text than this per token are never needed.
const BYTES_PER_TOKEN: usize = 32;

/// A source of prompts.
#[derive(Debug)]
pub(super) struct Prompts {
    source: Source,
    random: fastrand::Rng,
    /// Texts of the built-in kind by number of tokens.
    fitted: BTreeMap<usize, String>,
}

#[derive(Debug)]
enum Source {
    Tokens,
    /// One text, repeated as needed.
    Repeated(String),
    /// Several texts, used in turn.
    InTurn(Vec<String>),
}

/// A line of a file of prompts.
#[derive(Deserialize)]
struct Line {
    prompt: String,
}

impl Prompts {
    /// Opens a source. Without a tokenizer the built-in text becomes random tokens.
    pub(super) fn open(config: &PromptConfig, seed: u64, has_tokenizer: bool) -> Result<Prompts, String> {
        let file = || config.file.as_deref().ok_or_else(|| "no file of prompts is given".to_owned());
        let source = match config.source {
            PromptSource::BuiltIn if has_tokenizer => Source::Repeated(BUILT_IN.to_owned()),
            PromptSource::BuiltIn | PromptSource::Tokens => Source::Tokens,
            PromptSource::Text => Source::Repeated(read(file()?)?),
            PromptSource::Jsonl => Source::InTurn(lines(file()?)?),
        };
        Ok(Prompts { source, random: fastrand::Rng::with_seed(seed), fitted: BTreeMap::new() })
    }

    /// A prompt of at most `tokens` tokens for a generator, and whether the tokenizer made it.
    pub(super) fn next(
        &mut self,
        generator: &mut Generator,
        slot: usize,
        tokens: usize,
    ) -> Result<(Prompt, bool), String> {
        let problem = |e: crate::generate::GenerateError| e.to_string();
        let text = match &self.source {
            Source::Tokens => {
                let vocabulary = u32::try_from(generator.driver().vocabulary()).unwrap_or(u32::MAX);
                let ids = (0..tokens).map(|_| self.random.u32(0..vocabulary)).collect();
                return Ok((Prompt { ids, ..Prompt::default() }, false));
            }
            Source::Repeated(text) => match self.fitted.entry(tokens) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(fit(generator, text, tokens)?),
            },
            Source::InTurn(texts) => cut(&texts[slot % texts.len()], tokens.saturating_mul(BYTES_PER_TOKEN)),
        };
        let mut prompt = generator.prompt(Input::Raw(text)).map_err(problem)?;
        prompt.ids.truncate(tokens);
        Ok((prompt, true))
    }
}

/// A text, repeated and cut so that it gives at least so many tokens and not many more.
fn fit(generator: &Generator, text: &str, tokens: usize) -> Result<String, String> {
    let count = |text: &str| generator.prompt(Input::Raw(text)).map(|prompt| prompt.ids.len());
    let mut long = text.to_owned();
    let mut found = count(&long).map_err(|e| e.to_string())?;
    while found < tokens {
        long.push(' ');
        long.push_str(text);
        let more = count(&long).map_err(|e| e.to_string())?;
        if more <= found {
            return Err(format!("the text of prompts gives {more} tokens however often it is repeated"));
        }
        found = more;
    }
    let bytes = long.len().saturating_mul(tokens).div_ceil(found) + long.len() / 50 + BYTES_PER_TOKEN;
    let short = cut(&long, bytes);
    match count(short) {
        Ok(found) if found >= tokens => Ok(short.to_owned()),
        _ => Ok(long),
    }
}

/// The first bytes of a text, at most so many.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

fn read(path: &Path) -> Result<String, String> {
    let unreadable = |problem: String| format!("{}: {problem}", path.display());
    let length = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?.len();
    if length > LONGEST_FILE {
        return Err(unreadable(format!("has {length} bytes, a file of prompts at most {LONGEST_FILE}")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
    if text.trim().is_empty() { Err(unreadable("is empty".to_owned())) } else { Ok(text) }
}

fn lines(path: &Path) -> Result<Vec<String>, String> {
    let text = read(path)?;
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts = filled.map(|(index, line)| {
        let parsed: Result<Line, _> = serde_json::from_str(line);
        let problem = |what: &str| format!("{}: line {}: {what}", path.display(), index + 1);
        match parsed {
            Ok(Line { prompt }) if prompt.is_empty() => Err(problem("the prompt is empty")),
            Ok(Line { prompt }) => Ok(prompt),
            Err(error) => Err(problem(&format!("expected an object with `prompt`: {error}"))),
        }
    });
    prompts.collect()
}
