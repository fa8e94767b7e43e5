//! The same tokens and logits whatever the form, the chunks and the way tokens become vectors.

use anemeter::generate::Driver;
use anemeter::generate::sample::likeliest;
use anemeter::lower::Options;
use anemeter::model::{Decoder, RopeScaling};
use anemeter::vocabulary::{Embeddings, KvForm};

use super::bundles::{driver, write};
use crate::lower::models::{TINY, llama};
use crate::lower::{FORMS, cosine, gemma, gpt2, phi, reference};

const PROMPT: &[u32] = &[5, 9, 2, 30, 11];

pub(super) fn options(batch: usize) -> Options {
    Options {
        kv: FORMS.into_iter().collect(),
        seq_lens: vec![12, 8, 16],
        contexts: vec![8, 16, 12],
        query: 4,
        batch,
        ..Options::default()
    }
}

/// Tokens and logits of a greedy run as far as it goes.
fn greedy(driver: &mut Driver, prompt: &[u32]) -> (Vec<u32>, Vec<Vec<f32>>) {
    let (mut ids, mut logits) = (Vec::new(), Vec::new());
    let batch = driver.batch();
    driver.prefill(&vec![prompt; batch], None).unwrap();
    loop {
        logits.push(driver.logits(0).to_vec());
        ids.push(likeliest(driver.logits(0)).unwrap());
        if driver.room() == 0 {
            return (ids, logits);
        }
        driver.step(&vec![ids[ids.len() - 1]; batch]).unwrap();
    }
}

/// Logits of the reference after the prompt and after each further token.
fn expected(decoder: &Decoder, prompt: &[u32], ids: &[u32]) -> Vec<Vec<f32>> {
    let all: Vec<i32> = [prompt, ids].concat().iter().map(|&id| id.cast_signed()).collect();
    let mut logits = reference::logits(decoder, &all[..all.len() - 1]);
    logits.split_off(prompt.len() - 1)
}

fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let cosine = cosine(found, expected);
        assert!(cosine > 0.9999, "{what}: step {step} has cosine {cosine}");
    }
}

#[test]
fn forms_chunks_and_embeddings_agree_across_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let (function, host, graph) =
        ((Embeddings::Function, 1, 1), (Embeddings::Host, 3, 1), (Embeddings::Graph, 3, 4));
    let models = [
        ("llama", llama(TINY, 21), vec![function, host, graph]),
        ("gpt2", gpt2(), vec![host, graph]),
        ("gemma", gemma(), vec![host]),
        ("phi", phi(), vec![graph]),
    ];
    for (name, decoder, variants) in models {
        let mut first: Option<(Vec<u32>, Vec<Vec<f32>>)> = None;
        for (embeddings, chunks, head_split) in variants {
            let options = Options { embeddings, chunks, head_split, ..options(1) };
            let place = folder.path().join(format!("{name}_{chunks}_{head_split}"));
            std::fs::create_dir(&place).unwrap();
            let bundle = write(&decoder, &options, None, &place);
            for form in FORMS {
                let what = format!("{name} {embeddings:?} {chunks} {form}");
                let mut driver = driver(&bundle, form);
                let (ids, logits) = greedy(&mut driver, PROMPT);
                assert_eq!((ids.len(), driver.length()), (16 - PROMPT.len() + 1, 16), "{what}");
                let (same_ids, close) = first.get_or_insert_with(|| {
                    let expected = expected(&decoder, PROMPT, &ids);
                    (ids.clone(), expected)
                });
                assert_eq!(&ids, same_ids, "{what}");
                assert_close(&logits, close, &what);
            }
        }
    }
}

#[test]
fn every_prompt_length_agrees_with_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let decoder = gemma();
    let bundle = write(&decoder, &options(1), None, folder.path());
    let all: Vec<u32> = (0..16).map(|i| (i * 7 + 3) % 37).collect();
    for form in FORMS {
        let mut driver = driver(&bundle, form);
        for count in [16, 13, 12, 9, 8, 5, 4, 1] {
            let (ids, logits) = greedy(&mut driver, &all[..count]);
            let expected = expected(&decoder, &all[..count], &ids);
            assert_close(&logits, &expected, &format!("{form}, {count} tokens"));
        }
    }
}

