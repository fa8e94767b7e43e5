//! `--round-trip`: every package read, written and read again, and the written one validated with coremltools.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anemeter::mil::verify::verify_rewritten;
use anemeter::package::{self, Package, WriteOptions};
use anyhow::{Context, Result, bail, ensure};

use super::validator::{Validator, Verdict, Violation};
use super::{corpus, percent};
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};

const WHAT: &str = "package round trip";
/// A sample that converts but does not fit its own shapes: a validator that accepts it checks nothing.
const MUST_BE_REFUSED: &str = "sample-bad_enum_mask_fixed_ios16";

/// A package and what it is rewritten to.
struct Case {
    name: String,
    original: PathBuf,
    rewritten: PathBuf,
}

/// Rewrites every package of the corpus and the samples and compares both sides.
pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    let Some(open) = corpus::unpack(project)? else {
        return Ok(Outcome::not_checked(WHAT, "the corpus is not beside the repository"));
    };
    let cases = cases(project, &open, limit)?;
    let mut decoded = 0;
    let mut same = Vec::new();
    for case in cases.iter() {
        match rewrite(case) {
            Ok(true) => same.push(case),
            Ok(false) => eprintln!("{}: the model read back differs", case.name),
            Err(error) => {
                eprintln!("{}: {error:#}", case.name);
                continue;
            }
        }
        decoded += 1;
    }
    let count = |what: &str, n: usize| format!("{n} {what} ({})", percent(n, cases.len()));
    let read_back =
        format!("{} packages: {}, {}", cases.len(), count("decoded", decoded), count("same", same.len()));
    println!("{read_back}");
    let Some(validator) = Validator::find(project)? else {
        return Ok(Outcome::not_checked(
            WHAT,
            &format!("{read_back}, but there is no python3 or no validator"),
        ));
    };
    let (validated, refused) = compare_verdicts(&same, |packages| validator.validate(packages))?;
    let text = format!(
        "{read_back}, {} ({refused} of them refused before and after)",
        count("validated", validated)
    );
    ensure!(validated == cases.len(), "{text}");
    Ok(Outcome::Checked(text))
}

fn cases(project: &Project, open: &Path, limit: Option<usize>) -> Result<Vec<Case>> {
    let output = project.target.join("conformance/round-trip");
    make_empty(&output)?;
    let is_package = |path: &Path| path.extension().is_some_and(|extension| extension == "mlpackage");
    let mut originals = corpus::folders(open, |path| path.join("model.mlpackage").is_dir())?;
    originals.truncate(limit.unwrap_or(usize::MAX));
    let mut found: Vec<_> =
        originals.iter().map(|case| ("open", case, case.join("model.mlpackage"))).collect();
    let samples = corpus::folders(&project.shared.join("samples"), is_package)?;
    found.extend(samples.iter().map(|sample| ("sample", sample, sample.clone())));
    found
        .into_iter()
        .map(|(kind, folder, original)| {
            let stem = folder.file_stem().and_then(|stem| stem.to_str()).context("a case has no name")?;
            let name = format!("{kind}-{stem}");
            let rewritten = output.join(format!("{name}.mlpackage"));
            Ok(Case { name, original, rewritten })
        })
        .collect()
}

/// Writes what was read; whether reading that gives the same model.
fn rewrite(case: &Case) -> Result<bool> {
    let original = Package::open(&case.original)?;
    let same = verify_rewritten(original.model(), original.model().clone())?;
    package::write(&same, &case.rewritten, WriteOptions::default()).context("write")?;
    let rewritten = Package::open(&case.rewritten).context("read back")?;
    Ok(original.model() == rewritten.model())
}

/// How many of the rewritten packages the validator judges no worse than their originals, and how many of
/// those it refuses as it refuses the original.
fn compare_verdicts(
    cases: &[&Case],
    validate: impl Fn(&[&Path]) -> Result<Vec<Verdict>>,
) -> Result<(usize, usize)> {
    let rewritten: Vec<_> = cases.iter().map(|case| case.rewritten.as_path()).collect();
    let verdicts = cases.iter().zip(validate(&rewritten)?);
    let suspects: Vec<_> = verdicts.filter(|(_, verdict)| !verdict.violations.is_empty()).collect();
    let originals: Vec<_> = suspects.iter().map(|(case, _)| case.original.as_path()).collect();
    let mut worse = 0;
    let mut refused = BTreeSet::new();
    for ((case, verdict), original) in suspects.iter().zip(validate(&originals)?) {
        let is_new = |found: &&Violation| !original.violations.iter().any(|before| before.is_like(found));
        if let Some(violation) = verdict.violations.iter().find(is_new) {
            worse += 1;
            eprintln!("{}: worse than before: {violation}", case.name);
        } else {
            refused.insert(case.name.as_str());
            println!("{}: refused before and after: {}", case.name, verdict.violations[0]);
        }
    }
    if cases.iter().any(|case| case.name == MUST_BE_REFUSED) && !refused.contains(MUST_BE_REFUSED) {
        bail!(
            "the validator does not refuse {MUST_BE_REFUSED} both ways, so its other verdicts mean nothing"
        );
    }
    Ok((cases.len() - worse, refused.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> Case {
        Case {
            name: name.into(),
            original: format!("{name}/old").into(),
            rewritten: format!("{name}/new").into(),
        }
    }

    /// Verdicts on packages of which the listed ones have one violation, at the given place.
    fn judged(cases: &[&Case], refused: &[(&str, &str)]) -> Result<(usize, usize)> {
        let violation =
            |place: &str| Violation { check: "c".into(), place: place.into(), message: "m".into() };
        compare_verdicts(cases, |paths| {
            let violations = |path: &&Path| {
                let found = refused.iter().filter(|(refused, _)| *path == Path::new(refused));
                found.map(|(_, place)| violation(place)).collect()
            };
            Ok(paths.iter().map(|path| Verdict { violations: violations(path) }).collect())
        })
    }

    #[test]
    fn only_a_package_that_got_worse_is_bad() {
        let (a, b) = (case("a"), case("b"));
        assert_eq!(judged(&[&a, &b], &[]).unwrap(), (2, 0));
        assert_eq!(judged(&[&a, &b], &[("a/new", "p"), ("b/old", "p")]).unwrap(), (1, 0));
        assert_eq!(judged(&[&a, &b], &[("a/new", "p"), ("a/old", "p")]).unwrap(), (2, 1));
        assert_eq!(judged(&[&a, &b], &[("a/new", "p"), ("a/old", "q")]).unwrap(), (1, 0));
    }

    #[test]
    fn a_validator_that_accepts_everything_is_not_believed() {
        let bad = case(MUST_BE_REFUSED);
        assert!(judged(&[&bad], &[]).is_err());
        let (old, new) = (format!("{MUST_BE_REFUSED}/old"), format!("{MUST_BE_REFUSED}/new"));
        assert_eq!(judged(&[&bad], &[(&old, "p"), (&new, "p")]).unwrap(), (1, 1));
    }
}
