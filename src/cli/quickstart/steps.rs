//! The steps in order: each is a command of this program.

use std::ffi::OsString;
use std::path::Path;

use super::model::Model;
use super::{Failure, tell};

/// Where the last step puts its page.
pub(super) const PAGE: &str = "report.html";

/// What to type on a checkpoint of one's own.
pub(super) const ON_ONES_OWN: &str = "\
On a checkpoint of your own (a Hugging Face folder, a GGUF file or a PyTorch state dict):
    anemeter export CHECKPOINT -o bundle --shapes 512,1024 --kv io,state
    anemeter lint bundle
    anemeter verify bundle --checkpoint CHECKPOINT
    anemeter bench bundle --out reports/today
    anemeter bless reports/today        # once, when it is as it should be
    anemeter gate reports/today         # after every change: exit code 1 is a regression, 3 is `cannot tell`
`anemeter doctor` says what this machine is and what disturbs a measurement on it.";

/// How much slower the last measurement is made.
const SLOWER_BY: &str = "100";

/// One command.
pub(super) struct Step {
    /// What it is for.
    pub(super) what: String,
    /// What anyone would type.
    pub(super) arguments: Vec<OsString>,
    /// What makes its output readable for [`Step::tell`].
    pub(super) quietly: &'static [&'static str],
    /// Exit codes that are as they should be.
    pub(super) ends_with: &'static [i32],
    /// What to tell of it, from the folder and what it printed.
    pub(super) tell: fn(&Path, &str) -> Result<Vec<String>, Failure>,
}

impl Step {
    fn new<const N: usize>(what: &str, arguments: [&str; N]) -> Step {
        Step {
            what: what.to_owned(),
            arguments: arguments.map(OsString::from).into(),
            quietly: &["--json"],
            ends_with: &[0],
            tell: |_, _| Ok(Vec::new()),
        }
    }

    fn ends_with(self, codes: &'static [i32]) -> Step {
        Step { ends_with: codes, ..self }
    }

    fn quietly(self, arguments: &'static [&'static str]) -> Step {
        Step { quietly: arguments, ..self }
    }

    fn tells(self, tell: fn(&Path, &str) -> Result<Vec<String>, Failure>) -> Step {
        Step { tell, ..self }
    }
}

pub(super) fn of(model: &Model, checkpoint: &Path) -> Vec<Step> {
    let checkpoint = checkpoint.to_string_lossy();
    let mut steps = vec![
        Step::new(
            "Export the checkpoint with two forms of the key-value cache.",
            ["export", &checkpoint, "-o", "bundle", "--shapes", model.shapes(), "--kv", "io,state"],
        )
        .tells(tell::export),
        Step::new("Look for what keeps it off the Neural Engine, or slow there.", ["lint", "bundle"])
            .quietly(&["--format", "json"])
            .tells(tell::lint),
    ];
    if cfg!(feature = "oracle") {
        let verify = ["verify", "bundle", "--checkpoint", &checkpoint, "--tokens", "16"];
        let what = "Compare its logits with the checkpoint's, computed independently at f32.";
        steps.push(Step::new(what, verify).tells(tell::verify));
    }
    let generate = ["generate", "bundle", "--prompt", model.prompt(), "--raw", "--max-tokens", "24"];
    steps.push(Step::new("Let it write.", generate).tells(tell::generate));
    steps.extend(measured());
    steps
}

/// Measuring, blessing, and two gates: one on what has not changed, one on what is slower.
fn measured() -> [Step; 7] {
    let bench = |what: &str, out: &str| {
        Step::new(what, ["bench", "bundle", "--runtime", "cpu", "--out", out]).tells(tell::bench)
    };
    let mut slower = bench("Measure it with every prediction slowed down on purpose.", "reports/slower");
    slower.arguments.extend(["--slow-down", SLOWER_BY].map(OsString::from));
    let gate = |what: &str, report: &str| {
        Step::new(what, ["gate", report, "--baselines", "baselines"])
            .quietly(&["--format", "json"])
            .tells(tell::gate)
    };
    [
        bench("Measure it: fresh processes, requests in a random order.", "reports/first"),
        Step::new(
            "Bless that measurement: it is now what later ones are compared with.",
            ["bless", "reports/first", "--baselines", "baselines", "--scratch"],
        )
        .quietly(&[])
        .tells(tell::bless),
        bench("Measure the same bundle again.", "reports/second"),
        gate("Is it slower than what was blessed? Nothing has changed.", "reports/second")
            .ends_with(&[0, 1, 3]),
        slower,
        gate("And this one?", "reports/slower").ends_with(&[1, 3]),
        Step::new(
            "Put all three onto one page.",
            [
                "report",
                "reports/first",
                "reports/second",
                "reports/slower",
                "--format",
                "html",
                "--out",
                PAGE,
            ],
        )
        .quietly(&[]),
    ]
}
