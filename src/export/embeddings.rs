//! Token vectors for a host that looks them up itself.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, json};
use xxhash_rust::xxh3::Xxh3;

use super::error::ExportError;
use crate::bundle::{self, digest_text};
use crate::lower::{self, Options, ReadStats};
use crate::mil::Payload;
use crate::model::{Decoder, Position, Weight};
use crate::vocabulary::Embeddings;

const FILE: &str = "embeddings.safetensors";

/// Writes `embeddings.safetensors` if embeddings are the host's: `token_embeddings`, and `position_embeddings` where
/// positions are learned, and `per_layer_embeddings` where layers have inputs of their own; all fp16 and without the
/// model's scale.
pub fn write(
    decoder: &Decoder,
    options: &Options,
    folder: &Path,
    stats: &Arc<ReadStats>,
) -> Result<Option<bundle::File>, ExportError> {
    if options.embeddings != Embeddings::Host {
        return Ok(None);
    }
    let mut tensors = vec![("token_embeddings", &decoder.embedding)];
    if let Position::Learned(positions) = &decoder.position {
        tensors.push(("position_embeddings", positions));
    }
    if let Some(inputs) = &decoder.per_layer {
        tensors.push(("per_layer_embeddings", &inputs.table));
    }
    let path = folder.join(FILE);
    write_safetensors(&path, &tensors, stats).map(Some).map_err(|e| ExportError::io(&path, &e))
}

fn write_safetensors(
    path: &Path,
    tensors: &[(&str, &Weight)],
    stats: &Arc<ReadStats>,
) -> io::Result<bundle::File> {
    let payloads: Vec<Arc<dyn Payload>> =
        tensors.iter().map(|(_, weight)| lower::fp16_payload(weight, stats)).collect();
    let mut header = Map::new();
    let mut end = 0;
    for ((name, weight), payload) in tensors.iter().zip(&payloads) {
        let start = end;
        end += payload.byte_len();
        let entry = json!({ "dtype": "F16", "shape": weight.shape.to_vec(), "data_offsets": [start, end] });
        header.insert((*name).to_owned(), entry);
    }
    let mut header = serde_json::to_string(&header)?;
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));

    let file = File::create_new(path)?;
    let mut out = Hashed { out: BufWriter::new(&file), hash: Xxh3::new(), len: 0 };
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    payloads.iter().try_for_each(|payload| payload.write_to(&mut out))?;
    out.flush()?;
    let (bytes, digest) = (out.len, digest_text(out.hash.digest128()));
    Ok(bundle::File { name: FILE.to_owned(), bytes, digest })
}

/// Counts and hashes what passes.
struct Hashed<W> {
    out: W,
    hash: Xxh3,
    len: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
