//! Lowered models against a plain f32 reference, in every form.

mod host;
mod models;
mod reference;

use std::collections::BTreeSet;

use anemeter::lower::{Embeddings, KvForm, Options};
use anemeter::model::Decoder;

use host::{Host, Step};
use models::{TINY, llama};

const PROMPT: &[i32] = &[5, 9, 2, 30, 11];
const REST: &[i32] = &[7, 36, 1, 0];

fn options(forms: &[KvForm]) -> Options {
    Options {
        kv: forms.iter().copied().collect::<BTreeSet<_>>(),
        shapes: vec![8, 16, 12],
        contexts: vec![12, 16],
        query: 4,
        ..Options::default()
    }
}

/// Logits after the prompt and after each further token.
fn generate(host: &mut Host<'_>, form: KvForm, prompt: &[i32], rest: &[i32]) -> Vec<Vec<f32>> {
    let all = [prompt, rest].concat();
    let mut logits = Vec::new();
    let mut predict = |function: &str, range: std::ops::Range<usize>, width: usize, context: usize| {
        let ids = [&all[range.clone()]];
        let step = Step { function, ids: &ids, starts: &[range.start], width, context };
        host.predict(&step).remove(0)
    };
    match form {
        KvForm::Io => {
            logits.push(predict("prefill", 0..prompt.len(), 8, 8));
            logits.extend((prompt.len()..all.len()).map(|p| predict("decode", p..p + 1, 1, 12)));
        }
        KvForm::State => {
            let last = (0..prompt.len())
                .step_by(4)
                .map(|p| predict("prefill_c16_q4", p..prompt.len().min(p + 4), 4, 16))
                .last();
            logits.push(last.unwrap());
            logits.extend((prompt.len()..all.len()).map(|p| predict("decode_c16", p..p + 1, 1, 16)));
        }
        KvForm::None => {
            logits.extend((prompt.len()..=all.len()).map(|end| predict("main", 0..end, 12, 12)));
        }
    }
    logits
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
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
        let options = Options { embeddings, ..options(&[KvForm::Io, KvForm::State, KvForm::None]) };
        let mut host = Host::new(&decoder, &options);
        for form in [KvForm::Io, KvForm::State, KvForm::None] {
            let found = generate(&mut host, form, PROMPT, REST);
            assert_close(&found, &expected, &format!("{embeddings:?} {form:?}"));
        }
    }
}
