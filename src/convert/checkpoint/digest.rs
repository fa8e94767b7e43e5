//! A name and a digest of a checkpoint; the digest does not read all of it.

use xxhash_rust::xxh3::Xxh3;

use super::{Checkpoint, hub_cache};
use crate::bundle;

/// Bytes of a sample, and how many are taken of a file.
const SAMPLE: usize = 4096;
const SAMPLES: usize = 1024;

/// Samples after which their pages are given back.
const BATCH: usize = 64;

impl Checkpoint {
    /// The name of its folder, or of its file without the ending.
    pub fn name(&self) -> String {
        if let Some(name) = hub_cache::model_of(&self.path) {
            return name;
        }
        let path = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether it is a GGUF file, which has everything in it.
    pub fn is_gguf(&self) -> bool {
        matches!(&self.shards[..], [shard] if shard.bytes.starts_with(b"GGUF"))
    }

    /// Names, sizes and evenly spread samples of the weight files. A checkpoint of many gigabytes is told from another
    /// one in milliseconds; a change of single bytes may go unseen, which the packages' own digests would show.
    pub fn describe(&self) -> bundle::Checkpoint {
        let mut digest = Xxh3::new();
        let mut bytes = 0;
        for shard in &self.shards {
            let content = &shard.bytes[..];
            let name = shard.path.file_name().unwrap_or_default().to_string_lossy();
            digest.update(name.as_bytes());
            digest.update(&(content.len() as u64).to_le_bytes());
            let step = (content.len() / SAMPLES).max(SAMPLE);
            for batch in (0..content.len()).step_by(step * BATCH) {
                let end = content.len().min(batch + step * BATCH);
                for start in (batch..end).step_by(step) {
                    digest.update(&content[start..content.len().min(start + SAMPLE)]);
                }
                // Reading a page may map many around it.
                shard.bytes.release(batch..end);
            }
            digest.update(&content[content.len().saturating_sub(SAMPLE)..]);
            shard.bytes.release(0..content.len());
            bytes += content.len() as u64;
        }
        let digest = format!("xxh3-sampled:{:032x}", digest.digest128());
        bundle::Checkpoint { name: self.name(), bytes, digest }
    }
}
