//! Bundles of small decoders.

use std::path::Path;
use std::sync::Arc;

use anemeter::atomic;
use anemeter::bundle::{
    Bundle, Checkpoint, Chunk, File, MANIFEST, Manifest, Origin, Settings, Tokenizer, Tool,
};
use anemeter::export::{describe_architecture, describe_chunk, write_embeddings};
use anemeter::generate::{Driver, SystemClock, sessions};
use anemeter::lower::{self, Options, lower};
use anemeter::mil::verify::verify;
use anemeter::model::Decoder;
use anemeter::package::{self, WriteOptions};
use anemeter::runtime::{self, LoadOptions};
use anemeter::vocabulary::{ComputeUnits, KvForm, ShapesAs};

/// Lowers a decoder and writes it with its description; `tokenizer` is the content of `tokenizer.json` and what is
/// said of it.
pub(crate) fn write(
    decoder: &Decoder,
    options: &Options,
    tokenizer: Option<(&[u8], Tokenizer)>,
    folder: &Path,
) -> Bundle {
    let chunks = lower(decoder, options).unwrap().into_iter().map(|chunk| write_chunk(chunk, folder));
    let tokenizer = tokenizer.map(|(content, described)| {
        atomic::write_file(&folder.join("tokenizer.json"), content).unwrap();
        described
    });
    let manifest = Manifest {
        tool: Tool { name: "anemeter".to_owned(), version: "test".to_owned() },
        origin: Origin::Exported,
        architecture: Some(describe_architecture(decoder)),
        checkpoint: Some(Checkpoint { name: "random".to_owned(), bytes: 0, digest: String::new() }),
        settings: Some(settings(options)),
        host_embeddings: write_embeddings(decoder, options, folder, &Arc::default()).unwrap(),
        tokenizer,
        ..Manifest::of_packages("tiny".to_owned(), chunks.collect())
    };
    atomic::write_file(&folder.join(MANIFEST), &serde_json::to_vec(&manifest).unwrap()).unwrap();
    Bundle::open(folder).unwrap()
}

/// A driver on the CPU.
pub(crate) fn driver(bundle: &Bundle, form: KvForm) -> Driver {
    let options = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    let sessions = sessions(bundle, &runtime::cpu(), &options).unwrap();
    Driver::new(bundle, sessions, Some(form), Arc::new(SystemClock::default())).unwrap()
}

pub(crate) fn file(name: &str) -> File {
    File { name: name.to_owned(), bytes: 0, digest: String::new() }
}

fn write_chunk(chunk: lower::Chunk, folder: &Path) -> Chunk {
    let name = format!("{}.mlpackage", chunk.name);
    let model = verify(chunk.model).unwrap();
    let summary = package::write(&model, folder.join(&name), WriteOptions::default()).unwrap();
    describe_chunk(name, &summary, &chunk.layers, &chunk.positions, model.model())
}

fn settings(options: &Options) -> Settings {
    Settings {
        kv: options.kv.iter().copied().collect(),
        seq_lens: options.seq_lens.clone(),
        contexts: options.contexts.clone(),
        query: options.query,
        batch: options.batch,
        embeddings: options.embeddings,
        head_split: options.head_split,
        opset: options.opset.to_string(),
        compute_units: ComputeUnits::All,
        precision: "fp16".to_owned(),
        activations: anemeter::vocabulary::Activations::Fp16,
        shapes_as: ShapesAs::Enumerated,
        training_seq_lens: None,
        config: None,
    }
}
