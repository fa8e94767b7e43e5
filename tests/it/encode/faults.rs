//! Seeded faults of encoders: each is found, and the layer that it is in is named.

use half::f16;
use serde_json::json;

use super::{export, verify_json};
use crate::support::encoders::{self, TinyEncoder};

/// An encoder and what spoils it.
struct Fault {
    name: &'static str,
    sound: &'static str,
    spoil: fn(&mut TinyEncoder),
    /// The first point that drifts; none if the fault is after the last layer.
    expected: Option<&'static str>,
}

fn values<'a>(encoder: &'a mut TinyEncoder, tensor: &str) -> &'a mut Vec<f16> {
    &mut encoder.tiny.tensors.get_mut(tensor).unwrap_or_else(|| panic!("{tensor}")).1
}

fn turn(encoder: &mut TinyEncoder, tensor: &str, by: usize) {
    values(encoder, tensor).rotate_left(by);
}

fn set_file(encoder: &mut TinyEncoder, file: &str, value: serde_json::Value) {
    encoder.files.iter_mut().find(|(name, _)| *name == file).unwrap().1 = value;
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "positions off by one",
        sound: "minilm",
        spoil: |encoder| turn(encoder, "embeddings.position_embeddings.weight", 24),
        expected: Some("embedding"),
    },
    Fault {
        name: "positions that begin elsewhere",
        sound: "xlmr-e5",
        spoil: |encoder| encoder.tiny.config["pad_token_id"] = json!(1),
        expected: Some("embedding"),
    },
    Fault {
        name: "kinds of segments swapped",
        sound: "minilm",
        spoil: |encoder| turn(encoder, "embeddings.token_type_embeddings.weight", 24),
        expected: Some("embedding"),
    },
    Fault {
        name: "a norm of a sum after attention",
        sound: "minilm",
        spoil: |encoder| turn(encoder, "encoder.layer.1.attention.output.LayerNorm.weight", 12),
        expected: Some("layer 1 attention"),
    },
    Fault {
        name: "a norm of a sum after the MLP",
        sound: "minilm",
        spoil: |encoder| turn(encoder, "encoder.layer.1.output.LayerNorm.bias", 12),
        expected: Some("layer 1"),
    },
    Fault {
        name: "heads of queries swapped",
        sound: "minilm",
        spoil: |encoder| turn(encoder, "encoder.layer.2.attention.self.query.weight", 12 * 24),
        expected: Some("layer 2 attention"),
    },
    Fault {
        name: "another activation",
        sound: "bge",
        spoil: |encoder| encoder.tiny.config["hidden_act"] = json!("gelu"),
        expected: Some("layer 0"),
    },
    Fault {
        name: "gate and value of GeGLU swapped",
        sound: "modernbert",
        spoil: |encoder| turn(encoder, "layers.1.mlp.Wi.weight", 40 * 24),
        expected: Some("layer 1"),
    },
    Fault {
        name: "a window that is one wider",
        sound: "modernbert",
        spoil: |encoder| encoder.tiny.config["local_attention"] = json!(8),
        expected: Some("layer 1 attention"),
    },
    Fault {
        name: "windows in other layers",
        sound: "modernbert",
        spoil: |encoder| encoder.tiny.config["global_attn_every_n_layers"] = json!(3),
        expected: Some("layer 2 attention"),
    },
    Fault {
        name: "the base of local layers",
        sound: "modernbert",
        spoil: |encoder| encoder.tiny.config["local_rope_theta"] = json!(100.0),
        expected: Some("layer 1 attention"),
    },
    Fault {
        name: "a window of both sides",
        sound: "embedding-gemma",
        spoil: |encoder| encoder.tiny.config["sliding_window"] = json!(8),
        expected: Some("layer 0 attention"),
    },
    Fault {
        name: "another pooling",
        sound: "qwen3-embedding",
        spoil: |encoder| set_file(encoder, "1_Pooling/config.json", json!({"pooling_mode": "mean"})),
        expected: None,
    },
    Fault {
        name: "the first token for the mean",
        sound: "minilm",
        spoil: |encoder| set_file(encoder, "1_Pooling/config.json", json!({"pooling_mode": "cls"})),
        expected: None,
    },
    Fault {
        name: "the activation of a dense layer",
        sound: "bert-dense",
        spoil: |encoder| {
            let config = json!({"in_features": 24, "out_features": 17, "bias": true,
                "activation_function": "torch.nn.modules.activation.ReLU"});
            set_file(encoder, "2_Dense/config.json", config);
        },
        expected: None,
    },
    Fault {
        name: "the classifier of a reranker",
        sound: "bert-reranker",
        spoil: |encoder| turn(encoder, "classifier.weight", 12),
        expected: None,
    },
];

#[test]
fn every_fault_is_found_and_its_layer_named() {
    let folder = tempfile::tempdir().unwrap();
    let all = encoders::all();
    for (number, fault) in FAULTS.iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        let sound = all.iter().find(|encoder| encoder.name() == fault.sound).unwrap();
        let bundle = export(&sound.write(&folder), &folder, &[]);
        let mut spoiled = sound.clone();
        spoiled.tiny.name = "spoiled";
        (fault.spoil)(&mut spoiled);
        let (code, report) = verify_json(&bundle, &spoiled.write(&folder), &["--shapes", "24"]);
        assert_eq!((code, &report["passed"]), (1, &json!(false)), "{}: {report:#}", fault.name);
        assert_eq!(report["layers"][0]["first_drift"].as_str(), fault.expected, "{}", fault.name);
    }
}
