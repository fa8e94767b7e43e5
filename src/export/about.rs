//! What models say about themselves: what they are, who made them, what they may be used for, and where they came from.

use std::collections::BTreeMap;

use super::options::ExportOptions;
use crate::checkpoint::Checkpoint;
use crate::coreai::asset::AssetMetadata;
use crate::mil::Metadata;

/// What every model file of an export says. Nothing in it changes from one run to the next.
#[derive(Debug, Clone)]
pub(super) struct ModelCard {
    description: String,
    author: String,
    license: String,
    /// The model that it was made from, and its revision where that is known.
    source: String,
    revision: Option<String>,
}

impl ModelCard {
    /// What the options say, or else the checkpoint; `summary` stands for a description where neither has one.
    pub(super) fn new(options: &ExportOptions, checkpoint: &Checkpoint, summary: String) -> ModelCard {
        let about = &checkpoint.about;
        let first = |option: &Option<String>, found: &Option<String>| {
            option.clone().or_else(|| found.clone()).unwrap_or_default()
        };
        let description = match first(&options.description, &about.description) {
            none if none.is_empty() => summary,
            given => given,
        };
        ModelCard {
            description,
            author: first(&options.author, &about.author),
            license: first(&options.license, &about.license),
            source: about.source.clone().unwrap_or_else(|| checkpoint.name()),
            revision: about.revision.clone(),
        }
    }

    /// Where the model came from.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// As Core AI assets say it.
    pub(super) fn of_asset(&self) -> AssetMetadata {
        let other = self.origin().map(|(key, text)| (key.to_owned(), text.into()));
        AssetMetadata {
            author: self.author.clone(),
            license: self.license.clone(),
            description: self.description.clone(),
            other: BTreeMap::from_iter(other),
            ..AssetMetadata::default()
        }
    }

    /// As packages say it.
    pub(super) fn of_package(&self) -> Metadata {
        Metadata {
            description: self.description.clone(),
            author: self.author.clone(),
            license: self.license.clone(),
            user_defined: self.origin().map(|(key, text)| (key.to_owned(), text.to_owned())).collect(),
            ..Metadata::default()
        }
    }

    /// In key order.
    fn origin(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let revision = self.revision.as_deref().map(|revision| ("revision", revision));
        revision.into_iter().chain([("source", self.source.as_str())])
    }
}
