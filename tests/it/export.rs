//! `anemeter export`: whole bundles or none, and one clear message when something is wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anemeter::atomic::write_file;
use anemeter::bundle::{Bundle, Exported, Manifest, digest_text};
use anemeter::checkpoint;
use anemeter::export::describe_architecture;
use anemeter::model;
use anemeter::package::Package;
use anemeter::vocabulary::KvForm;
use serde_json::{Value, json};

use crate::support::architectures;
use crate::support::checkpoints::{self, tensors, write_text};
use crate::support::command::{anemeter, arg, names, program, run};
use crate::support::gguf;
use crate::support::scene::Scene;

#[test]
fn a_bundle_says_what_is_in_its_packages() {
    let scene = Scene::new();
    let outcome = scene.export(
        "out",
        &["--shapes", "16,32", "--kv", "io,state,none", "--chunks", "2", "--query", "4", "--json"],
    );
    let printed: Manifest = Manifest::parse(outcome.good()).unwrap();
    let bundle = Bundle::open(scene.path("out")).unwrap();
    assert_eq!(&printed, bundle.manifest());
    let Exported { settings, architecture, .. } = printed.exported().unwrap();
    assert_eq!(settings.kv, [KvForm::Io, KvForm::State, KvForm::None]);
    assert_eq!((architecture.layers, architecture.kv_bytes_per_token), (2, 2 * 2 * 2 * 16));
    assert_eq!(printed.chunks.len(), 2);
    for (index, chunk) in printed.chunks.iter().enumerate() {
        assert_eq!((chunk.first_layer, chunk.layers), (index, 1));
        let package = Package::open(bundle.path(&chunk.file.name)).unwrap();
        assert_eq!(digest_text(package.digest().unwrap()), chunk.file.digest);
        let names: Vec<&str> = package.model().interfaces().iter().map(|i| i.function.as_str()).collect();
        let described: Vec<&str> = chunk.functions.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(described, names);
        let decode = chunk.functions.iter().find(|function| function.name == "decode").unwrap();
        let cache = decode.inputs.iter().find(|port| port.name == "k_cache").unwrap();
        assert_eq!(
            (cache.dtype.as_str(), &cache.shapes),
            ("fp16", &vec![vec![1, 16, 1, 16], vec![1, 16, 1, 32]])
        );
    }
    let phases: Vec<&str> = printed.profile.iter().map(|phase| phase.name.as_str()).collect();
    for phase in ["open", "map", "read", "convert", "write", "fsync"] {
        assert!(phases.contains(&phase), "{phases:?}");
    }
}

#[test]
fn the_same_checkpoint_gives_the_same_bytes() {
    let scene = Scene::new();
    let manifests = ["a", "b"].map(|output| {
        let outcome = scene.export(output, &["--shapes", "16", "--json"]);
        let mut manifest: Value = serde_json::from_str(outcome.good()).unwrap();
        manifest.as_object_mut().unwrap().remove("profile");
        manifest
    });
    assert_eq!(manifests[0], manifests[1]);
    for file in
        ["Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"]
    {
        let read = |output: &str| fs::read(scene.path(output).join("model.mlpackage").join(file)).unwrap();
        assert!(read("a") == read("b"), "{file}");
    }
}

#[test]
fn a_model_in_the_hub_cache_is_exported_by_its_name() {
    let scene = Scene::new();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let repository = scene.path("hub/models--org--tiny");
    let snapshot = repository.join("snapshots").join(commit);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(repository.join("blobs")).unwrap();
    fs::create_dir_all(repository.join("refs")).unwrap();
    write_text(&repository.join("refs/main"), commit);
    for (index, name) in names(&scene.path("tiny")).iter().enumerate() {
        let blob = format!("{index:040x}");
        fs::copy(scene.path("tiny").join(name), repository.join("blobs").join(&blob)).unwrap();
        std::os::unix::fs::symlink(format!("../../blobs/{blob}"), snapshot.join(name)).unwrap();
    }
    let export = |model: &str| {
        let output = scene.path("out");
        run(program()
            .args(["export", model, "-o", arg(&output), "--shapes", "16"])
            .env("HF_HUB_CACHE", scene.path("hub")))
    };
    export("org/tiny@main").good();
    assert_eq!(Bundle::open(scene.path("out")).unwrap().manifest().name, "tiny");
    let missing = export("org/other");
    assert_eq!(missing.code, 2);
    assert!(
        missing.stderr.contains("org/other is no path here, and not in the Hugging Face cache"),
        "{}",
        missing.stderr
    );
    assert!(
        missing.stderr.contains("help: download it into the cache: `hf download org/other`"),
        "{}",
        missing.stderr
    );
}

