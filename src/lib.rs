//! anemeter converts a language-model checkpoint to Core ML, checks its logits against the checkpoint's, benchmarks the
//! packages, and fails CI when they are slower or less accurate than an approved baseline for the same hardware.
//!
//! ```text
//! export    checkpoint -> model -> MIL program -> compression -> verified program -> .mlpackage
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

pub mod cli;
pub mod evaluate;
pub mod export;

pub use anemeter_base::{advice, atomic, config, hardware, schema, text, time, vocabulary};
pub use anemeter_convert::{bundle, checkpoint, compress, lower, model};
pub use anemeter_harness::{self as harness, eval, generate, verify};
pub use anemeter_kernels::{self as kernels, tensor};
pub use anemeter_measure::{baseline, compare, gate, render, report, stats, sweep};
pub use anemeter_mil::{self as mil, cost, graph, lint, package};
#[cfg(feature = "oracle")]
pub use anemeter_oracle as oracle;
pub use anemeter_runtime as runtime;
