//! Lowered models against a plain f32 reference, in every form.

mod apple_llm;
mod features;
mod host;
pub(crate) mod models;
mod ranges;
pub(crate) mod reference;

use std::collections::BTreeSet;

use anemeter::lower::{Options, lower};
use anemeter::mil::op::Numerics;
use anemeter::mil::verify::verify;
use anemeter::mil::{Opset, Type};
use anemeter::model::{Activation, Decoder, Head, Linear, Mlp, NormKind, Position};
use anemeter::package::{self, WriteOptions};
use anemeter::vocabulary::{Embeddings, KvForm};

use features::{capped_scores, inner, multiplied, side_by_side, wide_norms, without_positions};
use host::{Host, Step};
use models::{Random, Sizes, TINY, llama, rope, stored};

const PROMPT: &[i32] = &[5, 9, 2, 30, 11];
const REST: &[i32] = &[7, 36, 1, 0];
pub(crate) const FORMS: [KvForm; 3] = [KvForm::Io, KvForm::State, KvForm::None];

fn options(forms: &[KvForm]) -> Options {
    Options {
        kv: forms.iter().copied().collect::<BTreeSet<_>>(),
        seq_lens: vec![8, 16, 12],
        contexts: vec![12, 16],
        query: 4,
        ..Options::default()
    }
}

/// A host of the lowered model.
fn host<'d>(decoder: &'d Decoder, options: &Options) -> Host<'d> {
    Host::new(decoder, options, Numerics::Fast, tempfile::tempdir().unwrap().path())
}

/// Logits after the prompt and after each further token.
fn generate(host: &mut Host<'_>, form: KvForm) -> Vec<Vec<f32>> {
    host.generate(form, &[PROMPT, REST].concat(), PROMPT.len())
}

pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    assert_eq!(a.len(), b.len());
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let cosine = cosine(found, expected);
        assert!(cosine >= 0.9999, "{what}: step {i} has cosine {cosine}\n{found:?}\n{expected:?}");
    }
}

/// What the reference says to the prompt and each further token.
fn expected(decoder: &Decoder) -> Vec<Vec<f32>> {
    reference::logits(decoder, &[PROMPT, REST].concat()).split_off(PROMPT.len() - 1)
}

#[test]
fn every_form_agrees_with_the_reference() {
    let decoder = llama(TINY, 1);
    let expected = expected(&decoder);
    for embeddings in [Embeddings::Host, Embeddings::Function, Embeddings::Graph] {
        let options = Options { embeddings, ..options(&FORMS) };
        let mut host = host(&decoder, &options);
        for form in FORMS {
            let found = generate(&mut host, form);
            assert_close(&found, &expected, &format!("{embeddings:?} {form:?}"));
        }
    }
}

#[test]
fn chunks_give_the_same_bits() {
    let decoder = llama(TINY, 2);
    let run = |chunks: usize, head_split: usize| {
        let options = Options { chunks, head_split, ..options(&FORMS) };
        let mut host = host(&decoder, &options);
        FORMS.map(|form| generate(&mut host, form))
    };
    let whole = run(1, 1);
    for (chunks, head_split) in [(2, 1), (3, 4)] {
        assert_eq!(run(chunks, head_split), whole, "{chunks} chunks, {head_split} heads");
    }
}

#[test]
fn padding_changes_nothing() {
    let decoder = llama(TINY, 3);
    let run = |padding: i32| {
        let mut host = host(&decoder, &options(&FORMS));
        host.padding = padding;
        FORMS.map(|form| generate(&mut host, form))
    };
    assert_eq!(run(0), run(36));
    let mut host = host(&decoder, &options(&[KvForm::Io]));
    let mut prefill = |width: usize| {
        let step = Step { function: "prefill", ids: &[PROMPT], starts: &[0], width, context: width };
        host.predict(&step).remove(0)
    };
    let (short, long) = (prefill(8), prefill(16));
    assert_close(&[long], &[short], "length 16 against 8");
}

