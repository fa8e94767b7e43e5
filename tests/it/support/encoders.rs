//! Tiny random checkpoints of every encoder, as transformers and sentence-transformers name and lay out their files.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::atomic;
use half::f16;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use super::architectures::{self, Tiny};

pub(crate) const LAYERS: usize = 3;
const VOCABULARY: usize = 37;
const HIDDEN: usize = 24;
const WIDE: usize = 40;
const HEADS: usize = 4;

/// A checkpoint of an encoder before it is written.
#[derive(Clone)]
pub(crate) struct TinyEncoder {
    pub(crate) tiny: Tiny,
    /// Files of sentence-transformers, by name.
    pub(crate) files: Vec<(&'static str, Value)>,
    /// Dense layers: folder, outputs and inputs, and whether they have a bias.
    pub(crate) dense: Vec<(&'static str, [usize; 2], bool)>,
}

impl TinyEncoder {
    fn of(tiny: Tiny) -> TinyEncoder {
        TinyEncoder { tiny, files: Vec::new(), dense: Vec::new() }
    }

    /// With the modules of sentence-transformers: a pooling, dense layers with their activations, normalisation.
    fn pooled(mut self, pooling: &Value, dense: &[(usize, bool, &str)], normalize: bool) -> TinyEncoder {
        const FOLDERS: [(&str, &str); 2] =
            [("2_Dense", "2_Dense/config.json"), ("3_Dense", "3_Dense/config.json")];
        let module = |path: &str, class: &str| json!({"path": path, "type": format!("sentence_transformers.models.{class}")});
        let mut modules = vec![module("", "Transformer"), module("1_Pooling", "Pooling")];
        self.files.push(("1_Pooling/config.json", pooling.clone()));
        let mut width = HIDDEN;
        for (&(out, bias, activation), (folder, config)) in dense.iter().zip(FOLDERS) {
            modules.push(module(folder, "Dense"));
            let function = format!("torch.nn.modules.{activation}");
            self.files.push((
                config,
                json!({"in_features": width, "out_features": out, "bias": bias, "activation_function": function}),
            ));
            self.dense.push((folder, [out, width], bias));
            width = out;
        }
        if normalize {
            modules.push(module("9_Normalize", "Normalize"));
        }
        self.files.push(("modules.json", Value::Array(modules)));
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.tiny.name
    }

    /// Writes the folder of the checkpoint.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = self.tiny.write(folder);
        for (name, content) in &self.files {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            atomic::write_file(&file, content.to_string().as_bytes()).unwrap();
        }
        for (seed, &(folder, shape, bias)) in self.dense.iter().enumerate() {
            let values = |count: usize, scale: f32, seed: u32| -> Vec<f16> {
                let numbers = super::numbers::numbers(count, seed).into_iter();
                numbers.map(|v| f16::from_f32(scale * v.to_f32())).collect()
            };
            let seed = 100 + u32::try_from(seed).unwrap();
            let weight = values(shape[0] * shape[1], 1.5 / (shape[1] as f32).sqrt(), seed);
            let shift = values(shape[0], 0.3, seed + 50);
            let mut views = vec![("linear.weight", view(&shape, &weight))];
            if bias {
                views.push(("linear.bias", view(&shape[..1], &shift)));
            }
            safetensors::serialize_to_file(views, None, &path.join(folder).join("model.safetensors"))
                .unwrap();
        }
        path
    }
}

fn view<'a>(shape: &[usize], values: &'a [f16]) -> TensorView<'a> {
    TensorView::new(Dtype::F16, shape.to_vec(), bytemuck::cast_slice(values)).unwrap()
}

