//! What a checkpoint says about itself beside its weights: who made it, what it may be used for, where it came from.

use std::path::Path;

use serde_yaml::Value;

use super::Config;
use super::error::Result;
use super::files::Folder;
use super::gguf::GeneralTexts;

/// The file of a Hugging Face folder that people read; its front matter is for programs.
const MODEL_CARD: &str = "README.md";

/// What is known of a model's origin. What is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Who made the model: a person or an organisation.
    pub author: Option<String>,
    /// What it may be used for: the name of a licence, as SPDX writes it where the checkpoint does.
    pub license: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Where it came from: `ORG/NAME` on the Hugging Face Hub, or an address.
    pub source: Option<String>,
    /// The revision of the source.
    pub revision: Option<String>,
    /// What of this could not be read, and why.
    pub unread: Option<String>,
}

impl About {
    /// What a Hugging Face folder says: its place in a cache of the Hub, its configuration and its model card.
    pub(super) fn of_folder(folder: &Folder, config: &Config) -> Result<About> {
        let mut about = About::default();
        if let Some((source, revision)) = cached_from(folder.path()) {
            (about.source, about.revision) = (Some(source), Some(revision));
        }
        let named = config.get("_name_or_path").and_then(serde_json::Value::as_str);
        about.source = about.source.or_else(|| named.filter(|name| is_repository(name)).map(str::to_owned));
        about.author = about.source.as_deref().and_then(|source| Some(source.split_once('/')?.0.to_owned()));
        if let Some(card) = folder.find(MODEL_CARD)? {
            match std::str::from_utf8(&card.bytes).map_err(|e| e.to_string()).and_then(front_matter) {
                Ok(Some(matter)) => about.take_card(&matter),
                Ok(None) => {}
                Err(why) => about.unread = Some(format!("the front matter of {MODEL_CARD}: {why}")),
            }
        }
        Ok(about)
    }

    fn take_card(&mut self, matter: &Value) {
        let text = |key: &str| match matter.get(key)? {
            Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            _ => None,
        };
        // `other` stands for a licence that the Hub has no word for; its name is beside it.
        self.license = match text("license") {
            Some(license) if license == "other" => text("license_name").or(Some(license)),
            license => license.or_else(|| text("license_name")),
        };
        self.author = text("author").or_else(|| text("authors")).or(self.author.take());
        self.description = text("description").or_else(|| text("summary"));
    }

    /// What the general keys of a GGUF file say.
    pub(super) fn of_gguf(texts: &GeneralTexts<'_>) -> Result<About> {
        let one = |keys: &[&str]| -> Result<Option<String>> {
            for key in keys {
                if let Some(text) = texts.get(key)?.filter(|text| !text.trim().is_empty()) {
                    return Ok(Some(text.trim().to_owned()));
                }
            }
            Ok(None)
        };
        Ok(About {
            author: one(&["author", "organization"])?,
            license: one(&["license", "license.name"])?,
            description: one(&["description"])?,
            source: one(&[
                "source.huggingface.repository",
                "source.repo_url",
                "source.url",
                "repo_url",
                "url",
                "base_model.0.repo_url",
            ])?,
            revision: None,
            unread: None,
        })
    }
}

/// The model and the commit that a folder of the Hub's cache is a snapshot of.
fn cached_from(path: &Path) -> Option<(String, String)> {
    let path = path.canonicalize().ok()?;
    let revision = path.file_name()?.to_str()?.to_owned();
    let snapshots = path.parent().filter(|parent| parent.ends_with("snapshots"))?;
    let repository = snapshots.parent()?.file_name()?.to_str()?.strip_prefix("models--")?;
    let (org, name) = repository.split_once("--")?;
    Some((format!("{org}/{name}"), revision))
}

/// Whether a text is `ORG/NAME`, and not the path of a folder on someone's machine.
fn is_repository(text: &str) -> bool {
    let is_word = |word: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !word.is_empty() && !word.starts_with('.') && word.chars().all(allowed)
    };
    text.split_once('/').is_some_and(|(org, name)| is_word(org) && is_word(name))
}

/// The YAML between the first two lines of three dashes, if a text begins with such a line.
fn front_matter(text: &str) -> std::result::Result<Option<Value>, String> {
    const LONGEST: usize = 1 << 20;
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return Ok(None);
    }
    let mut matter = String::new();
    for line in lines {
        if line.trim_end() == "---" {
            return serde_yaml::from_str(&matter).map(Some).map_err(|e| e.to_string());
        }
        matter.push_str(line);
        matter.push('\n');
        if matter.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} bytes"));
        }
    }
    Err("has no end, a second line of three dashes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(text: &str) -> About {
        let mut about = About { author: Some("org".to_owned()), ..About::default() };
        about.take_card(&front_matter(text).unwrap().unwrap());
        about
    }

    #[test]
    fn the_front_matter_of_a_model_card_names_the_licence() {
        let about = card("---\nlicense: apache-2.0\nlanguage:\n- en\n---\n# Model\n");
        assert_eq!(about.license.as_deref(), Some("apache-2.0"));
        assert_eq!(about.author.as_deref(), Some("org"));
        let about = card("---\nlicense: other\nlicense_name: gemma-terms\nauthor: A B\n---\n");
        assert_eq!(about.license.as_deref(), Some("gemma-terms"));
        assert_eq!(about.author.as_deref(), Some("A B"));
        assert_eq!(card("---\nlicense:\n  name: nested\n---\n").license, None, "only texts are taken");
    }

    #[test]
    fn a_model_card_without_front_matter_says_nothing_and_a_broken_one_why() {
        assert_eq!(front_matter("# Model\n---\nlicense: mit\n---\n"), Ok(None));
        assert!(front_matter("---\nlicense: mit\n").unwrap_err().contains("no end"));
        assert!(front_matter("---\n\tlicense: [\n---\n").is_err());
    }

    #[test]
    fn a_snapshot_of_the_hub_says_where_it_came_from() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("models--org--a-model/snapshots/0123abc");
        std::fs::create_dir_all(&snapshot).unwrap();
        let found = cached_from(&snapshot);
        assert_eq!(found, Some(("org/a-model".to_owned(), "0123abc".to_owned())));
        assert_eq!(cached_from(folder.path()), None);
        assert!(is_repository("org/name") && !is_repository("/home/me/model") && !is_repository("a/b/c"));
    }
}
