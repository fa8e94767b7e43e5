//! Encoders: texts in; vectors of texts or tokens, or scores, out.

mod host_inputs;
mod text;

use anemeter_convert::bundle::{Bundle, Encoder, EncoderOutput};
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::Tensor;
use anemeter_runtime::{Observer, Session};

use crate::generate::GenerateError;
use host_inputs::HostInputs;

pub use text::EncoderText;

/// What a text is to an encoder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncoderTokens {
    /// Tokens with those around them.
    pub ids: Vec<u32>,
    /// The kind of segment of each.
    pub types: Vec<u32>,
}

impl EncoderTokens {
    /// Tokens of one kind.
    pub fn of(ids: Vec<u32>) -> EncoderTokens {
        let types = vec![0; ids.len()];
        EncoderTokens { ids, types }
    }
}

/// What came of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// The vector, or those of all tokens, token by token.
    pub values: Vec<f32>,
    /// Numbers of one vector.
    pub width: usize,
    /// The sequence length that it was computed at.
    pub seq_len: usize,
}

/// Runs the packages of an encoder.
pub struct EncoderDriver {
    sessions: Vec<Box<dyn Session>>,
    /// Names of the inputs of each package.
    takes: Vec<(String, Vec<String>)>,
    inputs: HostInputs,
    described: Encoder,
}

/// The function of every package.
const MAIN: &str = anemeter_base::vocabulary::FunctionRole::MAIN;
/// What packages hand on.
const HANDED: (&str, &str) = ("hidden_out", "hidden");

impl EncoderDriver {
    /// A driver over one session per package.
    pub fn new(bundle: &Bundle, sessions: Vec<Box<dyn Session>>) -> Result<EncoderDriver, GenerateError> {
        let described = bundle.encoder().map_err(|error| GenerateError::request(error.to_string()))?.clone();
        let manifest = bundle.manifest();
        let mut takes = Vec::new();
        for chunk in &manifest.chunks {
            let main = chunk.functions.iter().find(|function| function.name == MAIN).ok_or_else(|| {
                GenerateError::file(bundle.path(&chunk.file.name), format!("has no function `{MAIN}`"))
            })?;
            let names = main.inputs.iter().map(|port| port.name.clone()).collect();
            takes.push((chunk.file.name.clone(), names));
        }
        if takes.len() != sessions.len() {
            let problem = format!("{} sessions for {} packages", sessions.len(), takes.len());
            return Err(GenerateError::request(problem));
        }
        let inputs = HostInputs::new(manifest, &described)?;
        Ok(EncoderDriver { sessions, takes, inputs, described })
    }

    /// Sequence lengths, shortest first.
    pub fn lengths(&self) -> &[usize] {
        self.inputs.lengths()
    }

    /// Texts of one prediction.
    pub fn batch(&self) -> usize {
        self.inputs.batch()
    }

    /// Tokens in the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.inputs.vocabulary()
    }

    /// What comes out.
    pub fn output(&self) -> EncoderOutput {
        self.described.output
    }

    /// Encodes texts, as many at once as the packages take, at the shortest length that fits or the one asked for.
    pub fn encode(
        &mut self,
        texts: &[EncoderTokens],
        seq_len: Option<usize>,
    ) -> Result<Vec<Encoded>, GenerateError> {
        let mut encoded = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.batch().max(1)) {
            let seq_len = self.inputs.length(batch, seq_len)?;
            let inputs = self.inputs.fill(batch, seq_len)?;
            self.predict(&inputs)?;
            for (row, text) in batch.iter().enumerate() {
                encoded.push(self.row(row, text.ids.len(), seq_len)?);
            }
        }
        Ok(encoded)
    }

    fn predict(&mut self, inputs: &[(String, Tensor)]) -> Result<(), GenerateError> {
        let mut handed: Option<Tensor> = None;
        for (session, (chunk, takes)) in self.sessions.iter_mut().zip(&self.takes) {
            let mut views = Vec::with_capacity(takes.len());
            for name in takes {
                let given = inputs.iter().find(|(given, _)| given == name).map(|(_, tensor)| tensor);
                let tensor = given.or(handed.as_ref().filter(|_| name == HANDED.1)).ok_or_else(|| {
                    let problem = format!("takes an input `{name}`, which encoders do not have");
                    GenerateError::Output { chunk: chunk.clone(), problem }
                })?;
                views.push((name.as_str(), tensor.view()));
            }
            let failed = |source| GenerateError::Runtime { chunk: chunk.clone(), source };
            session.predict(MAIN, &views).map_err(failed)?;
            drop(views);
            handed = session.output(HANDED.0).map(|view| view.to_tensor());
        }
        Ok(())
    }

    /// What came of a text.
    fn row(&self, row: usize, tokens: usize, seq_len: usize) -> Result<Encoded, GenerateError> {
        let Encoder { output, width, .. } = self.described;
        let chunk = || self.takes.last().map(|(chunk, _)| chunk.clone()).unwrap_or_default();
        let wrong = |problem: String| GenerateError::Output { chunk: chunk(), problem };
        let view = self.sessions.last().and_then(|session| session.output(output.name()));
        let view = view.ok_or_else(|| wrong(format!("gives no output `{}`", output.name())))?;
        let columns = if output == EncoderOutput::HiddenStates { seq_len } else { 1 };
        let size = width * columns;
        if view.len() != size * self.batch() {
            let (shape, batch) = (view.shape(), self.batch());
            let problem = format!("`{}` is {shape:?}, expected {batch} x {width} x {columns}", output.name());
            return Err(wrong(problem));
        }
        let mut values = vec![0.0; size];
        to_f32(&view, row * size..(row + 1) * size, &mut values);
        if output == EncoderOutput::HiddenStates {
            values = by_token(&values, (width, columns), tokens);
        }
        Ok(Encoded { values, width, seq_len })
    }

    /// Watches the following predictions with an observer per package.
    pub(crate) fn watch(&mut self, observers: Vec<Box<dyn Observer>>) {
        for (session, observer) in self.sessions.iter_mut().zip(observers) {
            session.observe(Some(observer));
        }
    }

    /// Stops watching and gives the observers back.
    pub(crate) fn unwatch(&mut self) -> Vec<Box<dyn Observer>> {
        self.sessions.iter_mut().filter_map(|session| session.observe(None)).collect()
    }
}

/// `[width, columns]` as the vectors of the first tokens, one after the other.
fn by_token(values: &[f32], (width, columns): (usize, usize), tokens: usize) -> Vec<f32> {
    let token = |token: usize| (0..width).map(move |channel| values[channel * columns + token]);
    (0..tokens.min(columns)).flat_map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_become_vectors_of_tokens() {
        let values = [1.0, 2.0, 9.0, 3.0, 4.0, 9.0];
        assert_eq!(by_token(&values, (2, 3), 2), [1.0, 3.0, 2.0, 4.0]);
    }
}
