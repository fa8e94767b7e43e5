//! A real model. `cargo xtask check coreml` fetches it and says where it is.

use std::env;
use std::path::PathBuf;

use anemeter::bundle::Bundle;
use anemeter::generate::Tokenizer;
use anemeter::runtime::cpu;
use anemeter::vocabulary::KvForm;

use crate::balance::balanced;
use crate::commands::{assert_completed, bench};
use crate::scene::{Scene, driver, greedy};

/// Where the checkpoint is.
const VARIABLE: &str = "COREML_STANDIN_SMOLLM2";

#[test]
#[ignore = "takes SmolLM2; `cargo xtask check coreml` fetches it"]
fn smollm2_gives_the_same_tokens_in_both_forms_and_is_measured() {
    let _balance = balanced(&[]);
    let checkpoint = PathBuf::from(env::var_os(VARIABLE).expect("the variable says where SmolLM2 is"));
    let scene = Scene::new();
    let mut export = scene.anemeter(&["export", "--shapes", "32,48", "--kv", "io,state", "--query", "16"]);
    let done = export.arg(checkpoint).arg("-o").arg(scene.path("bundle")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let bundle = Bundle::open(scene.path("bundle")).unwrap();
    let tokenizer = Tokenizer::open(&bundle.path("tokenizer.json")).unwrap();
    let prompt = tokenizer.encode("The capital of France is", true).unwrap();
    for form in [KvForm::Io, KvForm::State] {
        // Long enough to move from the length 32 to the length 48.
        let mut found = driver(&bundle, &scene.core_ml(), form).unwrap();
        let found = greedy(&mut found, &prompt, 30).unwrap();
        let expected = greedy(&mut driver(&bundle, &cpu(), form).unwrap(), &prompt, 30).unwrap();
        assert_eq!(found, expected, "{form:?}");
        let words = tokenizer.decode(&found).unwrap();
        assert!(words.contains("Paris"), "{form:?}: {words}");
    }
    for form in ["io", "state"] {
        let (done, report) = bench(&scene, bundle.folder(), form, "built-in", "");
        assert_completed(&done, &report);
    }
}
