//! The library in a program of one's own, which this test is.

use std::error::Error;

use anemeter::bundle::Bundle;
use anemeter::evaluate::{self, BenchRequest};
use anemeter::hardware::Profiles;
use anemeter::harness::{BenchConfig, Processes};
use anemeter::report::Outcome;
use anemeter::vocabulary::RuntimeName;

use crate::support::scene::Scene;

#[test]
fn a_program_of_ones_own_measures_with_workers_of_another() -> Result<(), Box<dyn Error + Send + Sync>> {
    let scene = Scene::new();
    scene.export("bundle", &["--shapes", "16"]).good();
    let profiles = Profiles::built_in()?;
    let request = BenchRequest {
        config: BenchConfig {
            launches: 2,
            requests_per_seq_len: 1,
            generated_tokens: 2,
            threads: Some(1),
            ..BenchConfig::built_in()?
        },
        runtime: Some(RuntimeName::Cpu),
        probe_kv: false,
        soak: None,
        slow_down_pct: None,
        profiles: &profiles,
    };
    let mut workers = Processes::of_program(env!("CARGO_BIN_EXE_anemeter"));
    let report =
        evaluate::measure(&Bundle::open(scene.path("bundle"))?, &request, &mut workers, &mut |_| ())?;
    let outcomes: Vec<&Outcome> = report.launches.iter().map(|launch| &launch.outcome).collect();
    assert_eq!(outcomes, [&Outcome::Completed; 2]);
    Ok(())
}

/// Compiles only if `?` turns the error into any boxed one, in any thread.
fn works_with_question_mark<E: Error + Send + Sync + 'static>() {}

#[test]
fn errors_work_with_the_question_mark() {
    use anemeter::{
        baseline, bundle, checkpoint, compress, config, eval, evaluate, export, gate, generate, harness,
        lint, lower, mil, model, package, render, report, runtime, schema, tensor, verify, vocabulary,
    };
    works_with_question_mark::<baseline::BaselineError>();
    works_with_question_mark::<baseline::BlessError<baseline::Refusals>>();
    works_with_question_mark::<baseline::Problem>();
    works_with_question_mark::<baseline::Refusal>();
    works_with_question_mark::<baseline::StorageError>();
    works_with_question_mark::<bundle::BundleError>();
    works_with_question_mark::<checkpoint::CheckpointError>();
    works_with_question_mark::<compress::CompressError>();
    works_with_question_mark::<config::ConfigFileError>();
    works_with_question_mark::<eval::CaseError>();
    works_with_question_mark::<evaluate::EvaluateError>();
    works_with_question_mark::<evaluate::compare::bundles::CompareError>();
    works_with_question_mark::<evaluate::compare::packages::PackagesError>();
    works_with_question_mark::<evaluate::compare::runtimes::OnBothError>();
    works_with_question_mark::<evaluate::rerun::RerunError>();
    works_with_question_mark::<evaluate::sweep::SweepError>();
    works_with_question_mark::<export::ExportError>();
    works_with_question_mark::<gate::GateError>();
    works_with_question_mark::<generate::GenerateError>();
    works_with_question_mark::<harness::LaunchError>();
    works_with_question_mark::<harness::PlanError>();
    works_with_question_mark::<lint::LintError>();
    works_with_question_mark::<lower::LowerError>();
    works_with_question_mark::<mil::BuildError>();
    works_with_question_mark::<mil::verify::Faults>();
    works_with_question_mark::<model::ModelError>();
    works_with_question_mark::<package::PackageError>();
    works_with_question_mark::<render::RenderError>();
    works_with_question_mark::<report::ExtendError>();
    works_with_question_mark::<report::ParseError>();
    works_with_question_mark::<report::ReportError>();
    works_with_question_mark::<runtime::RuntimeError>();
    works_with_question_mark::<schema::SchemaError>();
    works_with_question_mark::<tensor::TensorError>();
    works_with_question_mark::<verify::VerifyError>();
    works_with_question_mark::<vocabulary::UnknownRole>();
}
