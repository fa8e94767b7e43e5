//! The models of a pipeline.

use serde::Serialize;

use super::Args;
use crate::cli::{Output, Result, Status};
use crate::package::{PackageError, Pipeline, Stage};
use crate::render::Table;

/// A pipeline as JSON.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    package: String,
    stages: Vec<StageSummary>,
}

#[derive(Serialize)]
struct StageSummary {
    name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    title: String,
    /// Where it can be opened; only ML programs and pipelines can.
    path: Option<String>,
}

/// Lists the models of the pipeline that could not be opened as a single one.
pub(super) fn list(args: &Args, refused: PackageError, output: &mut Output) -> Result<Status> {
    let pipeline = Pipeline::open(&args.package)?.filter(|pipeline| !pipeline.stages.is_empty());
    let Some(pipeline) = pipeline else { return Err(refused.into()) };
    let path = |stage: &Stage| {
        let opens = stage.is_program() || stage.is_pipeline();
        opens.then(|| pipeline.stage_path(stage).display().to_string())
    };
    if args.json {
        let summary = |stage: &Stage| StageSummary {
            name: stage.name.clone(),
            kind: stage.kind,
            title: stage.title.clone(),
            path: path(stage),
        };
        output.json(&Document {
            schema: "anemeter-inspect-pipeline-1",
            package: pipeline.path.display().to_string(),
            stages: pipeline.stages.iter().map(summary).collect(),
        })?;
        return Ok(Status::Good);
    }
    let shown = pipeline.path.display().to_string();
    output.line(format_args!("{}: a pipeline of {} models", shown.escape_debug(), pipeline.stages.len()))?;
    let mut table = Table::new(&["model", "kind", "name", "inspect it"]);
    for stage in &pipeline.stages {
        let how = match (path(stage), stage.does) {
            (Some(path), _) => format!("anemeter inspect {}", path.escape_debug()),
            (None, "") => "no: it is no ML program".to_owned(),
            (None, does) => format!("no: it {does}"),
        };
        let title = stage.title.escape_debug().to_string();
        table.row([stage.name.clone(), stage.kind.to_owned(), title, how]);
    }
    output.text(table.indented(2))?;
    Ok(Status::Good)
}
