//! Tensor lists as transformers and sentence-transformers write them: what is wired where, and what is refused.

use serde_json::{Value, json};

use super::*;
use crate::checkpoint::{SentenceModule, SentenceModules};
use crate::model::encoder::{Attends, Gives, Pooling, Stage};
use crate::model::graph::{Activation, Mlp, NormKind};
use crate::model::testing::{checkpoint, stored};
use crate::model::weight::{Source as Stored, Weight};

const BERT: &str = "
    embeddings.word_embeddings.weight [11, 8]
    embeddings.position_embeddings.weight [16, 8]
    embeddings.token_type_embeddings.weight [2, 8]
    embeddings.LayerNorm.weight [8]
    embeddings.LayerNorm.bias [8]
    encoder.layer.0.attention.self.query.weight [8, 8]
    encoder.layer.0.attention.self.query.bias [8]
    encoder.layer.0.attention.self.key.weight [8, 8]
    encoder.layer.0.attention.self.key.bias [8]
    encoder.layer.0.attention.self.value.weight [8, 8]
    encoder.layer.0.attention.self.value.bias [8]
    encoder.layer.0.attention.output.dense.weight [8, 8]
    encoder.layer.0.attention.output.dense.bias [8]
    encoder.layer.0.attention.output.LayerNorm.weight [8]
    encoder.layer.0.attention.output.LayerNorm.bias [8]
    encoder.layer.0.intermediate.dense.weight [12, 8]
    encoder.layer.0.intermediate.dense.bias [12]
    encoder.layer.0.output.dense.weight [8, 12]
    encoder.layer.0.output.dense.bias [8]
    encoder.layer.0.output.LayerNorm.weight [8]
    encoder.layer.0.output.LayerNorm.bias [8]";

const POOLER: &str = "
    pooler.dense.weight [8, 8]
    pooler.dense.bias [8]";

const MODERNBERT: &str = "
    embeddings.tok_embeddings.weight [11, 8]
    embeddings.norm.weight [8]
    layers.0.attn.Wqkv.weight [24, 8]
    layers.0.attn.Wo.weight [8, 8]
    layers.0.mlp_norm.weight [8]
    layers.0.mlp.Wi.weight [24, 8]
    layers.0.mlp.Wo.weight [8, 12]
    layers.1.attn_norm.weight [8]
    layers.1.attn.Wqkv.weight [24, 8]
    layers.1.attn.Wo.weight [8, 8]
    layers.1.mlp_norm.weight [8]
    layers.1.mlp.Wi.weight [24, 8]
    layers.1.mlp.Wo.weight [8, 12]
    final_norm.weight [8]";

const GEMMA: &str = "
    embed_tokens.weight [11, 8]
    layers.0.self_attn.q_proj.weight [24, 8]
    layers.0.self_attn.k_proj.weight [12, 8]
    layers.0.self_attn.v_proj.weight [12, 8]
    layers.0.self_attn.o_proj.weight [8, 24]
    layers.0.self_attn.q_norm.weight [6]
    layers.0.self_attn.k_norm.weight [6]
    layers.0.mlp.gate_proj.weight [12, 8]
    layers.0.mlp.up_proj.weight [12, 8]
    layers.0.mlp.down_proj.weight [8, 12]
    layers.0.input_layernorm.weight [8]
    layers.0.post_attention_layernorm.weight [8]
    layers.0.pre_feedforward_layernorm.weight [8]
    layers.0.post_feedforward_layernorm.weight [8]
    norm.weight [8]";

fn config(class: &str, more: &str) -> String {
    format!(
        r#"{{"architectures": ["{class}"], "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
            "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 16 {more}}}"#
    )
}

fn module(class: &str, path: &str, config: &Value) -> SentenceModule {
    let config = Config::new(config.as_object().unwrap().clone());
    SentenceModule { class: class.to_owned(), path: path.to_owned(), config }
}

