//! GGUF files: metadata, tensors and tokenizer in one file, brought to Hugging Face's form.

mod architecture;
mod config;
mod hybrid;
mod merges;
mod reader;
mod tokenizer;

use std::collections::BTreeMap;

use super::error::{CheckpointError, Result, quoted};
use super::files::Mapped;
use super::{About, Block, Checkpoint, Config, Elements, Encoding, GgufEncoding, Order, Stored};
use anemeter_kernels::tensor::{DType, Shape};
use architecture::{Architecture, ROPE_FREQS, ROPE_LONG, ROPE_SHORT};
use reader::{Parts, TensorInfo, key_error, opt_text, opt_u64};

/// GGML's type numbers.
const TYPES: &[(u32, Elements)] = &[
    (0, Elements::Plain(DType::F32)),
    (1, Elements::Plain(DType::F16)),
    (2, Elements::Blocks(Block::Q4_0)),
    (3, Elements::Blocks(Block::Q4_1)),
    (6, Elements::Blocks(Block::Q5_0)),
    (7, Elements::Blocks(Block::Q5_1)),
    (8, Elements::Blocks(Block::Q8_0)),
    (10, Elements::Blocks(Block::Q2_K)),
    (11, Elements::Blocks(Block::Q3_K)),
    (12, Elements::Blocks(Block::Q4_K)),
    (13, Elements::Blocks(Block::Q5_K)),
    (14, Elements::Blocks(Block::Q6_K)),
    (28, Elements::Plain(DType::F64)),
    (30, Elements::Plain(DType::BF16)),
];

/// Whether a file says that it is one.
pub(super) fn is_one(file: &Mapped) -> bool {
    file.bytes.starts_with(reader::MAGIC)
}

pub(super) fn open(file: &Mapped) -> Result<Checkpoint> {
    read(file).map_err(|e| e.in_file(&file.path))
}

fn read(file: &Mapped) -> Result<Checkpoint> {
    let parts = reader::read(&file.bytes)?;
    let architecture = find_architecture(&parts)?;
    let tensors = Tensors::read(file, &parts)?;
    let writer = config::Writer { metadata: &parts.metadata, architecture, tensors: &tensors };
    let config = Config::new(writer.write()?);
    let mut named = BTreeMap::new();
    for (&name, (elements, stored)) in &tensors.by_name {
        if [ROPE_FREQS, ROPE_SHORT, ROPE_LONG].contains(&name) {
            continue;
        }
        let place = architecture.place(name).ok_or_else(|| {
            CheckpointError::new(format!("is no tensor of `{}`", architecture.name)).at_tensor(name)
        })?;
        let stored =
            arrange(architecture, place.stem, *elements, stored, &writer).map_err(|e| e.at_tensor(name))?;
        if named.insert(place.name, stored).is_some() {
            return Err(CheckpointError::new("is there twice").at_tensor(name));
        }
    }
    let tokens = tokenizer::read(&parts.metadata)?;
    Ok(Checkpoint {
        path: file.path.clone(),
        shards: vec![file.shard()],
        config,
        tensors: named,
        tokenizer: tokens.json,
        chat_template: opt_text(&parts.metadata, "tokenizer.chat_template")?.map(str::to_owned),
        bos: tokens.bos,
        eos: tokens.eos,
        sentence: None,
        about: About::of_gguf(&GeneralTexts(&parts))?,
    })
}

/// The general keys that are texts.
pub(super) struct GeneralTexts<'a>(&'a Parts<'a>);

impl<'a> GeneralTexts<'a> {
    /// The text of a key, without `general.`; nothing where it is absent.
    pub(super) fn get(&self, key: &str) -> Result<Option<&'a str>> {
        opt_text(&self.0.metadata, &format!("general.{key}"))
    }
}

fn find_architecture(parts: &Parts<'_>) -> Result<&'static Architecture> {
    const KEY: &str = "general.architecture";
    if opt_u64(&parts.metadata, "split.count")?.is_some_and(|count| count > 1) {
        return Err(key_error("split.count", "says that the file is one of several parts")
            .with_help("merge the parts with `llama-gguf-split --merge`"));
    }
    let name = opt_text(&parts.metadata, KEY)?.ok_or_else(|| key_error(KEY, "is missing"))?;
    architecture::ALL.iter().find(|known| known.name == name).ok_or_else(|| {
        let known: Vec<_> = architecture::ALL.iter().map(|known| known.name).collect();
        key_error(KEY, &format!("is {}, known are {}", quoted(name), known.join(", ")))
    })
}

/// The tensors of a file by their GGUF names, still in the file's order.
struct Tensors<'a> {
    by_name: BTreeMap<&'a str, (Elements, Stored)>,
}