#[test]
fn sequences_of_a_batch_have_positions_of_their_own() {
    let decoder = llama(TINY, 4);
    let options = Options { batch: 2, ..options(&[KvForm::Io, KvForm::State]) };
    let mut host = host(&decoder, &options);
    let (long, short) = (&[5, 9, 2, 30, 11, 4][..], &[8, 1, 3, 17][..]);
    let full = [reference::logits(&decoder, long), reference::logits(&decoder, short)];

    let found = host.predict(&Step {
        function: "prefill",
        ids: &[&long[..5], &short[..3]],
        starts: &[0, 0],
        width: 8,
        context: 8,
    });
    assert_close(&found, &[full[0][4].clone(), full[1][2].clone()], "prefill");
    let found = host.predict(&Step {
        function: "decode",
        ids: &[&long[5..], &short[3..]],
        starts: &[5, 3],
        width: 1,
        context: 8,
    });
    assert_close(&found, &[full[0][5].clone(), full[1][3].clone()], "decode");

    let found = host.predict(&Step {
        function: "prefill_c12_q4",
        ids: &[&long[..3], &short[..3]],
        starts: &[0, 0],
        width: 4,
        context: 12,
    });
    assert_close(&found, &[full[0][2].clone(), full[1][2].clone()], "prefill with state");
    let found = host.predict(&Step {
        function: "decode_c12",
        ids: &[&long[3..4], &short[3..]],
        starts: &[3, 3],
        width: 1,
        context: 12,
    });
    assert_close(&found, &[full[0][3].clone(), full[1][3].clone()], "decode with state");
}

/// Like GPT-2: layer norms, biases, learned positions, a plain MLP.
pub(crate) fn gpt2() -> Decoder {
    let mut decoder = llama(Sizes { kv_heads: 4, ..TINY }, 5);
    let mut random = Random { seed: 50_000 };
    decoder.position = Position::Learned(random.weight(&[64, TINY.hidden], 0.5));
    decoder.final_norm = random.norm(NormKind::Layer, TINY.hidden);
    for layer in &mut decoder.layers {
        layer.attention_norm = Some(random.norm(NormKind::Layer, TINY.hidden));
        layer.mlp_norm = Some(random.norm(NormKind::Layer, TINY.hidden));
        let attention = layer.mixer.attention_mut().unwrap();
        attention.rope = None;
        for linear in [&mut attention.query, &mut attention.key, &mut attention.value, &mut attention.output]
        {
            let size = linear.weight.shape[0];
            linear.bias = Some(random.weight(&[size], 0.3));
        }
        layer.mlp = Mlp::Plain {
            up: random.linear(TINY.wide, TINY.hidden, true),
            activation: Activation::GeluTanh,
            down: random.linear(TINY.hidden, TINY.wide, true),
        };
    }
    decoder
}

/// Like Gemma 3: scaled embeddings, norms everywhere, two kinds of layers, a tied and capped head.
pub(crate) fn gemma() -> Decoder {
    let mut decoder = llama(Sizes { kv_heads: 1, ..TINY }, 6);
    let mut random = Random { seed: 60_000 };
    decoder.embedding_scale = (TINY.hidden as f32).sqrt();
    decoder.head = Head { map: None, weight: decoder.embedding.clone(), tied: true, softcap: Some(5.0) };
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        layer.post_attention_norm = Some(random.norm(NormKind::Rms, TINY.hidden));
        layer.post_mlp_norm = Some(random.norm(NormKind::Rms, TINY.hidden));
        layer.mixer.attention_mut().unwrap().query_norm = Some(random.norm(NormKind::Rms, TINY.head_dim));
        layer.mixer.attention_mut().unwrap().key_norm = Some(random.norm(NormKind::Rms, TINY.head_dim));
        if i != 1 {
            layer.mixer.attention_mut().unwrap().window = Some(3);
            layer.mixer.attention_mut().unwrap().rope = Some(rope(100.0, TINY.head_dim));
        }
        if let Mlp::Gated { activation, .. } = &mut layer.mlp {
            *activation = Activation::GeluTanh;
        }
    }
    decoder
}

