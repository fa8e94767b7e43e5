//! `docs/lint.md` is made from the rules: this test compares, and rewrites it if `UPDATE_DOCS` is set.

use std::fmt::Write;
use std::path::Path;

use anemeter::bundle::KvForm;
use anemeter::lint::{Rule, rules};

const HEAD: &str = "\
# Lint rules

<!-- Made from the rules in src/lint/rules/ by `UPDATE_DOCS=1 cargo test --test it lint::docs`. -->

`anemeter lint PACKAGE` holds a package, or a folder of packages, against these rules. It exits with 1 if one of
severity error is broken. `--target` and `--device` change limits. `anemeter lint --explain ID` prints a rule in full.

None of these rules was checked on a device by this project: each names who says so. *Documented* means that Apple
does, *widely reported* several independent projects, *single report* one, and *policy* is a choice of this project.
Where an operation is said to stay off the Neural Engine, the prediction of placement counts it as off.

A rule that a package alone cannot answer is listed under \"not checked\" with what it needs, never passed in silence.
The same finding in several layers is one finding with a list of layers.

## Waivers

    # lint.yaml, given with --config
    target: ios18            # optional, as are device, training_shapes and compute_units
    waivers:
      - rule: A10
        where: \"*/decode*\"   # package/function/operation, * is any text
        reason: one token at a time; the activations are small beside the weights

Every waiver needs a reason, and is listed with what it accepts. One that accepts nothing is a warning.

## Expected of an export

An export of this program with its defaults has no errors, and these warnings. Each is the price of a choice that
`graph.md` explains; any other warning is worth a look. The linter's own tests hold this table against what exports have.
Small models and lengths below 512 have others besides, A09 above all.

| id | forms | why it stays |
|---|---|---|
";

/// Warnings that exports have, the forms that have them, and why.
pub(super) const EXPECTED: &[(&str, &[KvForm], &str)] = &[
    (
        "A10",
        &[KvForm::Io, KvForm::State, KvForm::None],
        "decoding takes one token, and the head one position; padding to 8 would compute seven for nothing",
    ),
    (
        "A22",
        &[KvForm::None],
        "`main` takes ids: whole-sequence models look embeddings up once; `--embeddings host` avoids it",
    ),
    (
        "A30",
        &[KvForm::Io, KvForm::State, KvForm::None],
        "keys are last, as in Anemll: on the channels, grouped queries would take two more transposes",
    ),
    (
        "A39",
        &[KvForm::Io, KvForm::State, KvForm::None],
        "one token's queries become a matrix per head, new keys and values turn on their way into a state, and `main` turns \
         embeddings; caches and weights are never moved",
    ),
    (
        "C05",
        &[KvForm::Io, KvForm::State, KvForm::None],
        "4096 is one of the default lengths; `--shapes 512,1024,2048` does without",
    ),
];

const ABOUT_UNITS: &str = "
A55 comes with every bundle, because `compute_units` is `all` by default (`configs/convert_coreml.yaml`): that is what an application
ships with, and Core ML decides in the end. Measure with `bench --compute-units cpu+ane`, which is also the only setting whose residency can be
verified; lint for it with `lint --compute-units cpu+ane`, or export with `compute_units: cpu+ane`.

## Table
";

fn document() -> String {
    let mut text = String::from(HEAD);
    for (id, forms, why) in EXPECTED {
        let forms: Vec<String> = forms.iter().map(|form| format!("`{form}`")).collect();
        writeln!(text, "| {id} | {} | {why} |", forms.join(", ")).unwrap();
    }
    text.push_str(ABOUT_UNITS);
    text.push_str("\n| id | severity | confidence | rule | keeps off | needs |\n|---|---|---|---|---|---|\n");
    for rule in rules() {
        let off = if rule.off { "yes" } else { "" };
        let (severity, confidence) = (rule.severity.name(), rule.confidence.name());
        let needs = rule.needs().unwrap_or("");
        writeln!(text, "| {} | {severity} | {confidence} | {} | {off} | {needs} |", rule.id, rule.title)
            .unwrap();
    }
    for rule in rules() {
        section(rule, &mut text);
    }
    text
}

fn section(rule: &Rule, text: &mut String) {
    writeln!(text, "\n## {}: {}\n\n{}\n", rule.id, rule.title, rule.why).unwrap();
    for source in rule.evidence {
        writeln!(text, "- {source}").unwrap();
    }
    writeln!(text, "\nWhat to do: {}.", rule.remedy).unwrap();
}

#[test]
fn the_page_is_made_from_the_rules() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/lint.md");
    let expected = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        anemeter::package::atomic::write_file(&path, expected.as_bytes()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/lint.md differs from the rules; run this test with UPDATE_DOCS=1");
}