impl<'a> Tensors<'a> {
    fn read(file: &Mapped, parts: &Parts<'a>) -> Result<Tensors<'a>> {
        let mut by_name = BTreeMap::new();
        for info in &parts.tensors {
            let tensor = locate(file, parts.data, info).map_err(|e| e.at_tensor(info.name))?;
            if by_name.insert(info.name, tensor).is_some() {
                return Err(CheckpointError::new("is there twice").at_tensor(info.name));
            }
        }
        Ok(Tensors { by_name })
    }

    fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// A tensor that must be there, as it is.
    fn plain(&self, name: &str) -> Result<&Stored> {
        match self.by_name.get(name) {
            Some((_, stored)) => Ok(stored),
            None => Err(CheckpointError::new("is missing").at_tensor(name)),
        }
    }
}

fn locate(file: &Mapped, data: usize, info: &TensorInfo<'_>) -> Result<(Elements, Stored)> {
    let Some(&(_, elements)) = TYPES.iter().find(|row| row.0 == info.kind) else {
        let message = format!("elements of GGML type {} are not supported", info.kind);
        return Err(CheckpointError::new(message)
            .with_help("use a file of type F16, BF16, Q8_0, Q4_0 to Q5_1 or Q2_K to Q6_K"));
    };
    let dims: Option<Shape> = info.dims.iter().rev().map(|&dim| usize::try_from(dim).ok()).collect();
    let Some((shape, len)) = dims.and_then(|shape| elements.byte_len(&shape).map(|len| (shape, len))) else {
        let message = format!("has the dimensions {:?}, impossible for {elements:?}", info.dims);
        return Err(CheckpointError::new(message));
    };
    let start = usize::try_from(info.offset).ok().and_then(|offset| data.checked_add(offset));
    let range = start.and_then(|start| Some(start..start.checked_add(len)?));
    let bytes = range.and_then(|range| file.bytes.slice(range)).ok_or_else(|| {
        let (offset, size) = (info.offset, file.bytes.len());
        CheckpointError::new(format!("needs {len} bytes at {data} + {offset}, the file has {size}"))
    })?;
    let encoding = encoding(elements, Order::Same, false);
    Ok((elements, Stored { shape, encoding, bytes, shard: 0 }))
}

fn encoding(elements: Elements, order: Order, plus_one: bool) -> Encoding {
    match (elements, order, plus_one) {
        (Elements::Plain(dtype), Order::Same, false) => Encoding::Plain(dtype),
        _ => Encoding::Gguf(GgufEncoding { elements, order, plus_one }),
    }
}

/// Brings a tensor to Hugging Face's layout.
fn arrange(
    architecture: &Architecture,
    stem: &str,
    elements: Elements,
    stored: &Stored,
    writer: &config::Writer<'_>,
) -> Result<Stored> {
    let Stored { mut shape, bytes, shard, .. } = stored.clone();
    if stem == "shortconv.conv" && shape.len() == 2 {
        // One input to each channel.
        shape.insert(1, 1);
    }
    let is_map = stem.starts_with("attn_") || stem.starts_with("ffn_");
    let order = if architecture.interleaves && matches!(stem, "attn_q" | "attn_k") {
        let head_dim = writer.head_dim()?;
        let rows = shape.first().copied().unwrap_or(0);
        if head_dim < 2 || !head_dim.is_multiple_of(2) || !rows.is_multiple_of(head_dim) {
            let message = format!("is {:?}, its rows are not whole heads of {head_dim}", &shape[..]);
            return Err(CheckpointError::new(message));
        }
        Order::Interleaved { head_dim }
    } else if architecture.transposes && is_map && shape.len() == 2 {
        shape.swap(0, 1);
        Order::Transposed
    } else {
        Order::Same
    };
    let plus_one = architecture.norms_plus_one && stem.ends_with("norm");
    Ok(Stored { shape, encoding: encoding(elements, order, plus_one), bytes, shard })
}

#[cfg(test)]
mod tests;
