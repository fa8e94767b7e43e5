//! The steps in order: each is a command of this program.

use std::ffi::OsString;
use std::path::Path;

use super::model::Model;
use super::{Result, summary};

/// Where the last step puts its page.
pub(super) const PAGE: &str = "report.html";

/// The same commands for a checkpoint of the user's.
pub(super) const NEXT_STEPS: &str = "\
On a checkpoint of your own (a Hugging Face folder, a GGUF file or a PyTorch state dict):
    anemeter export CHECKPOINT -o bundle --shapes 512,1024 --kv io,state
    anemeter lint bundle
    anemeter verify bundle --checkpoint CHECKPOINT
    anemeter bench bundle -o reports/first
    anemeter bless reports/first        # once, when it is as it should be, on a machine that does nothing else
    anemeter bench bundle -o reports/today
    anemeter gate reports/today         # after every change: exit code 1 is a regression, 3 is `cannot tell`
`anemeter doctor` says what this machine is and what disturbs a measurement on it.";

/// How much slower the last measurement is made.
const SLOWER_BY: &str = "100";

/// So small a model gains nothing from a second thread, and one thread finds a free core on a machine that is busy.
const THREADS: &str = "1";

/// Requests of so small a model take milliseconds: the median of a few would follow every disturbance of the machine.
const REQUESTS: &str = "12";

/// One command.
pub(super) struct Step {
    /// What it is for.
    pub(super) what: String,
    /// What anyone would type.
    pub(super) arguments: Vec<OsString>,
    /// Arguments that make its output readable for [`Step::summary`].
    pub(super) more: &'static [&'static str],
    /// Exit codes that are expected.
    pub(super) exit_codes: &'static [i32],
    /// Lines about its result, from the folder and what it printed.
    pub(super) summary: fn(&Path, &str) -> Result<Vec<String>>,
}

impl Step {
    fn new<const N: usize>(what: &str, arguments: [&str; N]) -> Step {
        Step {
            what: what.to_owned(),
            arguments: arguments.map(OsString::from).into(),
            more: &["--json"],
            exit_codes: &[0],
            summary: |_, _| Ok(Vec::new()),
        }
    }

    fn exit_codes(self, codes: &'static [i32]) -> Step {
        Step { exit_codes: codes, ..self }
    }

    fn more(self, arguments: &'static [&'static str]) -> Step {
        Step { more: arguments, ..self }
    }

    fn summarised_by(self, summary: fn(&Path, &str) -> Result<Vec<String>>) -> Step {
        Step { summary, ..self }
    }
}

pub(super) fn of(model: &Model, checkpoint: &Path) -> Vec<Step> {
    let checkpoint = checkpoint.to_string_lossy();
    let mut steps = vec![
        Step::new(
            "Export the checkpoint with two KV cache forms.",
            ["export", &checkpoint, "-o", "bundle", "--shapes", model.seq_lens(), "--kv", "io,state"],
        )
        .summarised_by(summary::export),
        Step::new("Lint it: what keeps it off the Neural Engine, or slow there?", ["lint", "bundle"])
            .summarised_by(summary::lint),
    ];
    if cfg!(feature = "oracle") {
        let verify = ["verify", "bundle", "--checkpoint", &checkpoint, "--tokens", "16"];
        let what = "Verify its logits against the checkpoint, computed independently in f32.";
        steps.push(Step::new(what, verify).summarised_by(summary::verify));
    }
    let generate = ["generate", "bundle", "--prompt", model.prompt(), "--raw", "--max-tokens", "24"];
    steps.push(Step::new("Generate text.", generate).summarised_by(summary::generate));
    steps.extend(measured());
    steps
}

/// Measuring, blessing, and two verdicts: one on what has not changed, one on what is slower.
fn measured() -> [Step; 6] {
    let bench = |what: &str, out: &str| {
        let measure = ["bench", "bundle", "--runtime", "cpu", "--threads", THREADS, "--requests", REQUESTS];
        let mut step = Step::new(what, measure).summarised_by(summary::bench);
        step.arguments.extend(["-o", out].map(OsString::from));
        step
    };
    let mut slower = bench("Benchmark it with every prediction slowed down on purpose.", "reports/slower");
    slower.arguments.extend(["--slow-down", SLOWER_BY].map(OsString::from));
    let mut compare = Step::new(
        "Compare the bundle with itself, launches interleaved: nothing has changed.",
        ["compare", "bundle", "bundle", "--runtime", "cpu", "--threads", THREADS, "--requests", REQUESTS],
    );
    compare.arguments.extend(["--budget", "60s", "-o", "reports/unchanged"].map(OsString::from));
    [
        bench("Benchmark it: fresh processes, requests in a random order.", "reports/first"),
        Step::new(
            "Bless that report: later ones are compared with it.",
            ["bless", "reports/first", "--scratch", "--accept-noise", "only to try it out"],
        )
        .more(&[])
        .summarised_by(summary::bless),
        compare.summarised_by(summary::compare).exit_codes(&[0, 1, 3]),
        slower,
        Step::new("Gate the slower report.", ["gate", "reports/slower", "--baselines", "baselines"])
            .summarised_by(summary::gate)
            .exit_codes(&[1, 3]),
        Step::new(
            "Render all three reports as one page.",
            [
                "report",
                "reports/first",
                "reports/unchanged/b",
                "reports/slower",
                "--format",
                "html",
                "-o",
                PAGE,
            ],
        )
        .more(&[]),
    ]
}
