//! A report of a small measurement.

use std::path::PathBuf;

use super::checkpoints::write_text;
use super::command::{anemeter, arg};
use super::fixtures::MIXED_WORKLOAD;
use super::scene::Scene;

/// Measures the scene's checkpoint, exported as `measured`.
pub(crate) fn small(scene: &Scene) -> PathBuf {
    scene.export("measured", &["--shapes", "16,32"]).good();
    write_text(&scene.path("bench.yaml"), MIXED_WORKLOAD);
    let (bundle, workload, out) = (scene.path("measured"), scene.path("bench.yaml"), scene.path("report"));
    anemeter(&["bench", arg(&bundle), "--workload", arg(&workload), "-o", arg(&out), "--runtime", "cpu"])
        .good();
    out.join("report.json")
}
