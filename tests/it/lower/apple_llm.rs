//! The functions for Apple's programs, on the CPU runtime: the logits of every architecture are those of its function for
//! whole sequences.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anemeter::coreai::convert::{Conversion, from_mil, from_mil_as};
use anemeter::lower::{AppleLlm, lower_apple_llm};
use anemeter::mil::Model;
use anemeter::mil::verify::verify;
use anemeter::model::{Decoder, QueryGrowth};
use anemeter::package::{self, Package, WriteOptions};
use anemeter::runtime::{self, LoadOptions, LoadedModel, Runtime, Session};
use anemeter::tensor::{AlignedBuf, Tensor, TensorView};
use half::f16;

use super::features::{capped_scores, inner, multiplied, side_by_side, wide_norms, without_positions};
use super::models::{Sizes, TINY, llama, stored};
use super::{assert_close, gemma, gpt2, phi, reference};
use crate::support::for_packages::for_a_package;

const TOKENS: usize = 11;
const CONTEXT: usize = 32;
const QUERY: usize = 8;

fn load(model: Model, path: &Path) -> Arc<dyn LoadedModel> {
    package::write(&verify(model).unwrap(), path, WriteOptions::default()).unwrap();
    runtime::cpu().load(&Package::open(path).unwrap(), &LoadOptions::default()).unwrap()
}

fn floats(view: TensorView<'_>) -> Vec<f32> {
    let mut values = vec![0.0; view.len()];
    anemeter::kernels::convert::to_f32(&view, 0..view.len(), &mut values);
    values
}

