//! anemeter takes a trained checkpoint to a Core ML package and proves how fast and how right that package is.
//!
//! ```text
//! export    checkpoint -> model graph -> compression -> MIL program -> .mlpackage
//! evaluate  .mlpackage -> runtime -> harness -> report -> gate -> baseline
//! ```
//!
//! [`export`] and [`evaluate`](mod@evaluate) are the two flows. In the middle are [`mil`] programs, [packages](package) in
//! both directions, and [runtimes](runtime), one of which executes packages on any machine:
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

pub mod baseline;
pub mod bundle;
pub mod checkpoint;
pub mod cli;
pub mod compare;
pub mod compress;
pub mod config;
pub mod cost;
pub mod eval;
pub mod evaluate;
pub mod export;
pub mod gate;
pub mod generate;
pub mod hardware;
pub mod harness;
pub mod kernels;
pub mod lint;
pub mod lower;
pub mod mil;
pub mod model;
#[cfg(feature = "oracle")]
pub mod oracle;
pub mod package;
pub mod render;
pub mod report;
pub mod runtime;
pub mod stats;
pub mod sweep;
pub mod tensor;
#[cfg(feature = "oracle")]
pub mod verify;
pub mod view;
