//! anemeter converts a language-model checkpoint to Core ML, checks its logits against the checkpoint's, benchmarks the
//! packages, and fails CI when they are slower or less accurate than an approved baseline for the same hardware.
//!
//! ```text
//! export    checkpoint -> model -> MIL program -> compression -> verified program -> .mlpackage, .aimodel
//! evaluate  .mlpackage -> runtime -> harness -> report -> gate -> baseline
//! ```
//!
//! [`export`] and [`evaluate`](mod@evaluate) are the two flows; `docs/architecture.md` shows the crates that they are made
//! of, which this one re-exports. [`mil`] programs are read from and written to [packages](package), and a
//! [runtime] executes them, on any machine with the CPU runtime:
//!
//! ```
//! use anemeter::mil::{Builder, Model, Opset, TensorType, verify};
//! use anemeter::package::{self, Package, WriteOptions};
//! use anemeter::runtime::{self, LoadOptions, Runtime};
//! use anemeter::tensor::{DType, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut main = Builder::new("main", Opset::Ios18);
//! let x = main.input("x", TensorType::fixed(DType::F32, &[1, 3]));
//! let y = main.op("softmax").arg("x", x).arg("axis", -1).named("y").push()?;
//! let model = verify::verify(Model::single(main.finish(&[y])))?;
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("softmax.mlpackage");
//! package::write(&model, &path, WriteOptions::default())?;
//!
//! let package = Package::open(&path)?;
//! let loaded = runtime::cpu().load(&package, &LoadOptions::default())?;
//! let mut session = loaded.session();
//! let input = Tensor::from_slice(&[1, 3], &[0.0f32, 0.0, f32::NEG_INFINITY])?;
//! session.predict("main", &[("x", input.view())])?;
//! let output = session.output("y").expect("an output of the function");
//! assert_eq!(output.slice::<f32>()?, [0.5, 0.5, 0.0]);
//! # Ok(())
//! # }
//! ```
//!
//! A benchmark starts a fresh process per launch. A program of one's own can be that process, or name another one, such
//! as an installed `anemeter` ([`Processes::of_program`](harness::Processes::of_program)). Every error is an
//! [`std::error::Error`] that can be sent between threads, so `?` works with any boxed error:
//!
//! ```no_run
//! use anemeter::bundle::Bundle;
//! use anemeter::evaluate::{self, Baseline, BenchRequest, GateRules};
//! use anemeter::gate::InterimLook;
//! use anemeter::harness::{self, BenchConfig, Processes};
//! use anemeter::report::Report;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     // A launch is this program again, which then does nothing else.
//!     if harness::serve_if_worker()? {
//!         return Ok(());
//!     }
//!     let rules = GateRules::read(None, None)?;
//!     let request = BenchRequest {
//!         config: BenchConfig { launches: 6, ..BenchConfig::built_in()? },
//!         runtime: None,
//!         probe_kv: false,
//!         soak: None,
//!         slow_down_pct: None,
//!         profiles: &rules.profiles,
//!     };
//!     let bundle = Bundle::open("bundle")?;
//!     let report = evaluate::measure(&bundle, &request, &mut Processes::of_this_program()?, &mut |_| ())?;
//!     let sessions = [Report::read("reports/blessed".as_ref())?];
//!     let verdict = rules.judge(&report, Baseline::Sessions(&sessions), InterimLook::only())?;
//!     println!("{}", anemeter::render::headline(&verdict));
//!     Ok(())
//! }
//! ```

pub mod adopt;
pub mod cli;
pub mod evaluate;
pub mod export;

pub use anemeter_base::{advice, atomic, bounded, config, files, hardware, schema, text, time, vocabulary};
pub use anemeter_convert::{bundle, calibrate, checkpoint, compress, contract, lower, model};
pub use anemeter_coreai as coreai;
pub use anemeter_harness::{self as harness, encode, eval, generate, tensor_files, verify};
pub use anemeter_kernels::{self as kernels, tensor};
pub use anemeter_measure::{baseline, compare, gate, history, import, render, report, stats, sweep};
pub use anemeter_mil::{self as mil, cost, graph, lint, package};
#[cfg(feature = "oracle")]
pub use anemeter_oracle as oracle;
pub use anemeter_runtime as runtime;
#[cfg(feature = "serve")]
pub use anemeter_serve as serve;
