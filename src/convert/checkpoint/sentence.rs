//! What sentence-transformers keeps beside a transformer: the modules that make one vector of a text, and how texts
//! are prepared.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::error::{CheckpointError, Result};
use super::files::Folder;
use super::weights::{self, Weights};
use super::{Config, Stored};

/// The file that lists the modules.
const MODULES: &str = "modules.json";
/// More modules than any model has.
const MOST_MODULES: usize = 64;
/// Files that hold the weights of a module.
const WEIGHTS: &[&str] = &["model.safetensors", "pytorch_model.bin"];

/// How a checkpoint of sentence-transformers makes vectors of texts.
#[derive(Debug, Clone, Default)]
pub struct SentenceModules {
    /// What follows the transformer, in order.
    pub modules: Vec<SentenceModule>,
    /// Longer texts are cut to so many tokens.
    pub max_seq_len: Option<usize>,
    /// Whether texts are put in lower case before the tokenizer sees them.
    pub lower_case: bool,
    /// Texts to put before others, by name.
    pub prompts: BTreeMap<String, String>,
    /// The prompt that is used unless another is asked for.
    pub default_prompt: Option<String>,
}

/// A module after the transformer.
#[derive(Debug, Clone)]
pub struct SentenceModule {
    /// Its class without the modules of Python around it, such as `Pooling`.
    pub class: String,
    /// Its folder. Its tensors are those of the checkpoint that begin with this and a dot.
    pub path: String,
    /// Its `config.json`; empty if there is none.
    pub config: Config,
}

/// An entry of `modules.json`.
#[derive(Debug, Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    class: String,
}

/// Reads the modules of a folder and adds their tensors to those of the transformer; nothing if it lists none.
pub(super) fn read(folder: &Folder, weights: &mut Weights) -> Result<Option<SentenceModules>> {
    let Some(file) = folder.find(MODULES)? else { return Ok(None) };
    let entries: Vec<Entry> = file.json()?;
    if entries.len() > MOST_MODULES {
        return Err(file.error(format!("lists {} modules, at most {MOST_MODULES} are read", entries.len())));
    }
    let class = |entry: &Entry| entry.class.rsplit('.').next().unwrap_or_default().to_owned();
    match entries.first() {
        Some(first) if class(first) == "Transformer" && first.path.is_empty() => {}
        Some(first) => {
            let problem = format!(
                "begins with a {} in `{}`, expected a Transformer in the folder itself",
                class(first),
                first.path
            );
            return Err(file.error(problem));
        }
        None => return Err(file.error("lists no module")),
    }
    let mut modules = Vec::new();
    for entry in &entries[1..] {
        let config = match folder.find(&format!("{}/config.json", entry.path))? {
            Some(file) => Config::new(file.json()?),
            None => Config::default(),
        };
        if class(entry) == "Dense" {
            add_tensors(folder, &entry.path, weights)?;
        }
        modules.push(SentenceModule { class: class(entry), path: entry.path.clone(), config });
    }
    let mut read = SentenceModules { modules, ..SentenceModules::default() };
    read.preparation(folder)?;
    Ok(Some(read))
}

/// The tensors of a module's folder, under names that begin with it.
fn add_tensors(folder: &Folder, path: &str, all: &mut Weights) -> Result<()> {
    for name in WEIGHTS {
        let Some(file) = folder.find(&format!("{path}/{name}"))? else { continue };
        let own = weights::of_file(&file)?;
        let shard = all.shards.len();
        for (tensor, stored) in own.tensors {
            let name = format!("{path}.{tensor}");
            if all.tensors.insert(name.clone(), Stored { shard, ..stored }).is_some() {
                return Err(file.error("is there twice").at_tensor(&name));
            }
        }
        all.shards.extend(own.shards);
        return Ok(());
    }
    let message = format!("has no weights: neither {} is there", WEIGHTS.join(" nor "));
    Err(CheckpointError::new(message).in_file(&folder.path().join(path)))
}

impl SentenceModules {
    /// How texts are prepared, from the files that say so.
    fn preparation(&mut self, folder: &Folder) -> Result<()> {
        if let Some(file) = folder.find("sentence_bert_config.json")? {
            let config = Config::new(file.json()?);
            let wrong = |error: super::ConfigError| file.error(error.to_string());
            self.max_seq_len = config.opt_size("max_seq_length").map_err(wrong)?;
            self.lower_case = config.opt_bool("do_lower_case").map_err(wrong)?.unwrap_or(false);
        }
        if let Some(file) = folder.find("config_sentence_transformers.json")? {
            let config = Config::new(file.json()?);
            let wrong = |error: super::ConfigError| file.error(error.to_string());
            let prompts = config.opt_section("prompts").map_err(wrong)?.unwrap_or_default();
            for (name, prompt) in prompts.values() {
                let Value::String(prompt) = prompt else {
                    return Err(file.error(format!("prompt `{name}` is {prompt}, expected a string")));
                };
                self.prompts.insert(name.clone(), prompt.clone());
            }
            self.default_prompt = config.opt_text("default_prompt_name").map_err(wrong)?.map(str::to_owned);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write scratch files")]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn put(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn opened(folder: &Path) -> Result<Option<SentenceModules>> {
        let mut weights = Weights { tensors: BTreeMap::new(), shards: Vec::new() };
        read(&Folder::open(folder).unwrap(), &mut weights)
    }

    const LIST: &str = r#"[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;

    #[test]
    fn modules_and_how_texts_are_prepared() {
        let folder = tempfile::tempdir().unwrap();
        assert!(opened(folder.path()).unwrap().is_none());
        put(folder.path(), MODULES, LIST);
        put(folder.path(), "1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
        put(folder.path(), "sentence_bert_config.json", r#"{"max_seq_length": 256, "do_lower_case": true}"#);
        let prompts = r#"{"prompts": {"query": "query: "}, "default_prompt_name": "query"}"#;
        put(folder.path(), "config_sentence_transformers.json", prompts);
        let read = opened(folder.path()).unwrap().unwrap();
        let classes: Vec<&str> = read.modules.iter().map(|module| module.class.as_str()).collect();
        assert_eq!(classes, ["Pooling", "Normalize"]);
        assert_eq!(read.modules[0].config.opt_bool("pooling_mode_mean_tokens"), Ok(Some(true)));
        assert_eq!((read.max_seq_len, read.lower_case), (Some(256), true));
        assert_eq!(
            (read.prompts["query"].as_str(), read.default_prompt.as_deref()),
            ("query: ", Some("query"))
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let cases = [
            ("[]", "modules.json: lists no module"),
            ("{}", "modules.json: is not the JSON expected"),
            (
                r#"[{"path": "", "type": "a.CLIPModel"}]"#,
                "begins with a CLIPModel in ``, expected a Transformer",
            ),
            (
                r#"[{"path": "", "type": "a.Transformer"}, {"path": "2_Dense", "type": "a.Dense"}]"#,
                "2_Dense: has no weights: neither model.safetensors nor pytorch_model.bin is there",
            ),
            (
                r#"[{"path": "", "type": "a.Transformer"}, {"path": "../x", "type": "a.Pooling"}]"#,
                "leads outside the folder",
            ),
        ];
        for (list, expected) in cases {
            put(folder.path(), MODULES, list);
            let error = opened(folder.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        put(folder.path(), MODULES, LIST);
        put(folder.path(), "sentence_bert_config.json", r#"{"max_seq_length": "long"}"#);
        let error = opened(folder.path()).unwrap_err().to_string();
        assert!(error.contains("sentence_bert_config.json: config key `max_seq_length` is"), "{error}");
    }
}
