//! What the rules say of this project's own exports: no error at any target, and which warnings.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use anemeter::checkpoint;
use anemeter::lint::{Device, Setting, Severity, Subject, Target, lint};
use anemeter::lower::{Options, lower};
use anemeter::model::{self, Activation, Decoder, Head, Mlp};
use anemeter::vocabulary::{Choice, Embeddings, KvForm};

use crate::lower::FORMS;
use crate::lower::models::{Sizes, llama};
use crate::support::architectures;

const SIZES: Sizes =
    Sizes { hidden: 1024, heads: 16, kv_heads: 4, head_dim: 64, wide: 1024, layers: 2, vocabulary: 512 };
static DECODER: LazyLock<Decoder> = LazyLock::new(|| llama(SIZES, 1));
const TARGETS: &[Target] = Target::ALL;

/// Rules that an export breaks, by severity.
fn broken(options: &Options, target: Target) -> Vec<String> {
    let mut found = BTreeSet::new();
    for chunk in lower(&DECODER, options).unwrap() {
        let setting = Setting {
            target,
            device: Some(Device::M4),
            training_seq_lens: Some(options.seq_lens.iter().map(|&length| length as u64).collect()),
            compute_units: Some("cpuAndNeuralEngine".to_owned()),
            ..Setting::default()
        };
        let report = lint(&Subject::of(chunk.model), &setting, &[]).unwrap();
        let worst = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
        assert_eq!(report.counts.errors, 0, "{target:?}: {:?}", worst.collect::<Vec<_>>());
        found.extend(report.findings.iter().map(|f| format!("{} {}", f.rule, f.severity.name())));
    }
    found.into_iter().collect()
}

fn options(form: KvForm) -> Options {
    Options { kv: BTreeSet::from([form]), ..Options::default() }
}

#[test]
fn no_form_has_errors_at_any_target() {
    for form in FORMS {
        for &target in TARGETS {
            broken(&options(form), target);
        }
        for embeddings in [Embeddings::Host, Embeddings::Graph] {
            broken(&Options { embeddings, ..options(form) }, Target::Ios26);
        }
    }
    broken(&Options { chunks: 2, head_split: 4, ..options(KvForm::Io) }, Target::Ios26);
}

/// Each of these is a choice that `docs/graph.md` explains; a new one is a change of the graph.
#[test]
fn what_is_left_is_known() {
    let all = FORMS.map(|form| format!("{form:?}: {}", broken(&options(form), Target::Ios18).join(", ")));
    insta::assert_snapshot!(all.join("\n"));
    for form in FORMS {
        let expected: Vec<String> = documented(form).iter().map(|id| format!("{id} warning")).collect();
        let mut found = broken(&options(form), Target::Ios18);
        found.retain(|rule| rule.ends_with(" warning"));
        assert_eq!(found, expected, "docs/lint.md says otherwise of {form}");
    }
}

/// Rules that `docs/lint.md` expects exports of a form to break.
fn documented(form: KvForm) -> Vec<&'static str> {
    let page = include_str!("../../../docs/lint.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Expected of an export")).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let of_form = rows.filter(|(_, rest)| {
        rest.split_once(" | ").is_some_and(|(forms, _)| forms.contains(&format!("`{form}`")))
    });
    of_form.map(|(id, _)| id).collect()
}

#[test]
fn variants_of_the_model_have_no_errors() {
    let mut decoder = DECODER.clone();
    decoder.head = Head { tied: true, softcap: Some(30.0), ..decoder.head.clone() };
    for layer in &mut decoder.layers {
        if let Mlp::Gated { activation, .. } = &mut layer.mlp {
            *activation = Activation::GeluTanh;
        }
        layer.mixer.attention_mut().unwrap().window = Some(256);
    }
    for form in FORMS {
        let chunk = lower(&decoder, &options(form)).unwrap().remove(0);
        let report = lint(&Subject::of(chunk.model), &Setting::default(), &[]).unwrap();
        assert_eq!(report.counts.errors, 0, "{form:?}: {:?}", report.findings.first());
        assert!(report.findings.iter().any(|finding| finding.rule == "A36"), "the cap keeps tanh");
    }
}

#[test]
fn no_architecture_has_errors_in_any_form() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in architectures::all() {
        let checkpoint = checkpoint::open(tiny.write(folder.path())).unwrap();
        let decoder = model::build(&checkpoint).unwrap();
        for form in FORMS {
            let options = Options { seq_lens: vec![64], contexts: vec![64], query: 16, ..options(form) };
            for chunk in lower(&decoder, &options).unwrap() {
                let report = lint(&Subject::of(chunk.model), &Setting::default(), &[]).unwrap();
                let worst = report.findings.iter().find(|finding| finding.severity == Severity::Error);
                assert_eq!(report.counts.errors, 0, "{} {form}: {worst:?}", tiny.name);
            }
        }
    }
}
