//! Hugging Face folders: configuration, weights, tokenizer and chat template.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{CheckpointError, Result};
use super::files::{Folder, Mapped};
use super::{About, Checkpoint, Config, TextFiles, quantized, sentence, weights};

/// What is needed of `tokenizer.json` to find tokens by their text.
#[derive(Debug, Deserialize)]
struct Tokenizer {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Debug, Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// Opens a folder; `only` is the one file of weights to read, if the user named one.
pub(super) fn open(folder: &Folder, only: Option<&Mapped>) -> Result<Checkpoint> {
    let config_file = folder.require("config.json")?;
    let config = read_config(&config_file)?;
    let fold = quantized::folding(&config).map_err(|error| error.in_file(&config_file.path))?;
    let mut weights = match only {
        Some(file) => weights::of_file(file)?,
        None => weights::of_folder(folder)?,
    };
    fold(&mut weights.tensors).map_err(|error| error.in_file(folder.path()))?;
    let sentence = sentence::read(folder, &mut weights)?;
    let texts = Texts::read(folder)?;
    Ok(Checkpoint {
        path: only.map_or_else(|| folder.path(), |file| &file.path).to_owned(),
        bos: texts.bos(&config)?,
        eos: texts.eos(&config)?,
        chat_template: texts.chat_template(folder)?,
        tokenizer: texts.tokenizer.map(|file| file.bytes.to_vec()),
        about: About::of_folder(folder, &config)?,
        config,
        shards: weights.shards,
        tensors: weights.tensors,
        sentence,
    })
}

/// Reads `tokenizer.json` and what the files beside it say; `config.json` need not be there.
pub(super) fn text_files(path: &Path) -> Result<TextFiles> {
    let folder = Folder::open(
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    )?;
    let mut texts = Texts::read(&folder)?;
    let given = Mapped::open(path)?;
    texts.added_tokens = given.json::<Tokenizer>()?.added_tokens;
    let config = match folder.find("config.json")? {
        Some(file) => read_config(&file)?,
        None => Config::default(),
    };
    Ok(TextFiles {
        chat_template: texts.chat_template(&folder)?,
        bos: texts.bos(&config)?,
        eos: texts.eos(&config)?,
        tokenizer: given.bytes.to_vec(),
    })
}

fn read_config(file: &Mapped) -> Result<Config> {
    file.json::<Map<String, Value>>().map(Config::new)
}

/// The files of a folder that say how text becomes tokens.
struct Texts {
    tokenizer: Option<Mapped>,
    added_tokens: Vec<AddedToken>,
    tokenizer_config: Config,
    generation_config: Config,
}

impl Texts {
    fn read(folder: &Folder) -> Result<Texts> {
        let optional = |name: &str| match folder.find(name)? {
            Some(file) => read_config(&file),
            None => Ok(Config::default()),
        };
        let tokenizer = folder.find("tokenizer.json")?;
        let added_tokens = match &tokenizer {
            Some(file) => file.json::<Tokenizer>()?.added_tokens,
            None => Vec::new(),
        };
        Ok(Texts {
            tokenizer,
            added_tokens,
            tokenizer_config: optional("tokenizer_config.json")?,
            generation_config: optional("generation_config.json")?,
        })
    }

    fn bos(&self, config: &Config) -> Result<Option<u32>> {
        if let Some(id) = self.named_token("bos_token") {
            return Ok(Some(id));
        }
        Ok(self.ids(config, "bos_token_id")?.first().copied())
    }

    /// The tokens that generation stops at and the one the tokenizer calls the end, which chat models may
    /// have as a further one.
    fn eos(&self, config: &Config) -> Result<Vec<u32>> {
        let mut ids = self.ids(config, "eos_token_id")?;
        ids.extend(self.named_token("eos_token").filter(|id| !ids.contains(id)));
        Ok(ids)
    }

    /// The token or tokens of a key, from the first place that has any: what says how to generate, the configuration, and
    /// that of the text model, where models of several kinds of input have it.
    fn ids(&self, config: &Config, key: &str) -> Result<Vec<u32>> {
        let text = match config.get("text_config") {
            Some(Value::Object(text)) => Config::new(text.clone()),
            _ => Config::default(),
        };
        for place in [&self.generation_config, config, &text] {
            let ids = token_ids(place, key)?;
            if !ids.is_empty() {
                return Ok(ids);
            }
        }
        Ok(Vec::new())
    }

    /// The id of a token that `tokenizer_config.json` gives by its text.
    fn named_token(&self, key: &str) -> Option<u32> {
        let text = match self.tokenizer_config.get(key)? {
            Value::Object(token) => token.get("content")?.as_str()?,
            other => other.as_str()?,
        };
        self.added_tokens.iter().find(|token| token.content == text).map(|token| token.id)
    }

    fn chat_template(&self, folder: &Folder) -> Result<Option<String>> {
        if let Some(file) = folder.find("chat_template.jinja")? {
            return file.text().map(|text| Some(text.to_owned()));
        }
        let text = match self.tokenizer_config.get("chat_template") {
            Some(Value::Array(named)) => {
                let is_default =
                    |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some("default");
                let chosen = named.iter().find(is_default).or(named.first());
                chosen.and_then(|entry| entry.get("template")).and_then(Value::as_str)
            }
            Some(Value::String(text)) => Some(text.as_str()),
            None => return Ok(None),
            Some(_) => None,
        };
        match text {
            Some(text) => Ok(Some(text.to_owned())),
            None => {
                let message = "`chat_template` is neither a string nor a list of named templates";
                Err(CheckpointError::new(message).in_file(&folder.path().join("tokenizer_config.json")))
            }
        }
    }
}

/// The token or tokens of a key; none if it is absent.
fn token_ids(config: &Config, key: &str) -> Result<Vec<u32>> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| CheckpointError::new(format!("config key `{key}` has {value}, expected a token id")))
    };
    match config.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) => values.iter().map(id).collect(),
        Some(value) => Ok(vec![id(value)?]),
    }
}
