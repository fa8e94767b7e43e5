//! The tokens to compare on: the program's own, or those of a file.

use std::path::Path;

use super::Args;
use crate::bundle::Bundle;
use crate::cli::{Failure, Result};
use crate::files;
use crate::generate::{Input, Text};
use crate::verify::{self, PROMPTS, Sample};

/// The prompts that a bundle is given, in tokens. `longest` is its longest length.
pub(super) fn of(args: &Args, bundle: &Bundle, text: Option<&Text>, longest: usize) -> Result<Vec<Vec<u32>>> {
    if let Some(path) = &args.calibration {
        return calibration(path, args.samples as usize, text, longest);
    }
    let manifest = bundle.language_model()?;
    let (vocabulary, longest) =
        (manifest.vocabulary().unwrap_or(0), manifest.max_positions().unwrap_or(longest));
    let Some(text) = text else {
        if args.prompts.is_some() {
            return Err(Failure::bad_input("--prompts needs a tokenizer, and the bundle has none")
                .with_help("leave --prompts out: pseudo-random ids are compared instead"));
        }
        return Ok(verify::pseudo_random(vocabulary));
    };
    let lines = match &args.prompts {
        Some(path) => read(path, "has no prompt", "write one prompt per line")?,
        None => PROMPTS.to_owned(),
    };
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    let encoded = lines.map(|line| text.tokens(Input::Raw(line), longest));
    Ok(encoded.collect::<Result<Vec<_>, _>>()?)
}

fn calibration(path: &Path, samples: usize, text: Option<&Text>, longest: usize) -> Result<Vec<Vec<u32>>> {
    let content = read(path, "is empty", "write running text, or one JSON object per line")?;
    let needs_tokenizer = || {
        Failure::at(path, "is text, and the bundle has no tokenizer")
            .with_help("give JSON lines with `token_ids`")
    };
    let lines = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("jsonl"));
    if !lines {
        let text = text.ok_or_else(needs_tokenizer)?;
        return Ok(verify::pieces(&text.tokenizer.encode(&content, true)?, longest, samples));
    }
    let all = verify::parse_samples(&content).map_err(|problem| Failure::at(path, problem))?;
    let places = verify::pieces(&(0..).take(all.len()).collect::<Vec<u32>>(), 1, samples);
    let chosen = places.into_iter().flatten().map(|place| &all[place as usize]);
    let encoded = chosen.map(|sample| match sample {
        Sample::Ids(ids) => Ok(ids.clone()),
        Sample::Text(line) => Ok(text.ok_or_else(needs_tokenizer)?.tokens(Input::Raw(line), usize::MAX)?),
        Sample::Chat(messages) => {
            Ok(text.ok_or_else(needs_tokenizer)?.tokens(Input::Chat(messages), usize::MAX)?)
        }
    });
    encoded.collect()
}

pub(super) fn read(path: &Path, empty: &str, help: &str) -> Result<String> {
    let text = files::read_text(path, files::TEXTS).map_err(|e| Failure::at(path, e))?;
    if text.trim().is_empty() {
        return Err(Failure::at(path, empty).with_help(help));
    }
    Ok(text)
}
