//! Weights against what other programs and the exporter make of the same bytes.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use anemeter_convert::checkpoint::testing::{QuantFormat, TestTensor, golden, write};
use anemeter_convert::checkpoint::{self, Checkpoint};
use candle_core::quantized::gguf_file::Value as Meta;
use candle_core::quantized::{GgmlDType, QTensor, ggml_file, gguf_file};
use candle_core::{Device, Tensor};
use safetensors::SafeTensors;
use serde_json::json;

use super::files;
use super::packed::{self, Packing};

#[test]
fn candle_decodes_gguf_blocks_as_the_gguf_package_does() {
    use GgmlDType::{BF16, F16, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    let bytes = include_bytes!("../../convert/checkpoint/testdata/gguf-blocks.safetensors");
    let golden = SafeTensors::deserialize(bytes).unwrap();
    let names =
        ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"];
    let dtypes = [F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K];
    for (name, dtype) in names.into_iter().zip(dtypes) {
        let [stored, values] =
            ["bytes", "values"].map(|part| golden.tensor(&format!("{name}.{part}")).unwrap());
        let expected: Vec<f32> =
            values.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        // candle casts the bytes to blocks, as it does with the buffer that it reads a file into.
        let aligned = stored.data().to_vec();
        let found =
            ggml_file::qtensor_from_ggml(dtype, &aligned, vec![expected.len()], &Device::Cpu).unwrap();
        let found = found.dequantize(&Device::Cpu).unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn mlx_matrices_are_what_mlx_decodes() {
    let bytes = include_bytes!("../../convert/checkpoint/testdata/mlx-affine.safetensors");
    let golden = [SafeTensors::deserialize(bytes).unwrap()];
    let config = json!({"quantization": {"group_size": 32, "bits": 4}});
    let packing = Packing::read(config.as_object().unwrap()).unwrap();
    for bits in [2, 3, 4, 6, 8] {
        let found = packed::tensor(&golden, &packing, &format!("{bits}.weight")).unwrap();
        let expected = packed::tensor(&golden, &Packing::None, &format!("{bits}.values")).unwrap();
        let distance =
            (found - expected).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(distance < 1e-6, "{bits} bits: {distance}");
    }
}

#[test]
fn packed_matrices_are_what_the_programs_that_pack_them_decode() {
    let shape = [32, 64];
    for way in golden().into_iter().filter(|way| !matches!(way, QuantFormat::Golden(_, "fp8"))) {
        let folder = tempfile::tempdir().unwrap();
        let matrix = way.matrix("a", shape);
        write(folder.path(), &json!({"quantization_config": way.config()}), &matrix.parts);
        let checkpoint = checkpoint::open(folder.path()).unwrap();
        let found = super::open(&checkpoint).unwrap().0.tensor("a.weight").unwrap();
        assert_eq!(found.dims(), shape, "{way:?}");
        let found = found.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(found, matrix.elements, "{way:?}");
    }
}

const HEADS: usize = 2;
const WIDTH: usize = 8;

/// Shapes of a Llama of one layer by Hugging Face's and GGUF's names.
const TENSORS: [(&str, &str, &[usize]); 11] = [
    ("model.embed_tokens", "token_embd", &[7, WIDTH]),
    ("model.norm", "output_norm", &[WIDTH]),
    ("model.layers.0.input_layernorm", "blk.0.attn_norm", &[WIDTH]),
    ("model.layers.0.post_attention_layernorm", "blk.0.ffn_norm", &[WIDTH]),
    ("model.layers.0.self_attn.q_proj", "blk.0.attn_q", &[WIDTH, WIDTH]),
    ("model.layers.0.self_attn.k_proj", "blk.0.attn_k", &[WIDTH, WIDTH]),
    ("model.layers.0.self_attn.v_proj", "blk.0.attn_v", &[WIDTH, WIDTH]),
    ("model.layers.0.self_attn.o_proj", "blk.0.attn_output", &[WIDTH, WIDTH]),
    ("model.layers.0.mlp.gate_proj", "blk.0.ffn_gate", &[12, WIDTH]),
    ("model.layers.0.mlp.up_proj", "blk.0.ffn_up", &[12, WIDTH]),
    ("model.layers.0.mlp.down_proj", "blk.0.ffn_down", &[WIDTH, 12]),
];

fn values(tensor: usize, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    (0..count).map(|i| ((i * 37 + tensor * 11) % 31) as f32 / 16.0 - 0.875).collect()
}

/// llama.cpp's order of the rows of queries and keys: `reshape(heads, 2, half, …).swapaxes(1, 2)`.
fn permuted(tensor: &Tensor) -> Tensor {
    let halves = tensor.reshape((HEADS, 2, WIDTH / HEADS / 2, WIDTH)).unwrap();
    halves.transpose(1, 2).unwrap().contiguous().unwrap().reshape((WIDTH, WIDTH)).unwrap()
}

/// A class with Llama's tensors: its name in both forms, and what it has beside Llama's settings in both.
struct Class {
    name: &'static str,
    class: &'static str,
    keys: &'static [(&'static str, f32)],
    gguf_keys: &'static [(&'static str, f32)],
}

