//! The weights of a folder: one file, or shards with an index.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::error::{CheckpointError, Result, quoted};
use super::files::{Folder, Mapped};
use super::unique::Unique;
use super::{Shard, Stored, safetensors, torch};

/// Files that hold all weights, each with the index that takes its place when there are shards.
const FILES: &[(&str, &str)] = &[
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
];

/// An index: the file of each tensor.
#[derive(Debug, Deserialize)]
struct Index {
    weight_map: Unique<String>,
}

/// Tensors by name, and the files that hold them.
pub(super) struct Weights {
    pub(super) tensors: BTreeMap<String, Stored>,
    pub(super) shards: Vec<Shard>,
}

pub(super) fn of_folder(folder: &Folder) -> Result<Weights> {
    for &(file, index) in FILES {
        if let Some(file) = folder.find(file)? {
            return of_file(&file);
        }
        if let Some(index) = folder.find(index)? {
            return of_shards(folder, &index);
        }
    }
    let names: Vec<&str> = FILES.iter().flat_map(|&(file, index)| [file, index]).collect();
    let message = format!("the folder has no weights: none of {} is there", names.join(", "));
    Err(CheckpointError::new(message).in_file(folder.path()))
}

pub(super) fn of_file(file: &Mapped) -> Result<Weights> {
    let mut tensors = BTreeMap::new();
    if torch::is_legacy(file) {
        return Err(file
            .error("is a PyTorch file in the format before version 1.6")
            .with_help("load it and save it again with a current PyTorch, or as safetensors"));
    }
    let read = if torch::is_one(file) { torch::read(file)? } else { safetensors::read(file)? };
    for (name, stored) in read {
        if tensors.insert(name.clone(), stored).is_some() {
            return Err(file.error("is there twice").at_tensor(&name));
        }
    }
    Ok(Weights { tensors, shards: vec![file.shard()] })
}

fn of_shards(folder: &Folder, index: &Mapped) -> Result<Weights> {
    let Index { weight_map: Unique(homes) } = index.json()?;
    let names: BTreeSet<&str> = homes.values().map(String::as_str).collect();
    let mut shards = Vec::new();
    let mut tensors = BTreeMap::new();
    let mut found_in = BTreeMap::new();
    for shard in names {
        let Some(file) = folder.find(shard)? else {
            let message = format!("names the shard {}, which does not exist", quoted(shard));
            return Err(index.error(message).with_help("download the missing shard"));
        };
        let weights = of_file(&file)?;
        for (name, stored) in weights.tensors {
            if let Some(other) = found_in.insert(name.clone(), shard) {
                let message = format!("is also in the shard {}", quoted(other));
                return Err(file.error(message).at_tensor(&name));
            }
            tensors.insert(name, Stored { shard: shards.len(), ..stored });
        }
        shards.extend(weights.shards);
    }
    for (name, home) in &homes {
        if found_in.get(name) != Some(&home.as_str()) {
            let message = format!("is not in the shard {} that the index names", quoted(home));
            return Err(index.error(message).at_tensor(name));
        }
    }
    Ok(Weights { tensors, shards })
}
