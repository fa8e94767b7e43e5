//! One bundle or package on two runtimes: are outputs the same, and what does a call take on each?

use super::{Args, Kind, print};
use crate::bundle::Bundle;
use crate::cli::choice::OrAuto;
use crate::cli::output::{create_folder, write_file};
use crate::cli::python::say_engine;
use crate::cli::{Failure, Output, Result, Status};
use crate::evaluate::compare::document::Runtimes;
use crate::evaluate::compare::runtimes::{CallTime, FunctionOnBoth, SAME_COSINE, compare};
use crate::render::Table;
use crate::runtime::{self, LoadOptions};
use crate::vocabulary::RuntimeName;

pub(super) fn run(args: &Args, names: [OrAuto<RuntimeName>; 2], output: &mut Output) -> Result<Status> {
    check_flags(args, names)?;
    if Kind::of(&args.baseline)? == Kind::Report {
        return Err(
            Failure::at(&args.baseline, "a report cannot be run").with_help("give a bundle or a package")
        );
    }
    let bundle = Bundle::open_to_run(&args.baseline)?;
    let options = LoadOptions {
        threads: args.threads,
        units: args.compute_units.unwrap_or(bundle.manifest().compute_units()),
        ..LoadOptions::default()
    };
    let both = [runtime::choose(names[0].given())?, runtime::choose(names[1].given())?];
    both.into_iter().for_each(say_engine);
    if let Some(folder) = &args.out {
        create_folder(folder)?;
    }
    let name = args.baseline.display().to_string();
    let document = compare((name, &bundle), both, &options, args.calls as usize)?;
    if let Some(folder) = &args.out {
        let json = serde_json::to_vec_pretty(&document);
        let json = json.map_err(|e| Failure::bad_input(format!("comparison.json: {e}")))?;
        write_file(&folder.join("comparison.json"), &json)?;
    }
    print((&headline(&document), &tables(&document)), &document, args.format(), output)?;
    Ok(if document.alike { Status::Good } else { Status::Failed })
}

/// Whether a runtime takes packages only.
pub(super) fn runs_no_bundles(name: RuntimeName) -> bool {
    runtime::runtimes().iter().any(|runtime| runtime.name() == name && !runtime.runs_bundles())
}

/// Names are strict, and flags that would change nothing are refused.
fn check_flags(args: &Args, names: [OrAuto<RuntimeName>; 2]) -> Result<()> {
    if names.contains(&OrAuto::Auto) {
        return Err(Failure::bad_input("`auto` is no runtime of its own")
            .with_help("name both, such as --runtime coreml,cpu"));
    }
    let useless = [
        ("--workload", args.workload.is_some()),
        ("--shapes", args.shapes.is_some()),
        (args.depth.given().unwrap_or_default(), args.depth.given().is_some()),
        ("--kv", args.kv.is_some()),
    ];
    let useless = useless.into_iter().find_map(|(flag, given)| given.then_some(flag));
    match useless.or(args.files.given()) {
        Some(flag) => Err(Failure::bad_input(format!("{flag} means nothing for two runtimes"))
            .with_help("every function is run at its default shapes; --calls says how often")),
        None => Ok(()),
    }
}

fn headline(compared: &Runtimes) -> String {
    let Runtimes { baseline, candidate, .. } = compared;
    match compared.alike {
        true => format!("pass: {candidate} gives what {baseline} gives"),
        false => format!("FAIL: {candidate} does not give what {baseline} gives"),
    }
}

const TIMES: &[&str] =
    &["package", "function", ">calls", ">A p50 ms", ">A p95 ms", ">B p50 ms", ">B p95 ms", ">B over A"];

fn tables(compared: &Runtimes) -> Vec<Table> {
    let each = || {
        let packages = compared.packages.iter();
        packages.flat_map(|package| package.functions.iter().map(|function| (&package.package, function)))
    };
    let outputs = each().flat_map(|(package, function)| output_rows(package, function));
    let times = each().map(|(package, function)| time_row(package, function));
    let Runtimes { baseline, candidate, .. } = compared;
    let alike = format!("alike means equal, or a cosine of at least {SAME_COSINE}");
    vec![
        table(
            "Outputs",
            format!("Made-up inputs, the same for both; {alike}."),
            &["package", "function", "output", ">elements", ">greatest difference", ">cosine", "alike"],
            outputs.collect(),
        ),
        table(
            "Time per call",
            format!("{baseline} (A) and {candidate} (B) in turns, after one call that is not counted."),
            TIMES,
            times.collect(),
        ),
    ]
}

fn output_rows(package: &str, function: &FunctionOnBoth) -> Vec<Vec<String>> {
    let alike = if function.alike { "yes" } else { "NO" };
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("not finite".to_owned(), |value| format!("{value:.digits$}"))
    };
    let row = |name: &str, rest: [String; 4]| {
        let mut cells = vec![package.to_owned(), function.function.clone(), name.to_owned()];
        cells.extend(rest);
        cells
    };
    let compared = function.outputs.iter().map(|output| {
        let difference = output.max_abs.map_or("not finite".to_owned(), |value| format!("{value:.3e}"));
        let cells = [output.elements.to_string(), difference, number(output.cosine, 6), alike.to_owned()];
        row(&output.output, cells)
    });
    let others = function.not_compared.iter();
    let others = others.map(|name| row(name, ["–", "–", "–", "not compared"].map(str::to_owned)));
    compared.chain(others).collect()
}

fn time_row(package: &str, function: &FunctionOnBoth) -> Vec<String> {
    let mut cells = vec![package.to_owned(), function.function.clone(), function.calls.to_string()];
    for CallTime { p50_ms, p95_ms } in [function.baseline, function.candidate] {
        cells.push(format!("{p50_ms:.3}"));
        cells.push(p95_ms.map_or("–".to_owned(), |p95| format!("{p95:.3}")));
    }
    let pct = function.overhead_pct.map(|pct| format!(" ({pct:+.1} %)")).unwrap_or_default();
    cells.push(format!("{:+.3} ms{pct}", function.overhead_ms));
    cells
}

fn table(title: &str, note: String, headings: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table::new(headings).titled(title, note).with(rows)
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;
    use crate::compare::SCHEMA;
    use crate::evaluate::compare::document::PackageOnBoth;
    use crate::evaluate::compare::runtimes::OutputDifference;

    fn function(name: &str, alike: bool) -> FunctionOnBoth {
        let output = OutputDifference {
            output: "logits".to_owned(),
            elements: 128,
            cosine: alike.then_some(0.999_999_1),
            max_abs: alike.then_some(0.001_234),
            not_finite: usize::from(!alike),
        };
        FunctionOnBoth {
            function: name.to_owned(),
            alike,
            outputs: vec![output],
            not_compared: vec!["ids".to_owned()],
            calls: 50,
            baseline: CallTime { p50_ms: 2.0, p95_ms: Some(2.5) },
            candidate: CallTime { p50_ms: 2.5, p95_ms: None },
            overhead_ms: 0.5,
            overhead_pct: Some(25.0),
        }
    }

    #[test]
    fn what_differs_and_what_it_takes_reads_well() {
        let functions = vec![function("prefill", true), function("decode", false)];
        let compared = Runtimes {
            schema: SCHEMA,
            kind: "runtimes",
            subject: "bundle".to_owned(),
            baseline: RuntimeName::CoreMl,
            candidate: RuntimeName::CoreMlRs,
            alike: false,
            packages: vec![PackageOnBoth { package: "model.mlpackage".to_owned(), functions }],
        };
        insta::assert_snapshot!(text(&headline(&compared), &tables(&compared)));
    }
}