const CLASSES: [Class; 3] = [
    Class { name: "llama", class: "LlamaForCausalLM", keys: &[], gguf_keys: &[] },
    Class {
        name: "granite",
        class: "GraniteForCausalLM",
        keys: &[
            ("embedding_multiplier", 2.0),
            ("attention_multiplier", 0.75),
            ("residual_multiplier", 0.5),
            ("logits_scaling", 4.0),
        ],
        gguf_keys: &[
            ("embedding_scale", 2.0),
            ("attention.scale", 0.75),
            ("residual_scale", 0.5),
            ("logit_scale", 4.0),
        ],
    },
    Class {
        name: "minicpm",
        class: "MiniCPMForCausalLM",
        keys: &[("scale_emb", 3.0), ("scale_depth", 0.5), ("dim_model_base", 2.0)],
        gguf_keys: &[("embedding_scale", 3.0), ("residual_scale", 0.5), ("logit_scale", WIDTH as f32 / 2.0)],
    },
];

fn write_folder(folder: &Path, class: &Class) -> Checkpoint {
    let mut config = json!({
        "architectures": [class.class], "model_type": class.name, "hidden_size": WIDTH, "vocab_size": 7,
        "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": HEADS,
        "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 500.0, "tie_word_embeddings": true,
    });
    class.keys.iter().for_each(|(key, value)| config[key] = json!(value));
    let parts = TENSORS.iter().enumerate();
    let parts = parts
        .map(|(i, (name, _, shape))| TestTensor::halves(&format!("{name}.weight"), shape, &values(i, shape)));
    write(folder, &config, &parts.collect::<Vec<_>>());
    checkpoint::open(folder).unwrap()
}

fn write_gguf(folder: &Path, class: &Class) -> Checkpoint {
    let name = class.name;
    let tensors = TENSORS.iter().enumerate().map(|(i, (_, name, shape))| {
        let tensor = Tensor::from_vec(values(i, shape), *shape, &Device::Cpu).unwrap();
        let tensor =
            if name.ends_with("attn_q") || name.ends_with("attn_k") { permuted(&tensor) } else { tensor };
        (format!("{name}.weight"), QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
    });
    let tensors: Vec<(String, QTensor)> = tensors.collect();
    let sizes = [
        ("block_count", 1),
        ("context_length", 16),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", 12),
        ("attention.head_count", HEADS as u32),
    ];
    let mut metadata: HashMap<String, Meta> =
        sizes.iter().map(|(key, size)| (format!("{name}.{key}"), Meta::U32(*size))).collect();
    metadata.insert("general.architecture".to_owned(), Meta::String(name.to_owned()));
    metadata.insert(format!("{name}.rope.freq_base"), Meta::F32(500.0));
    metadata.insert(format!("{name}.attention.layer_norm_rms_epsilon"), Meta::F32(1e-5));
    let own = class.gguf_keys.iter().map(|(key, value)| (format!("{name}.{key}"), Meta::F32(*value)));
    metadata.extend(own);
    let metadata: Vec<(&str, &Meta)> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut bytes = Cursor::new(Vec::new());
    gguf_file::write(&mut bytes, &metadata, &tensors).unwrap();
    let path = folder.join("model.gguf");
    std::fs::write(&path, bytes.into_inner()).unwrap();
    checkpoint::open(path).unwrap()
}

#[test]
fn a_gguf_file_computes_what_its_folder_does() {
    let logits = |checkpoint: &Checkpoint| crate::open(checkpoint, 8).unwrap().feed(&[3, 1, 6, 2]).unwrap();
    let mut before: Vec<Vec<f32>> = Vec::new();
    for class in CLASSES {
        let folder = tempfile::tempdir().unwrap();
        let from_folder = logits(&write_folder(folder.path(), &class));
        let from_gguf = logits(&write_gguf(folder.path(), &class));
        for (folder, gguf) in from_folder.iter().zip(&from_gguf) {
            assert!((folder - gguf).abs() < 1e-5, "{}: {from_folder:?} {from_gguf:?}", class.name);
        }
        assert!(from_folder.iter().any(|logit| logit.abs() > 0.1), "{}", class.name);
        assert!(!before.contains(&from_folder), "{} computes what another class does", class.name);
        before.push(from_folder);
    }
}

#[test]
fn settings_are_regular_files_of_a_sane_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let said = || super::read_json(&path).unwrap_err().to_string();
    std::fs::create_dir(&path).unwrap();
    assert!(said().contains("config.json: is a folder, expected a file"), "{}", said());
    std::fs::remove_dir(&path).unwrap();
    std::fs::File::create(&path).unwrap().set_len(files::SETTINGS + 1).unwrap();
    assert!(said().contains("bytes or more, at most"), "{}", said());
    #[cfg(unix)]
    {
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(said().contains("is not a regular file"), "{}", said());
    }
}
