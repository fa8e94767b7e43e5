//! `export --calibration`: what a text and a checkpoint may be like.

use std::fs;
use std::path::{Path, PathBuf};

use half::bf16;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use crate::support::checkpoints::write_text;
use crate::support::command::{Outcome, anemeter, arg};

const EMBEDDING: &str = "model.embed_tokens.weight";

fn trained() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/quickstart/model")
}

/// The trained checkpoint with a weight changed.
fn changed(folder: &Path, tensor: &str, change: impl Fn(&mut [bf16])) -> PathBuf {
    let found = std::cell::Cell::new(false);
    let path = changed_all(folder, |name, _, values| {
        if name == tensor {
            change(values);
            found.set(true);
        }
    });
    assert!(found.get(), "{tensor}");
    path
}

/// The trained checkpoint with all weights changed: their names, shapes and elements.
fn changed_all(folder: &Path, change: impl Fn(&str, &[usize], &mut [bf16])) -> PathBuf {
    let copy = folder.join("changed");
    fs::create_dir_all(&copy).unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(trained().join(file), copy.join(file)).unwrap();
    }
    let bytes = fs::read(trained().join("model.safetensors")).unwrap();
    let whole = SafeTensors::deserialize(&bytes).unwrap();
    let mut parts = Vec::new();
    for (name, view) in whole.tensors() {
        assert_eq!(view.dtype(), Dtype::BF16);
        let pairs = view.data().as_chunks().0.iter();
        let mut values: Vec<bf16> = pairs.map(|&bytes| bf16::from_le_bytes(bytes)).collect();
        change(&name, view.shape(), &mut values);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        parts.push((name, view.shape().to_vec(), bytes));
    }
    let views = parts.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &copy.join("model.safetensors")).unwrap();
    copy
}

fn export(checkpoint: &Path, folder: &Path, text: &str, more: &[&str]) -> Outcome {
    let (bundle, file) = (folder.join("bundle"), folder.join("text.txt"));
    write_text(&file, text);
    let start = ["export", arg(checkpoint), "-o", arg(&bundle), "--shapes", "128", "--overwrite"];
    anemeter(&[&start[..], &["--calibration", arg(&file)], more].concat())
}

#[test]
fn numbers_that_are_none_end_a_calibration_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = "The lamp was lit at dusk, and the road lay empty. ".repeat(40);
    let refused = |tensor: &str, value: f32, precision: &str| {
        let checkpoint = changed(folder.path(), tensor, |values| values.fill(bf16::from_f32(value)));
        let outcome = export(&checkpoint, folder.path(), &text, &["--precision", precision]);
        assert!(!folder.path().join("bundle").exists());
        outcome.complaint()
    };
    for value in [f32::NAN, f32::INFINITY] {
        let error = refused(EMBEDDING, value, "int4");
        assert!(error.contains(&format!("has an element that is {value} in the checkpoint")), "{error}");
        // What is not compressed itself is met by what is.
        let error = refused("model.layers.0.input_layernorm.weight", value, "int4");
        assert!(error.contains("the inputs of weight `layers_0_attention_query_weight`"), "{error}");
        assert!(error.contains("help: look for weights of the layers before it"), "{error}");
        let error = refused("model.layers.0.mlp.down_proj.weight", value, "lut4:group=16");
        let said = format!("weight `layers_0_mlp_down_weight` has an element that is {value}");
        assert!(error.contains(&said), "{error}");
    }
}

/// The perplexity of a text that a bundle gives.
fn perplexity(bundle: &Path, text: &Path) -> f64 {
    let outcome = anemeter(&["eval", arg(bundle), "--text", arg(text), "--json"]);
    let found: serde_json::Value = serde_json::from_str(outcome.good()).unwrap();
    found["quality"]["perplexity"]["perplexity"].as_f64().unwrap()
}

/// The beginning of the text that the model was trained on, in a file.
fn scored(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(trained().join("../merrow.txt")).unwrap();
    let path = folder.join("scored.txt");
    write_text(&path, &text.chars().take(1500).collect::<String>());
    path
}

#[test]
fn a_text_in_another_language_loses_little_more_than_none() {
    let folder = tempfile::tempdir().unwrap();
    let scored = scored(folder.path());
    let bundle = folder.path().join("bundle");
    let german = "Der Leuchtturm stand am Ende der Mole, und der Wärter zählte jede Nacht die Schiffe. Größe und Maß \
                  prüfte er zweimal; was nicht stimmte, schrieb er auf. ";
    let japanese = "灯台は岬の先に立っていた。夜ごとに光は十二秒で海を照らし、船長たちはその数を数えた。";
    for precision in ["int4", "lut4:group=16"] {
        let blind = anemeter(&[
            "export",
            arg(&trained()),
            "-o",
            arg(&bundle),
            "--shapes",
            "128",
            "--overwrite",
            "--precision",
            precision,
        ]);
        blind.good();
        let blind = perplexity(&bundle, &scored);
        for text in [german, japanese] {
            export(&trained(), folder.path(), &text.repeat(20), &["--precision", precision]).good();
            let found = perplexity(&bundle, &scored);
            assert!(found.is_finite() && found < 1.5 * blind, "{precision}: {found}, {blind} without data");
        }
    }
}

#[test]
fn dead_and_duplicated_channels_go_through_a_whole_export() {
    let folder = tempfile::tempdir().unwrap();
    let scored = scored(folder.path());
    let (dead, twin, of) = (3, 9, 8);
    let checkpoint = changed_all(folder.path(), |name, shape, values| {
        let columns = *shape.last().unwrap();
        // What the residual stream has of a channel: columns of the embedding, rows of what writes to it, norms.
        if name.contains("norm") {
            (values[dead], values[twin]) = (bf16::ZERO, values[of]);
        } else if name == EMBEDDING {
            values.chunks_mut(columns).for_each(|row| (row[dead], row[twin]) = (bf16::ZERO, row[of]));
        } else if name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") {
            values[dead * columns..(dead + 1) * columns].fill(bf16::ZERO);
            values.copy_within(of * columns..(of + 1) * columns, twin * columns);
        }
    });
    let text = fs::read_to_string(trained().join("../merrow.txt")).unwrap();
    let bundle = folder.path().join("bundle");
    let plain = ["export", arg(&checkpoint), "-o", arg(&bundle), "--shapes", "128"];
    anemeter(&plain).good();
    let reference = perplexity(&bundle, &scored);
    for more in [&[][..], &["--rotate", "on"]] {
        for precision in ["int4", "lut4:group=16"] {
            let how = [&["--precision", precision], more].concat();
            export(&checkpoint, folder.path(), &text, &how).good();
            let found = perplexity(&bundle, &scored);
            assert!(found.is_finite() && found < 1.3 * reference, "{how:?}: {found}, {reference} in fp16");
        }
    }
}