/// BERT's trunk under a prefix.
fn bert_like(name: &'static str, class: &str, prefix: &str, config: &Value) -> Tiny {
    let common = json!({
        "architectures": [class], "hidden_size": HIDDEN, "intermediate_size": WIDE, "vocab_size": VOCABULARY,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": 64,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    });
    let mut tiny = Tiny::new(name, common, config);
    let size = |key: &str| usize::try_from(tiny.config[key].as_u64().unwrap()).unwrap();
    let (positions, kinds) = (size("max_position_embeddings"), size("type_vocab_size"));
    for (part, rows) in [("word", VOCABULARY), ("position", positions), ("token_type", kinds)] {
        let name = format!("{prefix}embeddings.{part}_embeddings.weight");
        tiny.tensor(&name, &[rows, HIDDEN], (0.0, 0.7));
    }
    let norm = |tiny: &mut Tiny, name: &str| {
        tiny.norm(&format!("{prefix}{name}.LayerNorm"), HIDDEN, 1.0);
        tiny.bias(&format!("{prefix}{name}.LayerNorm"), HIDDEN);
    };
    norm(&mut tiny, "embeddings");
    for i in 0..LAYERS {
        let at = format!("encoder.layer.{i}");
        let maps = [
            ("attention.self.query", HIDDEN, HIDDEN),
            ("attention.self.key", HIDDEN, HIDDEN),
            ("attention.self.value", HIDDEN, HIDDEN),
            ("attention.output.dense", HIDDEN, HIDDEN),
            ("intermediate.dense", WIDE, HIDDEN),
            ("output.dense", HIDDEN, WIDE),
        ];
        for (part, out, input) in maps {
            tiny.matrix(&format!("{prefix}{at}.{part}"), out, input);
            tiny.bias(&format!("{prefix}{at}.{part}"), out);
        }
        norm(&mut tiny, &format!("{at}.attention.output"));
        norm(&mut tiny, &format!("{at}.output"));
    }
    tiny
}

fn dense(tiny: &mut Tiny, name: &str, out: usize, input: usize) {
    tiny.matrix(name, out, input);
    tiny.bias(name, out);
}

pub(crate) fn bert(name: &'static str, config: &Value) -> TinyEncoder {
    let mut tiny = bert_like(name, "BertModel", "", config);
    dense(&mut tiny, "pooler.dense", HIDDEN, HIDDEN);
    TinyEncoder::of(tiny)
}

fn bert_reranker(name: &'static str) -> TinyEncoder {
    let labels = json!({"id2label": {"0": "LABEL_0"}});
    let mut tiny = bert_like(name, "BertForSequenceClassification", "bert.", &labels);
    dense(&mut tiny, "bert.pooler.dense", HIDDEN, HIDDEN);
    dense(&mut tiny, "classifier", 1, HIDDEN);
    TinyEncoder::of(tiny)
}

pub(crate) fn roberta(name: &'static str, class: &str, config: &Value) -> TinyEncoder {
    let mut common = json!({"type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5});
    for (key, value) in config.as_object().unwrap() {
        common[key] = value.clone();
    }
    let classifies = class.ends_with("ForSequenceClassification");
    let mut tiny = bert_like(name, class, if classifies { "roberta." } else { "" }, &common);
    if classifies {
        dense(&mut tiny, "classifier.dense", HIDDEN, HIDDEN);
        dense(&mut tiny, "classifier.out_proj", 3, HIDDEN);
    }
    TinyEncoder::of(tiny)
}

pub(crate) fn modernbert(name: &'static str, class: &str, config: &Value) -> TinyEncoder {
    let common = json!({
        "architectures": [class], "model_type": "modernbert", "hidden_size": HIDDEN, "intermediate_size": WIDE,
        "vocab_size": VOCABULARY, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "max_position_embeddings": 64, "local_attention": 6, "global_attn_every_n_layers": 2,
    });
    let mut tiny = Tiny::new(name, common, config);
    let classifies = class.ends_with("ForSequenceClassification");
    let prefix = if classifies { "model." } else { "" };
    let flags = ["norm_bias", "attention_bias", "mlp_bias", "classifier_bias"];
    let [norm_bias, attention_bias, mlp_bias, classifier_bias] = flags.map(|key| tiny.flag(key));
    let norm = |tiny: &mut Tiny, name: &str| {
        tiny.norm(name, HIDDEN, 1.0);
        if norm_bias {
            tiny.bias(name, HIDDEN);
        }
    };
    let map = |tiny: &mut Tiny, name: &str, [out, input]: [usize; 2], bias: bool| {
        tiny.matrix(name, out, input);
        if bias {
            tiny.bias(name, out);
        }
    };
    tiny.tensor(&format!("{prefix}embeddings.tok_embeddings.weight"), &[VOCABULARY, HIDDEN], (0.0, 1.0));
    norm(&mut tiny, &format!("{prefix}embeddings.norm"));
    norm(&mut tiny, &format!("{prefix}final_norm"));
    for i in 0..LAYERS {
        let at = format!("{prefix}layers.{i}");
        map(&mut tiny, &format!("{at}.attn.Wqkv"), [3 * HIDDEN, HIDDEN], attention_bias);
        map(&mut tiny, &format!("{at}.attn.Wo"), [HIDDEN, HIDDEN], attention_bias);
        map(&mut tiny, &format!("{at}.mlp.Wi"), [2 * WIDE, HIDDEN], mlp_bias);
        map(&mut tiny, &format!("{at}.mlp.Wo"), [HIDDEN, WIDE], mlp_bias);
        norm(&mut tiny, &format!("{at}.mlp_norm"));
        if i > 0 {
            norm(&mut tiny, &format!("{at}.attn_norm"));
        }
    }
    if classifies {
        map(&mut tiny, "head.dense", [HIDDEN, HIDDEN], classifier_bias);
        norm(&mut tiny, "head.norm");
        map(&mut tiny, "classifier", [2, HIDDEN], true);
    }
    TinyEncoder::of(tiny)
}

pub(crate) fn embedding_gemma(name: &'static str, config: &Value) -> TinyEncoder {
    let mut tiny = architectures::gemma3(name, config);
    tiny.config["architectures"] = json!(["Gemma3TextModel"]);
    tiny.config["use_bidirectional_attention"] = json!(true);
    TinyEncoder::of(bare(tiny))
}

pub(crate) fn qwen3_embedding(name: &'static str, config: &Value) -> TinyEncoder {
    TinyEncoder::of(bare(architectures::qwen3(name, config)))
}

/// Without the prefix of a model that has a head.
fn bare(mut tiny: Tiny) -> Tiny {
    let bare = |name: String| name.strip_prefix("model.").map(str::to_owned).unwrap_or(name);
    tiny.tensors = tiny.tensors.into_iter().map(|(name, tensor)| (bare(name), tensor)).collect();
    tiny
}

/// Every encoder and every feature that changes what is computed.
pub(crate) fn all() -> Vec<TinyEncoder> {
    let mean = json!({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true});
    let mode = |word: &str| json!({"embedding_dimension": HIDDEN, "pooling_mode": word});
    let gemma =
        json!({"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6, "sliding_window_pattern": 2});
    let tied = json!({"head_dim": 8, "tie_word_embeddings": true});
    let biased = json!({"norm_bias": true, "attention_bias": true, "mlp_bias": true, "layer_types":
        ["sliding_attention", "full_attention", "sliding_attention"]});
    vec![
        bert("bert", &json!({})),
        bert("minilm", &json!({})).pooled(&mean, &[], true),
        bert("bge", &json!({"hidden_act": "relu"})).pooled(&mode("cls"), &[], true),
        bert("bert-dense", &json!({})).pooled(
            &mode("mean_sqrt_len_tokens"),
            &[(17, true, "activation.Tanh")],
            false,
        ),
        bert("bert-weighted", &json!({})).pooled(&mode("weightedmean"), &[], false),
        bert_reranker("bert-reranker"),
        roberta("roberta", "RobertaModel", &json!({})),
        roberta("xlmr-e5", "XLMRobertaModel", &json!({"pad_token_id": 3})).pooled(&mean, &[], true),
        roberta(
            "xlmr-reranker",
            "XLMRobertaForSequenceClassification",
            &json!({"id2label": {"0": "a", "1": "b", "2": "c"}}),
        ),
        modernbert("modernbert", "ModernBertModel", &json!({})),
        modernbert("modernbert-biased", "ModernBertModel", &biased).pooled(&mode("cls"), &[], true),
        modernbert(
            "modernbert-reranker",
            "ModernBertForSequenceClassification",
            &json!({"classifier_pooling": "mean", "num_labels": 2}),
        ),
        embedding_gemma("embedding-gemma", &gemma).pooled(
            &mean,
            &[(56, false, "linear.Identity"), (16, false, "linear.Identity")],
            true,
        ),
        embedding_gemma("gemma-hidden", &gemma),
        qwen3_embedding("qwen3-embedding", &tied).pooled(&mode("lasttoken"), &[], true),
    ]
}