fn with(mut checkpoint: Checkpoint, modules: Vec<SentenceModule>) -> Checkpoint {
    for module in modules.iter().filter(|module| module.class == "Dense") {
        let size = |key: &str| module.config.size(key).unwrap();
        let shape = [size("out_features"), size("in_features")];
        checkpoint.tensors.insert(format!("{}.linear.weight", module.path), stored(&shape));
    }
    checkpoint.sentence = Some(SentenceModules { modules, ..SentenceModules::default() });
    checkpoint
}

fn encoder(checkpoint: &Checkpoint) -> Encoder {
    match build_any(checkpoint).unwrap_or_else(|error| panic!("{error}")) {
        ModelGraph::Encoder(encoder) => encoder,
        ModelGraph::Decoder(decoder) => panic!("{}", decoder.architecture),
    }
}

fn refused(checkpoint: &Checkpoint) -> String {
    build_any(checkpoint).unwrap_err().to_string()
}

fn first(weight: &Weight) -> f32 {
    let mut out = [0.0];
    weight.read(0..1, &mut out);
    out[0]
}

fn mean() -> SentenceModule {
    module(
        "Pooling",
        "1_Pooling",
        &json!({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}),
    )
}

#[test]
fn bert_with_mean_pooling() {
    let buffers = "\nembeddings.position_ids [1, 16]";
    let tensors = checkpoint(&config("BertModel", ""), &[BERT, POOLER, buffers].concat());
    let built = encoder(&with(tensors, vec![mean(), module("Normalize", "2_Normalize", &json!({}))]));
    assert_eq!((built.architecture, built.hidden, built.max_positions), ("bert", 8, 16));
    assert_eq!((built.attends, built.segment_kinds(), built.width()), (Attends::BothSides, 2, 8));
    let readout = built.readout.as_ref().unwrap();
    assert_eq!((readout.pooling, readout.gives), (Pooling::Mean, Gives::Embedding));
    assert!(matches!(readout.stages[..], [Stage::Normalize]));
    let layer = &built.layers[0];
    assert!(layer.attention.before.is_none() && layer.attention.after.is_none());
    let norm = layer.attention.of_sum.as_ref().unwrap();
    assert_eq!((norm.kind, norm.epsilon), (NormKind::Layer, 1e-12));
    assert_eq!(norm.weight.name, "encoder.layer.0.attention.output.LayerNorm.weight");
    let attention = &layer.attention.part;
    assert_eq!((attention.heads, attention.kv_heads, attention.head_dim, attention.window), (4, 4, 2, None));
    assert!(attention.rope.is_none());
    assert!(matches!(layer.mlp.part, Mlp::Plain { activation: Activation::Gelu, .. }));
    assert_eq!(built.weights().len(), 21);
}

#[test]
fn bert_without_modules_gives_hidden_states_whatever_head_it_was_trained_with() {
    let head = "\ncls.predictions.bias [11]\nbert.pooler.dense.weight [8, 8]\nbert.pooler.dense.bias [8]";
    let prefixed = BERT.replace("\n    ", "\n    bert.");
    let built = encoder(&checkpoint(&config("BertForMaskedLM", ""), &[&prefixed, head].concat()));
    assert!(built.readout.is_none());
    assert_eq!(built.embedding.name, "bert.embeddings.word_embeddings.weight");
}

#[test]
fn a_reranker_has_scores() {
    let prefixed = [BERT, POOLER].concat().replace("\n    ", "\n    bert.");
    let classifier = "\nclassifier.weight [1, 8]\nclassifier.bias [1]";
    let labels = r#", "id2label": {"0": "LABEL_0"}"#;
    let config = config("BertForSequenceClassification", labels);
    let built = encoder(&checkpoint(&config, &[&prefixed, classifier].concat()));
    let readout = built.readout.as_ref().unwrap();
    assert_eq!((readout.pooling, readout.gives, built.width()), (Pooling::First, Gives::Scores, 1));
    let Stage::Dense { linear, activation } = &readout.stages[0] else { panic!("a dense layer") };
    assert_eq!(
        (linear.weight.name.as_str(), *activation),
        ("bert.pooler.dense.weight", Some(Activation::Tanh))
    );
}

