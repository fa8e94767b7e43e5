//! Prompts of requests: text or random tokens, as many tokens as asked for.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use serde::Deserialize;

use super::config::{PromptConfig, PromptSource};
use crate::generate::{Generator, Input, Prompt};
use anemeter_base::files;

/// An English text that comes with the program, for prompts and calibration.
pub const BUILT_IN_TEXT: &str = include_str!("prompt.txt");
/// No file of prompts is longer than this.
const LONGEST_FILE: u64 = 1 << 28;
/// More bytes of a text than this per token are never needed.
const BYTES_PER_TOKEN: usize = 32;

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
struct PromptLine {
    prompt: String,
}

impl Prompts {
    /// Opens a source. Without a tokenizer the built-in text becomes random tokens.
    pub(super) fn open(config: &PromptConfig, seed: u64, has_tokenizer: bool) -> Result<Prompts, String> {
        let file = || config.file.as_deref().ok_or_else(|| "no file of prompts is given".to_owned());
        let source = match config.source {
            PromptSource::BuiltIn if has_tokenizer => Source::Repeated(BUILT_IN_TEXT.to_owned()),
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
    let text = cut(text, tokens.saturating_mul(BYTES_PER_TOKEN));
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
    let text = files::read_text(path, LONGEST_FILE).map_err(|e| unreadable(e.to_string()))?;
    if text.trim().is_empty() { Err(unreadable("is empty".to_owned())) } else { Ok(text) }
}

fn lines(path: &Path) -> Result<Vec<String>, String> {
    let text = read(path)?;
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts = filled.map(|(index, line)| {
        let parsed: Result<PromptLine, _> = serde_json::from_str(line);
        let problem = |what: &str| format!("{}: line {}: {what}", path.display(), index + 1);
        match parsed {
            Ok(PromptLine { prompt }) if prompt.is_empty() => Err(problem("the prompt is empty")),
            Ok(PromptLine { prompt }) => Ok(prompt),
            Err(error) => Err(problem(&format!("expected an object with `prompt`: {error}"))),
        }
    });
    prompts.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::generate::{Driver, ManualClock, Text, Tokenizer};
    use crate::null::{self, NullSession};

    /// A generator whose tokenizer knows words.
    fn generator() -> Generator {
        let description = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"?": 0, "the": 1, "ferry": 2}, "unk_token": "?"},
        });
        let bytes = description.to_string().into_bytes();
        let tokenizer = Tokenizer::from_bytes(&bytes, Path::new("tokenizer.json")).unwrap();
        let clock = Arc::new(ManualClock::default());
        let session = Box::new(NullSession::new(1, Box::new(|_, _| Ok(()))));
        let manifest = null::manifest(&[64, 4096], 1);
        let driver = Driver::over(&manifest, Path::new(""), vec![session], None, clock.clone()).unwrap();
        let text = Text { tokenizer, chat: None, ends: Vec::new() };
        Generator::new(driver, Some(Arc::new(text)), clock)
    }

    fn from_file(source: PromptSource, text: &str) -> Result<Prompts, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prompts");
        anemeter_base::atomic::write_file(&path, text.as_bytes()).unwrap();
        Prompts::open(&PromptConfig { source, file: Some(path) }, 1, true)
    }

    #[test]
    fn the_built_in_text_fills_any_seq_len() {
        let config = PromptConfig { source: PromptSource::BuiltIn, file: None };
        let mut prompts = Prompts::open(&config, 1, true).unwrap();
        let mut generator = generator();
        for tokens in [1, 60, 480, 4000] {
            let (prompt, tokenized) = prompts.next(&mut generator, 0, tokens).unwrap();
            assert_eq!((prompt.ids.len(), tokenized), (tokens, true));
            let text = &prompts.fitted[&tokens];
            assert!(text.len() < 12 * tokens + 200, "{tokens} tokens from {} bytes", text.len());
        }
        let first = prompts.next(&mut generator, 0, 60).unwrap().0.ids;
        assert_eq!(first[..2], [0, 2], "The ferry");
    }

    #[test]
    fn random_tokens_are_those_of_the_seed() {
        let config = PromptConfig { source: PromptSource::Tokens, file: None };
        let ids = |seed: u64| {
            let mut prompts = Prompts::open(&config, seed, false).unwrap();
            let (prompt, tokenized) = prompts.next(&mut generator(), 0, 50).unwrap();
            assert!(!tokenized && prompt.ids.iter().all(|&id| id < 32));
            prompt.ids
        };
        assert_eq!(ids(3), ids(3));
        assert_ne!(ids(3), ids(4));
    }

    #[test]
    fn long_and_strange_texts_do_no_harm() {
        let mut generator = generator();
        let long = "<script>\u{0}\u{1b}[2J ünï 😀 ".repeat(500_000);
        assert!(long.len() > 10_000_000);
        let mut prompts = from_file(PromptSource::Text, &long).unwrap();
        assert_eq!(prompts.next(&mut generator, 0, 60).unwrap().0.ids.len(), 60);
        let line = serde_json::json!({ "prompt": long }).to_string();
        let mut prompts = from_file(PromptSource::Jsonl, &line).unwrap();
        assert_eq!(prompts.next(&mut generator, 7, 60).unwrap().0.ids.len(), 60);
    }

    #[test]
    fn lines_are_used_in_turn_and_wrong_ones_are_named() {
        let mut generator = generator();
        let mut prompts =
            from_file(PromptSource::Jsonl, "{\"prompt\": \"the\"}\n\n{\"prompt\": \"ferry the\"}\n").unwrap();
        let mut ids = |slot| prompts.next(&mut generator, slot, 60).unwrap().0.ids;
        assert_eq!([ids(0), ids(1), ids(2)], [vec![1], vec![2, 1], vec![1]]);
        let problem = |text: &str| from_file(PromptSource::Jsonl, text).unwrap_err();
        let unknown = problem("{\"prompt\": \"a\"}\n{\"text\": 1}\n");
        assert!(unknown.contains("line 2: expected an object with `prompt`"));
        assert!(problem("{\"prompt\": \"\"}").ends_with("line 1: the prompt is empty"));
        assert!(problem(" \n").ends_with("is empty"));
        let nothing = PromptConfig { source: PromptSource::Text, file: Some("nowhere".into()) };
        assert!(Prompts::open(&nothing, 1, true).unwrap_err().starts_with("nowhere: "));
    }

    #[test]
    fn a_text_without_tokens_is_refused() {
        let mut prompts = from_file(PromptSource::Text, "\u{a0}x").unwrap();
        prompts.source = Source::Repeated(" ".to_owned());
        let error = prompts.next(&mut generator(), 0, 10).unwrap_err();
        assert!(error.contains("however often it is repeated"), "{error}");
    }
}