#[test]
fn shards_give_what_one_file_gives() {
    let scene = Scene::new();
    // The same name: a package says what it was made from.
    let sharded = scene.path("sharded/tiny");
    checkpoints::write_sharded(&sharded, &tensors(7));
    scene.export("one", &["--shapes", "16"]).good();
    let output = scene.path("two");
    anemeter(&["export", arg(&sharded), "-o", arg(&output), "--shapes", "16"]).good();
    let digest =
        |name: &str| Bundle::open(scene.path(name)).unwrap().manifest().chunks[0].file.digest.clone();
    assert_eq!(digest("one"), digest("two"));
}

#[test]
fn configuration_files_are_strict_and_flags_win() {
    let scene = Scene::new();
    let config = scene.path("convert.yaml");
    write_text(&config, "coreml:\n  enumerate_shapes: [16]\n  batch: 2\n");
    let config_args = ["--config", arg(&config)];
    scene.export("a", &[&config_args[..], &["--batch", "1"]].concat()).good();
    let settings = Bundle::open(scene.path("a")).unwrap().exported().unwrap().settings.clone();
    assert_eq!((settings.seq_lens, settings.batch), (vec![16], 1));

    write_text(&config, "coreml:\n  enumerate_shape: [16]\n");
    let message = scene.export("b", &config_args).complaint();
    assert!(message.contains("convert.yaml: coreml: unknown key `enumerate_shape`"), "{message}");
    assert!(message.ends_with("help: did you mean `enumerate_shapes`?"), "{message}");
    write_text(&config, "coreml:\n  mlprogram: false\n");
    let message = scene.export("b", &config_args).complaint();
    assert!(message.contains("option `mlprogram`: is false"), "{message}");
}

#[test]
fn weights_are_compressed_by_rule_and_the_log_says_how() {
    let scene = Scene::new();
    let config = scene.path("convert.yaml");
    let rules = |pattern: &str| {
        format!(
            "coreml:\n  precision:\n    default: fp16\n    rules: [{{match: {pattern}, precision: int8}}]\n"
        )
    };
    write_text(&config, &rules("layers.*.mlp.*weight"));
    let args = ["--config", arg(&config), "--shapes", "16", "--chunks", "2"];
    let outcome = scene.export("a", &args);
    assert!(outcome.good().contains("6 weights compressed"), "{}", outcome.stdout);
    let bundle = Bundle::open(scene.path("a")).unwrap();
    let log = bundle.manifest().compression.as_ref().unwrap();
    let compressed: Vec<_> = log.tensors.iter().filter(|tensor| tensor.precision == "int8:channel").collect();
    assert_eq!((compressed.len(), log.totals.compressed), (6, 6));
    assert!(compressed.iter().all(|tensor| tensor.snr_db.unwrap() > 35.0 && tensor.cosine > 0.999));
    assert_eq!(bundle.manifest().precision(), "fp16; layers.*.mlp.*weight: int8:channel");

    write_text(&config, &rules("layer.*.mlp.*"));
    let message = scene.export("b", &args).complaint();
    assert!(message.contains("the precision rule `layer.*.mlp.*` matches no weight"), "{message}");
    assert!(!scene.path("b").exists());
    let message = scene.export("b", &["--precision", "int9"]).complaint();
    assert!(message.contains("int8"), "{message}");
}

