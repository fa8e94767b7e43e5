//! Bundles of small decoders.

use std::path::Path;
use std::sync::Arc;

use anemeter::bundle::{
    Architecture, Bundle, Checkpoint, Chunk, ComputeUnits, Embeddings, File, Function, KvForm, MANIFEST,
    Manifest, Mask, Port, Rotation, SCHEMA, Settings, Tokenizer, Tool,
};
use anemeter::generate::{Clock, Driver, SystemClock, sessions};
use anemeter::lower::{self, Options, lower};
use anemeter::mil::verify::verify;
use anemeter::mil::{Feature, FeatureType, Flexibility, Interface};
use anemeter::model::{Decoder, Position, Weight};
use anemeter::package::{self, WriteOptions, atomic};
use anemeter::runtime::{self, LoadOptions};
use safetensors::tensor::{Dtype, TensorView};

const EMBEDDINGS: &str = "embeddings.safetensors";

/// Lowers a decoder and writes it with its description; `tokenizer` is the content of `tokenizer.json` and what is
/// said of it.
pub(crate) fn write(
    decoder: &Decoder,
    options: &Options,
    tokenizer: Option<(&[u8], Tokenizer)>,
    folder: &Path,
) -> Bundle {
    let chunks: Vec<Chunk> =
        lower(decoder, options).unwrap().into_iter().map(|chunk| write_chunk(chunk, folder)).collect();
    let is_host = options.embeddings == Embeddings::Host;
    if is_host {
        write_embeddings(decoder, &folder.join(EMBEDDINGS));
    }
    let tokenizer = tokenizer.map(|(content, described)| {
        atomic::write_file(&folder.join("tokenizer.json"), content).unwrap();
        described
    });
    let manifest = Manifest {
        schema: SCHEMA.to_owned(),
        tool: Tool { name: "anemeter".to_owned(), version: "test".to_owned() },
        name: "tiny".to_owned(),
        architecture: architecture(decoder),
        checkpoint: Checkpoint { name: "random".to_owned(), bytes: 0, digest: String::new() },
        settings: settings(options),
        chunks,
        host_embeddings: is_host.then(|| file(EMBEDDINGS)),
        tokenizer,
        compression: None,
        sensitivity: None,
        warnings: Vec::new(),
        profile: Vec::new(),
    };
    atomic::write_file(&folder.join(MANIFEST), &serde_json::to_vec(&manifest).unwrap()).unwrap();
    Bundle::open(folder).unwrap()
}

/// A driver on the CPU.
pub(crate) fn driver(bundle: &Bundle, form: KvForm) -> Driver {
    driver_with(bundle, form, Arc::new(SystemClock::default()))
}

pub(crate) fn driver_with(bundle: &Bundle, form: KvForm, clock: Arc<dyn Clock>) -> Driver {
    let options = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    let sessions = sessions(bundle, &runtime::cpu(), &options).unwrap();
    Driver::new(bundle, sessions, Some(form), clock).unwrap()
}

pub(crate) fn file(name: &str) -> File {
    File { name: name.to_owned(), bytes: 0, digest: String::new() }
}

fn write_chunk(chunk: lower::Chunk, folder: &Path) -> Chunk {
    let name = format!("{}.mlpackage", chunk.name);
    let functions = chunk.model.interfaces().iter().map(function).collect();
    package::write(&verify(chunk.model).unwrap(), folder.join(&name), WriteOptions::default()).unwrap();
    let positions = chunk.positions;
    Chunk {
        file: file(&name),
        first_layer: chunk.layers.start,
        layers: chunk.layers.len(),
        masks: positions
            .masks
            .into_iter()
            .map(|mask| Mask { input: mask.name, window: mask.window })
            .collect(),
        rotations: positions
            .rotations
            .into_iter()
            .map(|rotation| Rotation {
                frequencies: rotation.rope.frequencies().iter().map(|&f| f as f32).collect(),
                magnitude: rotation.rope.magnitude() as f32,
                cos: rotation.cos,
                sin: rotation.sin,
            })
            .collect(),
        functions,
    }
}

fn function(interface: &Interface) -> Function {
    let ports = |features: &[Feature]| features.iter().map(port).collect();
    Function {
        name: interface.function.clone(),
        inputs: ports(&interface.inputs),
        outputs: ports(&interface.outputs),
        states: ports(&interface.states),
    }
}

fn port(feature: &Feature) -> Port {
    let (dtype, shapes) = match &feature.ty {
        FeatureType::Array(array) | FeatureType::State(array) => {
            let shapes = match &array.flexibility {
                Flexibility::Enumerated(shapes) => shapes.clone(),
                _ => vec![array.shape.clone()],
            };
            (array.dtype.to_string(), shapes)
        }
        other => panic!("{other:?}"),
    };
    Port { name: feature.name.clone(), dtype, shapes }
}

fn architecture(decoder: &Decoder) -> Architecture {
    let attention = &decoder.layers[0].attention;
    Architecture {
        name: decoder.architecture.to_owned(),
        hidden: decoder.hidden,
        vocabulary: decoder.vocabulary,
        layers: decoder.layers.len(),
        heads: attention.heads,
        kv_heads: attention.kv_heads,
        head_dim: attention.head_dim,
        parameters: 0,
        max_positions: decoder.max_positions,
        kv_bytes_per_token: 0,
        embedding_scale: decoder.embedding_scale,
        learned_positions: matches!(decoder.position, Position::Learned(_)),
    }
}

fn settings(options: &Options) -> Settings {
    Settings {
        kv: options.kv.iter().copied().collect(),
        shapes: options.shapes.clone(),
        contexts: options.contexts.clone(),
        query: options.query,
        batch: options.batch,
        embeddings: options.embeddings,
        head_split: options.head_split,
        opset: options.opset.to_string(),
        compute_units: ComputeUnits::All,
        precision: "fp16".to_owned(),
        training_shapes: None,
    }
}

fn write_embeddings(decoder: &Decoder, path: &Path) {
    let bytes = |weight: &Weight| {
        let mut values = vec![0.0f32; weight.shape.iter().product()];
        weight.read(0..values.len(), &mut values);
        bytemuck::cast_slice::<f32, u8>(&values).to_vec()
    };
    let mut stored = vec![("token_embeddings", &decoder.embedding)];
    if let Position::Learned(positions) = &decoder.position {
        stored.push(("position_embeddings", positions));
    }
    let stored: Vec<_> =
        stored.into_iter().map(|(name, weight)| (name, weight.shape.to_vec(), bytes(weight))).collect();
    let views = stored
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}