#[test]
fn a_run_does_not_depend_on_those_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = write(&llama(TINY, 22), &options(1), None, folder.path());
    for form in FORMS {
        let fresh = greedy(&mut driver(&bundle, form), PROMPT);
        let mut used = driver(&bundle, form);
        greedy(&mut used, &[1; 16]);
        greedy(&mut used, &[36, 0, 7]);
        assert_eq!(greedy(&mut used, PROMPT), fresh, "{form}");
    }
}

#[test]
fn lengths_can_be_chosen_and_change_little() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = write(&llama(TINY, 23), &options(1), None, folder.path());
    for form in FORMS {
        let mut driver = driver(&bundle, form);
        let mut at = |length: usize| {
            driver.prefill(&[PROMPT], Some(length)).unwrap();
            assert_eq!(driver.length(), length);
            driver.step(&[4]).unwrap();
            assert_eq!(driver.length(), length);
            driver.logits(0).to_vec()
        };
        let lengths = [8, 12, 16].map(&mut at);
        assert_close(&lengths, &vec![lengths[0].clone(); 3], &form.to_string());
    }
}

#[test]
fn a_prompt_after_a_context_gives_the_logits_of_both_together() {
    let folder = tempfile::tempdir().unwrap();
    let pairs = TINY.head_dim / 2;
    let long = RopeScaling::Long {
        short: vec![1.0; pairs],
        long: (0..pairs).map(|i| 2.0 + i as f64).collect(),
        original_positions: 10,
        magnitude: 1.2,
    };
    let all: Vec<u32> = (0..14).map(|i| (i * 5 + 1) % 37).collect();
    for (name, decoder) in [("plain", llama(TINY, 27)), ("long", rotated(&long))] {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        let bundle = write(&decoder, &options(1), None, &place);
        for form in FORMS {
            let mut driver = driver(&bundle, form);
            assert_eq!(driver.adds_prompts(), form == KvForm::State, "{form}");
            driver.prefill(&[&all], Some(16)).unwrap();
            let together = driver.logits(0).to_vec();
            driver.step(&[3]).unwrap();
            let next = driver.logits(0).to_vec();
            for context in [1, 4, 6, 12, 13] {
                driver.prefill(&[&all[..context]], Some(16)).unwrap();
                driver.append(&[&all[context..]]).unwrap();
                let mut found = vec![driver.logits(0).to_vec()];
                driver.step(&[3]).unwrap();
                found.push(driver.logits(0).to_vec());
                let expected = [together.clone(), next.clone()];
                assert_close(&found, &expected, &format!("{name} {form}, a context of {context}"));
            }
            let error = driver.append(&[&all]).unwrap_err().to_string();
            assert_eq!(error, "length 16 is too short for 29 tokens");
        }
    }
}

#[test]
fn given_tokens_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let decoder = llama(TINY, 24);
    let bundle = write(&decoder, &options(1), None, folder.path());
    let all: Vec<u32> = (0..14).map(|i| (i * 5 + 1) % 37).collect();
    let signed: Vec<i32> = all.iter().map(|&id| id.cast_signed()).collect();
    let reference = reference::logits(&decoder, &signed);
    for form in FORMS {
        let mut driver = driver(&bundle, form);
        for prompt in [1, 6, 14] {
            let mut found = Vec::new();
            let mut each = |position: usize, logits: &[f32]| {
                assert_eq!(position, prompt - 1 + found.len());
                found.push(logits.to_vec());
                Ok(())
            };
            driver.teacher_force(&all, prompt, None, &mut each).unwrap();
            assert_close(&found, &reference[prompt - 1..], &format!("{form} from {prompt}"));
        }
        assert!(driver.teacher_force(&all, 15, None, &mut |_, _| Ok(())).is_err());
        assert!(driver.teacher_force(&all, 0, None, &mut |_, _| Ok(())).is_err());
    }
}