#[test]
fn a_precision_says_what_it_lets_one_expect_and_the_word_alone_is_a_form_of_use() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let (checkpoint, text) = (trained(), folder.path().join("text.txt"));
    write_text(&text, "The lamp was lit at dusk, and the road lay empty. ".repeat(40).as_str());
    let export = |precision: &str, more: &[&str]| {
        let args = ["--shapes", "128", "--overwrite", "--precision", precision];
        let start = ["export", arg(&checkpoint), "-o", arg(&bundle)];
        anemeter(&[&start[..], &args[..], more].concat()).good().to_owned()
    };
    let forms = || {
        let manifest = Bundle::open(&bundle).unwrap().manifest().clone();
        let log = manifest.compression.unwrap();
        let mut forms: Vec<String> = log.tensors.iter().map(|tensor| tensor.precision.clone()).collect();
        forms.sort();
        forms.dedup();
        forms
    };
    for (precision, form, said) in [
        ("int8", "int8:channel", " dB of signal to noise on average: little loss is expected\n"),
        ("lut6", "lut6:group=16", "little loss is expected\n"),
        (
            "int4",
            "int4:block=32",
            "perplexity; int8, lut6 and --calibration TEXT lose less, and `anemeter eval",
        ),
        ("lut4:group=16", "lut4:group=16", "warning: 21."),
        ("lut4:tensor", "lut4:tensor", "warning: 21."),
        (
            "lut3:group=16",
            "lut3:group=16",
            "use --precision int4, lut6 or int8, or --calibration TEXT, and `anemeter eval",
        ),
    ] {
        let shown = export(precision, &[]);
        assert!(shown.contains(said), "{precision}: {shown}");
        assert!(forms().iter().any(|found| found == form), "{precision}: {:?}", forms());
    }
    for precision in ["lut1", "lut2", "lut3", "lut4"] {
        let args = ["export", arg(&checkpoint), "-o", arg(&bundle), "--overwrite", "--precision", precision];
        let error = anemeter(&args).refused().to_owned();
        let said = format!("option `precision`: `{precision}` without data makes models of little use");
        assert!(error.contains(&said) && error.contains(": --calibration TEXT"), "{error}");
        assert!(error.contains(&format!("write `{precision}:group=16` to have it without data")), "{error}");
    }
    let calibrated = export("lut4", &["--calibration", arg(&text)]);
    assert!(!calibrated.contains("signal to noise on average"), "{calibrated}");
    let log = Bundle::open(&bundle).unwrap().manifest().compression.clone().unwrap();
    let mut grouped = log.tensors.iter().filter(|tensor| tensor.precision == "lut4:group=16").peekable();
    assert!(grouped.peek().is_some() && grouped.all(|tensor| tensor.weighted), "{log:?}");
}

#[test]
fn an_export_of_a_gguf_file_says_what_keeps_its_integers() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, bundle) = (folder.path().join("tiny.gguf"), folder.path().join("bundle"));
    gguf::write(&checkpoint, &tensors(7));
    let export = |more: &[&str]| {
        let start = ["export", arg(&checkpoint), "-o", arg(&bundle), "--shapes", "16", "--overwrite"];
        anemeter(&[&start[..], more].concat()).good().to_owned()
    };
    let note = "note: weights were decoded; --precision stored keeps the integers of a GGUF file\n";
    assert!(export(&[]).contains(note) && export(&["--precision", "int4"]).contains(note));
    let stored = export(&["--precision", "stored"]);
    assert!(!stored.contains(note), "{stored}");
}

#[test]
fn shipped_configurations_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config: anemeter::export::ConfigFile =
        anemeter::config::load(&root.join("configs/convert_coreml.yaml")).unwrap();
    let lengths = anemeter::export::read_training_lengths(&root.join("configs/student_9b_gqa.yaml")).unwrap();
    assert_eq!(config.coreml.enumerate_shapes, Some(lengths));
}