/// Partial rotation, every layer behind one window, exact GELU.
pub(crate) fn phi() -> Decoder {
    let mut decoder = llama(TINY, 7);
    let mut random = Random { seed: 70_000 };
    for layer in &mut decoder.layers {
        layer.mixer.attention_mut().unwrap().rope = Some(rope(10_000.0, 4));
        layer.mixer.attention_mut().unwrap().window = Some(4);
        layer.mlp = Mlp::Plain {
            up: random.linear(TINY.wide, TINY.hidden, true),
            activation: Activation::Gelu,
            down: random.linear(TINY.hidden, TINY.wide, false),
        };
    }
    decoder
}

#[test]
fn every_feature_agrees_with_the_reference() {
    let models = [
        ("gpt2", gpt2()),
        ("gemma", gemma()),
        ("phi", phi()),
        ("inner", inner()),
        ("without positions", without_positions()),
        ("capped scores", capped_scores()),
        ("wide norms", wide_norms()),
        ("side by side", side_by_side()),
        ("multiplied", multiplied()),
    ];
    for (name, decoder) in models {
        let expected = expected(&decoder);
        for embeddings in [Embeddings::Function, Embeddings::Graph] {
            let options = Options { embeddings, chunks: 2, ..options(&FORMS) };
            let mut host = host(&decoder, &options);
            for form in FORMS {
                let found = generate(&mut host, form);
                assert_close(&found, &expected, &format!("{name} {embeddings:?} {form:?}"));
            }
        }
    }
}

#[test]
fn kinds_of_layers_have_inputs_of_their_own() {
    let chunks = lower(&gemma(), &Options { chunks: 3, ..options(&[KvForm::Io]) }).unwrap();
    let inputs = |chunk: usize| -> Vec<String> {
        let interface = chunks[chunk].model.interface("decode").unwrap();
        interface.inputs.iter().map(|f| f.name.clone()).collect()
    };
    assert_eq!(inputs(0), ["hidden", "cos_local", "sin_local", "mask_local", "k_cache", "v_cache"]);
    assert_eq!(inputs(1), ["hidden", "cos", "sin", "mask", "k_cache", "v_cache"]);
    assert_eq!(chunks[2].positions.masks[0].window, Some(3));
    let windowed = lower(&phi(), &options(&[KvForm::None])).unwrap();
    assert_eq!(windowed[0].positions.masks[0].name, "mask");
    assert_eq!(windowed[0].model.default_function(), "main");
}

#[test]
fn large_activations_do_not_overflow_fp16() {
    let mut decoder = llama(TINY, 9);
    decoder.embedding_scale = 4000.0;
    let expected = expected(&decoder);
    let mut host = Host::new(
        &decoder,
        &options(&[KvForm::Io]),
        Numerics::Fp16Exact,
        tempfile::tempdir().unwrap().path(),
    );
    for (found, expected) in generate(&mut host, KvForm::Io).iter().zip(&expected) {
        let cosine = cosine(found, expected);
        assert!(cosine > 0.999, "{cosine}");
    }
}

#[test]
fn weights_are_written_once_for_all_functions() {
    let folder = tempfile::tempdir().unwrap();
    let mut decoder = llama(TINY, 10);
    decoder.head.tied = true;
    let blobs = |forms: &[KvForm], name: &str| {
        let chunk = lower(&decoder, &options(forms)).unwrap().remove(0);
        package::write(
            &verify(chunk.model.clone()).unwrap(),
            folder.path().join(name),
            WriteOptions::default(),
        )
        .unwrap()
        .blobs
    };
    // Nine weights per layer, the embedding that is the head too, and the final norm.
    assert_eq!(blobs(&[KvForm::None], "none.mlpackage"), 9 * 3 + 2);
    assert_eq!(blobs(&FORMS, "all.mlpackage"), 9 * 3 + 2);
}