#[test]
fn positions_of_roberta_begin_after_padding() {
    let tensors = BERT.replace("token_type_embeddings.weight [2, 8]", "token_type_embeddings.weight [1, 8]");
    let more = r#", "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5"#;
    for class in ["RobertaModel", "XLMRobertaModel"] {
        let built = encoder(&checkpoint(&config(class, more), &tensors));
        assert_eq!((built.architecture, built.max_positions, built.segment_kinds()), ("roberta", 14, 1));
        let positions = built.positions.as_ref().unwrap();
        assert!(matches!(positions.source, Stored::Rows(_, 2)));
        assert_eq!((first(positions), &positions.shape[..]), (16.0, &[14, 8][..]));
    }
    let none = more.replace(r#""pad_token_id": 1"#, r#""pad_token_id": 15"#);
    let error = refused(&checkpoint(&config("RobertaModel", &none), &tensors));
    assert!(error.contains("`max_position_embeddings` is 16, so that no position is left"), "{error}");
    let prefixed = tensors.replace("\n    ", "\n    roberta.");
    let classifier = "\nclassifier.dense.weight [8, 8]\nclassifier.dense.bias [8]
        classifier.out_proj.weight [2, 8]\nclassifier.out_proj.bias [2]";
    let config = config("XLMRobertaForSequenceClassification", more);
    let built = encoder(&checkpoint(&config, &[&prefixed, classifier].concat()));
    assert_eq!((built.readout.as_ref().unwrap().stages.len(), built.width()), (2, 2));
}

#[test]
fn modernbert_in_both_spellings() {
    let two = |more: &str| {
        config("ModernBertModel", more).replace(r#""num_hidden_layers": 1"#, r#""num_hidden_layers": 2"#)
    };
    let older = two(r#", "global_attn_every_n_layers": 2, "local_attention": 6, "global_rope_theta": 500.0"#);
    let newer = two(
        r#", "layer_types": ["full_attention", "sliding_attention"], "local_attention": 6, "rope_parameters":
        {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}"#,
    );
    for config in [older, newer] {
        let built = encoder(&checkpoint(&config, MODERNBERT));
        let attentions: Vec<_> = built.layers.iter().map(|layer| &layer.attention.part).collect();
        assert_eq!((attentions[0].window, attentions[1].window), (None, Some(4)));
        let bases: Vec<f64> = attentions.iter().map(|a| a.rope.as_ref().unwrap().base).collect();
        assert_eq!(bases, [500.0, 10_000.0]);
        assert!(built.layers[0].attention.before.is_none() && built.layers[1].attention.before.is_some());
        assert_eq!(first(&attentions[0].key.weight), 64.0);
        let Mlp::Gated { gate, up, activation, .. } = &built.layers[0].mlp.part else {
            panic!("a gated MLP")
        };
        assert_eq!((first(&gate.weight), first(&up.weight), *activation), (0.0, 96.0, Activation::Gelu));
        assert!(built.final_norm.is_some() && built.final_norm.as_ref().unwrap().bias.is_none());
    }
}

#[test]
fn embedding_gemma_sees_both_sides_and_has_dense_layers() {
    let more = r#", "head_dim": 6, "num_key_value_heads": 2, "sliding_window": 6, "use_bidirectional_attention": true"#;
    let tensors = checkpoint(&config("Gemma3TextModel", more), GEMMA);
    let dense = |path: &str, sizes: [usize; 2]| {
        let config = json!({"in_features": sizes[0], "out_features": sizes[1], "bias": false,
            "activation_function": "torch.nn.modules.linear.Identity"});
        module("Dense", path, &config)
    };
    let modules = vec![mean(), dense("2_Dense", [8, 20]), dense("3_Dense", [20, 5])];
    let built = encoder(&with(tensors, modules));
    assert_eq!(
        (built.architecture, built.attends, built.width()),
        ("embedding-gemma", Attends::BothSides, 5)
    );
    assert_eq!(built.layers[0].attention.part.window, Some(4));
    assert_eq!(built.embedding_scale, 8f32.sqrt());
    let Stage::Dense { linear, activation } = &built.readout.as_ref().unwrap().stages[1] else { panic!() };
    assert_eq!((linear.weight.name.as_str(), *activation), ("3_Dense.linear.weight", None));
}

#[test]
fn any_decoder_with_modules_is_an_embedder() {
    let more =
        r#", "head_dim": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "tie_word_embeddings": false"#;
    let qwen3: String =
        GEMMA.lines().filter(|line| !line.contains("feedforward")).collect::<Vec<_>>().join("\n");
    let last = module("Pooling", "1_Pooling", &json!({"pooling_mode": "lasttoken"}));
    for head in ["", "\nlm_head.weight [11, 8]"] {
        let tensors = checkpoint(&config("Qwen3ForCausalLM", more), &[&qwen3, head].concat());
        assert!(matches!(build_any(&tensors), Ok(ModelGraph::Decoder(_))) != head.is_empty());
        let tensors = with(tensors, vec![last.clone(), module("Normalize", "2_Normalize", &json!({}))]);
        let built = encoder(&tensors);
        assert_eq!((built.architecture, built.attends), ("qwen3", Attends::Causally));
        assert_eq!(built.readout.unwrap().pooling, Pooling::Last);
        let error = build(&tensors).unwrap_err().to_string();
        assert_eq!(error, "tiny: is a qwen3 encoder, which generates no text");
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    let bert = || checkpoint(&config("BertModel", ""), BERT);
    let pooled = |config: &Value| refused(&with(bert(), vec![module("Pooling", "1_Pooling", config)]));
    let cases = [
        (pooled(&json!({"pooling_mode": "max"})), "`1_Pooling.pooling_mode` is max, which is not supported"),
        (pooled(&json!({"pooling_mode": ["cls", "mean"]})), "is cls and mean at once"),
        (
            pooled(&json!({"pooling_mode": "middle"})),
            "`1_Pooling.pooling_mode` is `middle`, which is not known",
        ),
        (pooled(&json!({"include_prompt": false})), "`1_Pooling.include_prompt` is false"),
        (pooled(&json!({"pooling_mode": 3})), "`1_Pooling.pooling_mode` is 3, expected a string"),
        (refused(&with(bert(), vec![mean(), module("LSTM", "2_LSTM", &json!({}))])), "has a module LSTM"),
        (refused(&with(bert(), Vec::new())), "lists a transformer only"),
        (
            refused(&checkpoint(
                &config("BertModel", r#", "position_embedding_type": "relative_key""#),
                BERT,
            )),
            "`position_embedding_type` is `relative_key`",
        ),
        (refused(&checkpoint(&config("BertModel", r#", "is_decoder": true"#), BERT)), "`is_decoder` is true"),
        (
            refused(&checkpoint(&config("BertForTokenClassification", ""), BERT)),
            "is not known: it is an encoder",
        ),
        (refused(&checkpoint(&config("MPNetModel", ""), BERT)), "architecture `MPNetModel` is not known"),
        (
            refused(&checkpoint(
                &config("BertModel", ""),
                &BERT.replace("intermediate.dense.bias [12]", "a.b [1]"),
            )),
            "`encoder.layer.0.intermediate.dense.bias` is missing",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let narrow = json!({"in_features": 9, "out_features": 4, "bias": false});
    let error = refused(&with(bert(), vec![mean(), module("Dense", "2_Dense", &narrow)]));
    assert!(error.contains("`2_Dense.in_features` is 9, but 8 numbers come in"), "{error}");
    let other =
        json!({"in_features": 8, "out_features": 4, "bias": false, "activation_function": "torch.nn.Mish"});
    let error = refused(&with(bert(), vec![mean(), module("Dense", "2_Dense", &other)]));
    assert!(error.contains("`2_Dense.activation_function` is `Mish`"), "{error}");
}
