//! The weights of a folder: one file, or shards with an index.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::error::{CheckpointError, Result, quoted};
use super::files::{Folder, Mapped};
use super::unique::Unique;
use super::{Stored, safetensors, torch};

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

/// All tensors of a folder, by name.
pub(super) fn of_folder(folder: &Folder) -> Result<BTreeMap<String, Stored>> {
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

/// All tensors of one file, by name.
pub(super) fn of_file(file: &Mapped) -> Result<BTreeMap<String, Stored>> {
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
    Ok(tensors)
}

fn of_shards(folder: &Folder, index: &Mapped) -> Result<BTreeMap<String, Stored>> {
    let Index { weight_map: Unique(homes) } = index.json()?;
    let shards: BTreeSet<&str> = homes.values().map(String::as_str).collect();
    let mut tensors = BTreeMap::new();
    let mut found_in = BTreeMap::new();
    for shard in shards {
        let Some(file) = folder.find(shard)? else {
            let message = format!("names the shard {}, which does not exist", quoted(shard));
            return Err(index.error(message).with_help("download the missing shard"));
        };
        for (name, stored) in of_file(&file)? {
            if let Some(other) = found_in.insert(name.clone(), shard) {
                let message = format!("is also in the shard {}", quoted(other));
                return Err(file.error(message).at_tensor(&name));
            }
            tensors.insert(name, stored);
        }
    }
    for (name, home) in &homes {
        if found_in.get(name) != Some(&home.as_str()) {
            let message = format!("is not in the shard {} that the index names", quoted(home));
            return Err(index.error(message).at_tensor(name));
        }
    }
    Ok(tensors)
}