#[test]
fn every_number_of_a_checkpoint_is_a_parameter() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in architectures::all() {
        // The share of a gate and the factor on a layer are settings that are stored as tensors.
        let is_setting = |name: &str| name.contains(".act.alpha_") || name.ends_with(".layer_scalar");
        let numbers = tiny.tensors.iter().filter(|(name, _)| !is_setting(name));
        let stored: usize = numbers.map(|(_, (_, values))| values.len()).sum();
        let checkpoint = checkpoint::open(tiny.write(folder.path())).unwrap();
        let found = describe_architecture(&model::build(&checkpoint).unwrap()).parameters;
        assert_eq!(found, stored as u64, "{}", tiny.name);
    }
}

#[test]
fn what_of_a_checkpoint_is_not_exported_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let seeing = architectures::llama("seeing", &json!({"vision_config": {"hidden_size": 8}}));
    let checkpoint = seeing.write(folder.path());
    let output = folder.path().join("new/bundle");
    let outcome = anemeter(&["export", arg(&checkpoint), "-o", arg(&output), "--shapes", "16"]);
    for words in [
        "warning: only the text model is exported: the part for images (`vision_config`) is not in the bundle",
        "warning: the checkpoint has no tokenizer, so the bundle takes token ids only",
    ] {
        assert!(outcome.good().contains(words), "{}", outcome.stdout);
    }
}

#[test]
fn an_unknown_architecture_is_told_what_it_is_and_what_else_can_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let bert = architectures::llama("bert", &json!({"architectures": ["MPNetModel"], "model_type": "mpnet"}));
    let checkpoint = bert.write(folder.path());
    let output = folder.path().join("bundle");
    let message = anemeter(&["export", arg(&checkpoint), "-o", arg(&output)]).complaint();
    assert!(message.contains("`MPNetModel` / `mpnet` is not known: it is an encoder"), "{message}");
    assert!(message.contains("help: convert it with coremltools"), "{message}");
}

#[test]
fn a_mixture_of_experts_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        json!({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 128});
    let checkpoint = architectures::llama("experts", &config).write(folder.path());
    let output = folder.path().join("bundle");
    let message = anemeter(&["export", arg(&checkpoint), "-o", arg(&output)]).complaint();
    assert!(message.contains("gathers of weights leave the Neural Engine"), "{message}");
    assert!(message.contains("help: export a dense model of the family (qwen3)"), "{message}");
    assert!(!output.exists());
}

#[test]
fn gemma_3n_is_refused_by_name_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n",
        "vision_config": {"hidden_size": 8}});
    let checkpoint = architectures::llama("gemma3n", &config).write(folder.path());
    let output = folder.path().join("bundle");
    let message = anemeter(&["export", arg(&checkpoint), "-o", arg(&output)]).complaint();
    assert!(message.contains("`Gemma3nForConditionalGeneration` / `gemma3n` is not exported"), "{message}");
    assert!(message.contains("AltUp") && message.contains("help: export Gemma 4 E2B or E4B"), "{message}");
    assert!(!output.exists());
}

#[test]
fn only_trained_lengths_are_exported() {
    let scene = Scene::new();
    let training = scene.path("train.yaml");
    write_text(&training, "train:\n  seq_lengths: [16, 32]\n  lr: 1e-4\n");
    let args = ["--training-config", arg(&training), "--shapes"];
    let message = scene.export("a", &[&args[..], &["16,48"]].concat()).complaint();
    assert!(
        message.contains("sequence length 48 was not trained: the training configuration has [16, 32]"),
        "{message}"
    );
    let outcome = scene.export("a", &[&args[..], &["16"]].concat());
    assert!(outcome.good().contains("warning: trained lengths [32] are not exported"), "{}", outcome.stdout);
    let settings = Bundle::open(scene.path("a")).unwrap().exported().unwrap().settings.clone();
    assert_eq!(settings.training_seq_lens, Some(vec![16, 32]));
}

