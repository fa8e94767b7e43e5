//! Text from a bundle: the one code path that runs a model.
//!
//! A [`Driver`] runs a bundle's functions over tokens, a [`Generator`] goes from prompts to answers and times each phase
//! by a [`Clock`], and [`Text`] is the bundle's tokenizer with its chat template.

mod chat;
mod clock;
mod driver;
mod error;
mod generator;
pub mod sample;
mod text;
mod tokenizer;

pub use chat::{ChatContext, ChatTemplate, Message};
pub use clock::{Clock, ManualClock, SystemClock};
pub(crate) use driver::RotationTable;
pub use driver::{Driver, StepTimings};
pub use error::GenerateError;
pub use generator::{
    Answer, Each, Finish, Generator, Prompt, Request, SampledToken, Sequence, Step, Timings, sessions,
};
pub use sample::Sampling;
pub use text::{Input, Text};
pub use tokenizer::{TextStream, Tokenizer};