#[test]
fn values_are_fp16_or_int32_and_of_rank_4_at_most() {
    for decoder in [gpt2(), gemma(), inner()] {
        for chunk in lower(&decoder, &options(&FORMS)).unwrap() {
            for function in &chunk.model.program.functions {
                for op in function.body.operations.iter().filter(|op| op.kind != "const") {
                    for value in op.outputs.iter().map(|&id| function.value(id)) {
                        let Type::Tensor(ty) = &value.ty else { panic!("{} is no tensor", value.name) };
                        assert!(ty.shape.len() <= 4, "{}", value.name);
                        assert!(["fp16", "int32"].contains(&ty.dtype.to_string().as_str()), "{}", value.name);
                    }
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_lowered_is_named() {
    let decoder = llama(TINY, 11);
    let error = |decoder: &Decoder, options: Options| lower(decoder, &options).unwrap_err().to_string();
    let io = || options(&[KvForm::Io]);
    for (options, message) in [
        (options(&[]), "option `kv`: names no form; io, state and none are possible"),
        (Options { seq_lens: vec![8, 8], ..io() }, "option `shapes`: has 8 twice"),
        (Options { seq_lens: vec![], ..io() }, "option `shapes`: has 0 lengths, should have 1 to 126"),
        (Options { batch: 5, ..io() }, "option `batch`: is 5, should be 1 to 4"),
        (Options { chunks: 4, ..io() }, "option `chunks`: is 4, should be 1 to 3, the number of layers"),
        (
            Options { query: 13, ..options(&[KvForm::State]) },
            "option `query`: is 13, should be 2 to 12, the shortest context",
        ),
        (
            Options { opset: Opset::Ios17, ..io() },
            "option `opset`: is ios17: functions and paired shapes need ios18 or later",
        ),
    ] {
        assert_eq!(error(&decoder, options), message);
    }
    let mut wrong = decoder.clone();
    wrong.layers[1].mixer.attention_mut().unwrap().key =
        Linear { weight: stored("k", &[3, 24], &[0.0; 72]), bias: None };
    assert_eq!(
        error(&wrong, io()),
        "lower `layers_1_attention_key_weight`: weight `k` is [3, 24], the model implies [16, 24]"
    );
    let mut wrong = decoder.clone();
    wrong.layers[2].mixer.attention_mut().unwrap().kv_heads = 3;
    assert_eq!(
        error(&wrong, io()),
        "lower `layers_2_attention`: 4 query heads of width 8 cannot share 3 KV heads"
    );
    let mut wrong = decoder.clone();
    wrong.layers[0].mixer.attention_mut().unwrap().scale = 1e9;
    assert_eq!(
        error(&wrong, io()),
        "lower `layers_0_attention_query_scaled`: fp16 has no number near the factor 1000000000"
    );
    let mut wrong = decoder.clone();
    wrong.final_norm.epsilon = f32::NAN;
    assert_eq!(error(&wrong, io()), "lower `final_norm`: epsilon is NaN, should be 0 to 1");
    let mut wrong = capped_scores();
    wrong.layers[1].mixer.attention_mut().unwrap().softcap = Some(0.0);
    assert_eq!(error(&wrong, io()), "lower `layers_1_attention`: scores cannot be capped at 0");
    let mut wrong = decoder.clone();
    wrong.layers[1].mixer.attention_mut().unwrap().shared_from = Some(1);
    assert_eq!(
        error(&wrong, io()),
        "lower `layers_1_attention`: cannot see keys and values of layer 1: it has none of its own in the same heads \
         before"
    );
    let mut wrong = gpt2();
    wrong.max_positions = 10;
    assert_eq!(error(&wrong, io()), "option `shapes`: has 16, the model learned 10 positions");
}

#[test]
fn weights_beyond_fp16_are_named_when_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for bad in [1e6, f32::NAN, f32::NEG_INFINITY] {
        let mut decoder = llama(TINY, 12);
        let mut values = vec![0.5; TINY.hidden];
        values[7] = bad;
        decoder.final_norm.weight = stored("norm.weight", &[TINY.hidden], &values);
        let chunk = lower(&decoder, &options(&[KvForm::None])).unwrap().remove(0);
        let path = folder.path().join("bad.mlpackage");
        let error = package::write(&verify(chunk.model.clone()).unwrap(), &path, WriteOptions::default())
            .unwrap_err()
            .to_string();
        let expected = format!("weight `norm.weight`: element 7 is {bad}, outside the range of fp16");
        assert!(error.contains(&expected), "{error}");
        assert!(!path.exists());
    }
}