#[test]
fn lengths_beyond_the_model_are_left_out_or_pointed_out() {
    let scene = Scene::new();
    let message = scene.export("a", &[]).complaint();
    assert!(message.contains("none of the default sequence lengths fits the 64 positions"), "{message}");
    let outcome = scene.export("a", &["--shapes", "16,128"]);
    assert!(
        outcome.good().contains("sequence length 128 is longer than the 64 positions"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn nothing_but_a_bundle_is_replaced_and_only_on_request() {
    let scene = Scene::new();
    scene.export("out", &["--shapes", "16"]).good();
    let message = scene.export("out", &["--shapes", "16"]).complaint();
    assert!(message.contains("out: holds a bundle already"), "{message}");
    scene.export("out", &["--shapes", "32", "--overwrite"]).good();
    assert_eq!(Bundle::open(scene.path("out")).unwrap().exported().unwrap().settings.seq_lens, [32]);
    fs::create_dir(scene.path("mine")).unwrap();
    write_text(&scene.path("mine/thesis.txt"), "");
    let message = scene.export("mine", &["--shapes", "16", "--overwrite"]).complaint();
    assert!(message.contains("mine: holds something else"), "{message}");
    assert_eq!(names(scene.folder()), ["mine", "out", "tiny"]);
}

#[test]
fn tensors_with_anything_but_numbers_are_named() {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (1e6, "1000000")] {
        let scene = Scene::new();
        let mut bad = tensors(7);
        let tensor = bad.iter_mut().find(|(name, ..)| name.ends_with("1.mlp.up_proj.weight")).unwrap();
        tensor.2[33] = value;
        checkpoints::write(&scene.path("tiny"), &bad);
        let message = scene.export("out", &["--shapes", "16"]).complaint();
        let expected = format!("weight `model.layers.1.mlp.up_proj.weight`: element 33 is {shown}, outside");
        assert!(message.contains(&expected), "{message}");
        assert_eq!(names(scene.folder()), ["tiny"]);
    }
}

#[test]
fn an_unreadable_shard_is_named_and_nothing_is_left() {
    let scene = Scene::new();
    let shards = scene.path("shards");
    checkpoints::write_sharded(&shards, &tensors(7));
    let second = shards.join("model-00002-of-00002.safetensors");
    let export = || {
        let output = scene.path("out");
        anemeter(&["export", arg(&shards), "-o", arg(&output), "--shapes", "16"]).complaint()
    };
    let whole = fs::read(&second).unwrap();
    write_file(&second, &whole[..whole.len() / 2]).unwrap();
    assert!(export().contains("model-00002-of-00002.safetensors"), "{}", export());
    fs::remove_file(&second).unwrap();
    assert!(export().contains("names the shard `model-00002-of-00002.safetensors`, which does not exist"));
    fs::create_dir(&second).unwrap();
    assert!(export().contains("is not a regular file"), "{}", export());
    assert_eq!(names(scene.folder()), ["shards", "tiny"]);
}

/// A file that may not grow stands for a disk that is full. Unless it is ignored, a signal comes with it, which ends a
/// program that does not handle it.
#[test]
fn a_full_disk_is_reported_and_nothing_is_left() {
    for trap in ["trap '' XFSZ; ", ""] {
        let scene = Scene::new();
        let script = format!("{trap}ulimit -f 24; exec \"$0\" export \"$1\" -o \"$2\" --shapes 16");
        let (checkpoint, output) = (scene.path("tiny"), scene.path("out"));
        let shell = ["-c", &script, env!("CARGO_BIN_EXE_anemeter")];
        let outcome = run(Command::new("sh").args(shell).args([&checkpoint, &output]));
        let message = outcome.complaint();
        assert!(message.contains("File too large"), "{message}");
        assert_eq!(names(scene.folder()), ["tiny"]);
    }
}

#[test]
fn killed_exports_leave_a_whole_bundle_or_none() {
    let scene = Scene::new();
    let (checkpoint, output) = (scene.path("tiny"), scene.path("out"));
    let mut whole = 0;
    for round in 0..30u64 {
        let mut child = program()
            .args(["export", arg(&checkpoint), "-o", arg(&output), "--shapes", "16,32", "--overwrite"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(round * 7919 % 60));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(whole == 0 || output.is_dir(), "a bundle that was there is gone");
        if output.symlink_metadata().is_ok() {
            let bundle = Bundle::open(&output).unwrap();
            let chunk = &bundle.manifest().chunks[0];
            let package = Package::open(bundle.path(&chunk.file.name)).unwrap();
            assert_eq!(digest_text(package.digest().unwrap()), chunk.file.digest);
            whole += 1;
        }
    }
    scene.export("out", &["--shapes", "16", "--overwrite"]).good();
    assert_eq!(names(scene.folder()), ["out", "tiny"], "after {whole} rounds with a bundle");
}

/// The checkpoint of `anemeter quickstart`.
fn trained() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/quickstart/model")
}

#[test]
fn bits_are_chosen_layer_by_layer_under_a_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, bundle) = (trained(), folder.path().join("bundle"));
    let export = |bits: &str| {
        let auto = ["--shapes", "128", "--precision", "auto", "--target-bits", bits, "--json"];
        anemeter(&[&["export", arg(&checkpoint), "-o", arg(&bundle)], &auto[..]].concat())
    };
    let outcome = export("1.5");
    assert_eq!(outcome.code, 2);
    assert!(outcome.stderr.contains("1.5 bits per element cannot be reached"), "{}", outcome.stderr);
    let misplaced = anemeter(&["export", arg(&checkpoint), "-o", arg(&bundle), "--target-bits", "4.5"]);
    let refused = misplaced.refused();
    assert!(refused.contains("option `target-bits`: is for `--precision auto` only"), "{refused}");
    let outcome = export("4.5");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let manifest: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(manifest["settings"]["precision"], "auto:4.5");
    let parts = manifest["sensitivity"]["layers"].as_array().unwrap();
    assert_eq!(parts.len(), 5, "four layers, and the embedding that is the head");
    let (mut bits, mut elements) = (0.0, 0.0);
    for part in parts {
        let divergence: Vec<f64> =
            part["divergence"].as_array().unwrap().iter().map(|pair| pair[1].as_f64().unwrap()).collect();
        assert!(divergence.is_sorted_by(|wide, narrow| wide > narrow), "more bits lose less: {divergence:?}");
        bits += part["bits"].as_f64().unwrap() * part["elements"].as_f64().unwrap();
        elements += part["elements"].as_f64().unwrap();
    }
    assert!((4.0..=4.5).contains(&(bits / elements)), "{}", bits / elements);
    assert_eq!(names(folder.path()), ["bundle"], "nothing else is left");
}