#[test]
fn sequences_of_a_batch_do_not_touch_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let decoder = gemma();
    let bundle = write(&decoder, &options(3), None, folder.path());
    let prompts: [&[u32]; 3] = [&[5, 9, 2, 30, 11, 4, 8], &[8, 1, 3], &[17]];
    let more: Vec<[u32; 3]> = (0..6u32).map(|i| [i, 36 - i, 2 * i + 1]).collect();
    for form in FORMS {
        let mut driver = driver(&bundle, form);
        let prompts = if form == KvForm::State { [prompts[0]; 3] } else { prompts };
        let run = |logits: &mut Vec<Vec<Vec<f32>>>, driver: &Driver| {
            logits.push((0..3).map(|b| driver.logits(b).to_vec()).collect());
        };
        let mut found = Vec::new();
        driver.prefill(&prompts, None).unwrap();
        run(&mut found, &driver);
        for ids in &more {
            driver.step(ids).unwrap();
            run(&mut found, &driver);
        }
        for b in 0..3 {
            let rest: Vec<u32> = more.iter().map(|ids| ids[b]).chain([0]).collect();
            let expected = expected(&decoder, prompts[b], &rest);
            let found: Vec<Vec<f32>> = found.iter().map(|step| step[b].clone()).collect();
            assert_close(&found, &expected, &format!("{form}, sequence {b}"));
        }
    }
    let error = driver(&bundle, KvForm::State).prefill(&prompts, None).unwrap_err();
    assert_eq!(error.to_string(), "prompts of [7, 3, 1] tokens cannot share a state");
}

/// A decoder whose layers rotate by a scaling.
fn rotated(scaling: &RopeScaling) -> Decoder {
    let mut decoder = llama(TINY, 26);
    for rope in decoder.layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut()?.rope.as_mut()) {
        rope.scaling = scaling.clone();
    }
    decoder
}

#[test]
fn a_sequence_that_outgrows_its_rotation_is_rotated_anew() {
    let folder = tempfile::tempdir().unwrap();
    let pairs = TINY.head_dim / 2;
    let (short, long) = (vec![1.0; pairs], (0..pairs).map(|i| 2.0 + i as f64).collect::<Vec<_>>());
    let magnitude = 1.2;
    let fixed = |factors: &[f64]| RopeScaling::Factors { factors: factors.to_vec(), magnitude };
    let both =
        RopeScaling::Long { short: short.clone(), long: long.clone(), original_positions: 10, magnitude };
    let bundle = |name: &str, scaling: &RopeScaling| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        write(&rotated(scaling), &options(1), None, &place)
    };
    let bundles = [bundle("short", &fixed(&short)), bundle("long", &fixed(&long)), bundle("both", &both)];
    let ids: Vec<u32> = (0..16).map(|i| (i * 7 + 3) % 37).collect();
    for form in FORMS {
        let [mut short, mut long, mut both] = bundles.each_ref().map(|bundle| driver(bundle, form));
        for prompt in [5, 10, 11, 13, 5] {
            let forced = |driver: &mut Driver| {
                let mut logits = Vec::new();
                let mut keep = |_: usize, found: &[f32]| {
                    logits.push(found.to_vec());
                    Ok(())
                };
                driver.teacher_force(&ids, prompt, None, &mut keep).unwrap();
                logits
            };
            let (short, long) = (forced(&mut short), forced(&mut long));
            let up_to_original = 11usize.saturating_sub(prompt);
            let expected = [&short[..up_to_original], &long[up_to_original..]].concat();
            assert_close(&forced(&mut both), &expected, &format!("{form}, a prompt of {prompt}"));
            assert!(cosine(&short[short.len() - 1], &long[long.len() - 1]) < 0.999, "the factors matter");
        }
    }
}

#[test]
fn steps_allocate_nothing_once_a_length_is_known() {
    let folder = tempfile::tempdir().unwrap();
    for embeddings in [Embeddings::Function, Embeddings::Host, Embeddings::Graph] {
        let place = folder.path().join(format!("{embeddings:?}"));
        std::fs::create_dir(&place).unwrap();
        let options = Options { embeddings, chunks: 3, head_split: 2, ..options(1) };
        let bundle = write(&llama(TINY, 25), &options, None, &place);
        for form in FORMS {
            let mut driver = driver(&bundle, form);
            driver.prefill(&[PROMPT], Some(16)).unwrap();
            driver.step(&[1]).unwrap();
            let counted = allocation_counter::measure(|| {
                for id in 0..8 {
                    driver.step(&[id]).unwrap();
                }
            });
            assert_eq!(counted.count_total, 0, "{embeddings:?} {form}");
        }
    }
}