fn predict(session: &mut dyn Session, function: &str, inputs: &[(&str, Tensor)], output: &str) -> Tensor {
    let views: Vec<(&str, TensorView<'_>)> = inputs.iter().map(|(name, x)| (*name, x.view())).collect();
    session.predict(function, &views).unwrap();
    let found = session.output(output).unwrap();
    let bytes = AlignedBuf::from_slice(found.bytes());
    Tensor::new(found.dtype(), found.shape().iter().copied().collect(), bytes.into()).unwrap()
}

/// Logits by the static functions, a call after the other.
fn by_static(decoder: &Decoder, ids: &[i32], folder: &Path) -> Vec<Vec<f32>> {
    let form = AppleLlm::Static { contexts: vec![16, CONTEXT], queries: vec![4, QUERY] };
    let lowered = lower_apple_llm(decoder, &form, &Arc::default()).unwrap();
    from_mil(&verify(lowered.model).unwrap()).unwrap();
    // States of a package have one shape, those of an asset one for each context.
    let form = AppleLlm::Static { contexts: vec![CONTEXT], queries: vec![4, QUERY] };
    let lowered = lower_apple_llm(decoder, &form, &Arc::default()).unwrap();
    let loaded = load(for_a_package(lowered.model), &folder.join("static.mlpackage"));
    let mut session = loaded.session();
    let table = predict(&mut *session, "load_embeddings", &[], "embedding_table");
    let mut logits = Vec::new();
    for start in (0..ids.len()).step_by(QUERY) {
        let count = QUERY.min(ids.len() - start);
        let given: Vec<i32> = (0..QUERY).map(|at| if at < count { ids[start + at] } else { 0 }).collect();
        let given = Tensor::from_slice(&[1, QUERY], &given).unwrap();
        let inputs = [("in_new_token_ids", given), ("embedding_table", table.clone())];
        let vectors = predict(&mut *session, "gather_embeddings_8", &inputs, "gathered_embeddings");
        let positions: Vec<i32> = (0..QUERY).map(|at| (start + at) as i32).collect();
        let mask: Vec<f16> = (0..CONTEXT)
            .flat_map(|key| (0..QUERY).map(move |at| key <= start + at))
            .map(|is_seen| f16::from_f32(if is_seen { 0.0 } else { -4e4 }))
            .collect();
        let inputs = [
            ("transformer_input", vectors),
            ("position_ids", Tensor::from_slice(&[1, QUERY], &positions).unwrap()),
            ("in_step", Tensor::from_slice(&[1], &[start as i32]).unwrap()),
            ("causal_mask", Tensor::from_slice(&[1, CONTEXT, 1, QUERY], &mask).unwrap()),
            ("embedding_table", table.clone()),
        ];
        // What fills the caches leaves in them what gives the logits.
        let filled = predict(&mut *session, "prompt_opt_32_8", &inputs, "out_logits");
        assert!(filled.shape().is_empty());
        let found = predict(&mut *session, "extend_32_8", &inputs, "out_logits");
        logits.extend(floats(found.view()).chunks(decoder.vocabulary).take(count).map(<[f32]>::to_vec));
    }
    logits
}

/// Logits by the function of open sizes: six tokens, then five more.
fn by_dynamic(decoder: &Decoder, ids: &[i32], folder: &Path) -> Vec<Vec<f32>> {
    let lowered = lower_apple_llm(decoder, &AppleLlm::Dynamic { context: CONTEXT }, &Arc::default()).unwrap();
    let conversion = Conversion { open: BTreeSet::from(["main".to_owned()]), constraints: BTreeMap::new() };
    let program = from_mil_as(&verify(lowered.model.clone()).unwrap(), &conversion).unwrap();
    anemeter::coreai::verify(&program).unwrap();
    assert_eq!(program.graphs.len(), 1);
    let loaded = load(lowered.model, &folder.join("dynamic.mlpackage"));
    let mut session = loaded.session();
    let mut logits = Vec::new();
    for range in [0..6, 6..TOKENS] {
        let positions: Vec<i32> = (0..range.end as i32).collect();
        let inputs = [
            ("input_ids", Tensor::from_slice(&[1, range.len()], &ids[range.clone()]).unwrap()),
            ("position_ids", Tensor::from_slice(&[1, range.end], &positions).unwrap()),
        ];
        let found = predict(&mut *session, "main", &inputs, "logits");
        assert_eq!(found.shape()[..], [1, range.len(), decoder.vocabulary]);
        logits.extend(floats(found.view()).chunks(decoder.vocabulary).map(<[f32]>::to_vec));
    }
    logits
}

#[test]
fn every_feature_agrees_with_the_reference_in_both_forms() {
    let ids = [5, 9, 2, 30, 11, 7, 36, 1, 0, 17, 22];
    let models = [
        ("llama", llama(TINY, 21)),
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
        let folder = tempfile::tempdir().unwrap();
        let expected = reference::logits(&decoder, &ids);
        assert_close(&by_dynamic(&decoder, &ids, folder.path()), &expected, &format!("{name}, dynamic"));
        // The table of embeddings is int8, which is the one thing that differs: the reference gets it as well.
        let rounded = with_int8_embeddings(&decoder);
        let expected = reference::logits(&rounded, &ids);
        assert_close(&by_static(&decoder, &ids, folder.path()), &expected, &format!("{name}, static"));
    }
}

/// The decoder whose embeddings are what int8 with one scale holds of them.
fn with_int8_embeddings(decoder: &Decoder) -> Decoder {
    let weight = &decoder.embedding;
    let mut values = vec![0.0; weight.shape.iter().product()];
    weight.read(0..values.len(), &mut values);
    let largest = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let scale = f16::from_f32(largest / 127.0).to_f32();
    values.iter_mut().for_each(|x| *x = (*x / scale).round().clamp(-127.0, 127.0) * scale);
    let rounded = stored("embedding_int8", &weight.shape, &values);
    let mut decoder = decoder.clone();
    if decoder.head.tied {
        decoder.head.weight = rounded.clone();
    }
    decoder.embedding = rounded;
    decoder
}

#[test]
fn what_is_no_number_is_no_code_of_the_table() {
    let mut decoder = llama(TINY, 24);
    let shape = decoder.embedding.shape.clone();
    let mut values = vec![0.5; shape.iter().product()];
    values[7] = f32::NAN;
    decoder.embedding = stored("embedding_nan", &shape, &values);
    let form = AppleLlm::Static { contexts: vec![CONTEXT], queries: vec![QUERY] };
    let lowered = lower_apple_llm(&decoder, &form, &Arc::default()).unwrap();
    let model = verify(for_a_package(lowered.model)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = package::write(&model, folder.path().join("nan.mlpackage"), WriteOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("element 7 of a weight is infinite or no number"), "{error}");
}

#[test]
fn what_apples_programs_cannot_take_is_refused_by_the_option() {
    let decoder = llama(TINY, 22);
    let refused = |form: AppleLlm| lower_apple_llm(&decoder, &form, &Arc::default()).unwrap_err().to_string();
    let fixed = |contexts: &[usize], queries: &[usize]| AppleLlm::Static {
        contexts: contexts.to_vec(),
        queries: queries.to_vec(),
    };
    assert!(refused(fixed(&[], &[8])).contains("option `contexts`: has 0 lengths"));
    assert!(refused(fixed(&[16], &[32])).contains("option `query`: has [32], should be 2 to 16"));
    assert!(refused(AppleLlm::Dynamic { context: 1 }).contains("option `contexts`: has 1"));
    let mut unequal = decoder.clone();
    unequal.layers[1] = llama(Sizes { kv_heads: 4, ..TINY }, 23).layers.remove(0);
    let error = lower_apple_llm(&unequal, &fixed(&[16], &[8]), &Arc::default()).unwrap_err().to_string();
    assert!(error.contains("one state cannot hold both"), "{error}");
    let mut grown = decoder.clone();
    grown.layers[1].mixer.attention_mut().unwrap().growth = Some(QueryGrowth { beta: 0.5, length: 16 });
    lower_apple_llm(&grown, &fixed(&[16], &[8]), &Arc::default()).unwrap();
    let error = lower_apple_llm(&grown, &fixed(&[16, 24], &[8]), &Arc::default()).unwrap_err().to_string();
    assert!(error.contains("queries that grow within the longest context"), "{error}");
}