#[test]
fn a_budget_in_megabytes_is_for_all_weights_and_one_that_is_not_spent_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, bundle) = (trained(), folder.path().join("bundle"));
    let export = |budget: [&str; 2]| {
        let auto = ["--shapes", "128", "--precision", "auto", "--overwrite", "--json"];
        anemeter(&[&["export", arg(&checkpoint), "-o", arg(&bundle)], &auto[..], &budget[..]].concat())
    };
    let error = export(["--target-mb", "0.0001"]).complaint();
    assert!(error.contains("option `target_mb`: is 0.0001, and what is not compressed takes"), "{error}");
    let error = export(["--target-mb", "0"]).complaint();
    assert!(error.contains("option `target_mb`: is 0, not a size"), "{error}");
    let mut sizes = Vec::new();
    for megabytes in ["0.25", "0.35"] {
        let manifest: Value = serde_json::from_str(export(["--target-mb", megabytes]).good()).unwrap();
        let bytes = manifest["compression"]["totals"]["bytes_after"].as_f64().unwrap() / 1e6;
        let wanted: f64 = megabytes.parse().unwrap();
        assert!(bytes <= wanted && bytes > 0.85 * wanted, "{bytes} MB of {wanted}");
        sizes.push(bytes);
    }
    assert!(sizes[0] < sizes[1]);
    let manifest: Value = serde_json::from_str(export(["--target-bits", "12"]).good()).unwrap();
    let warnings = manifest["warnings"].to_string();
    assert!(warnings.contains("int8 is the widest form that `--precision auto` chooses"), "{warnings}");
    assert!(warnings.contains("where 12.00 were allowed"), "{warnings}");
}
