//! The flags of the workload `predict`.

use std::path::PathBuf;

use crate::cli::choice::choice;
use crate::cli::{Failure, Result};
use crate::harness::BenchConfig;
use crate::harness::predict::{RangeText, ShapeText};
use crate::vocabulary::{StateUse, WorkloadKind};

/// What single predictions are measured with.
#[derive(clap::Args)]
pub(in crate::cli) struct PredictArgs {
    /// What one request is: `generate` takes a prompt in and generates tokens, `predict` makes one prediction of a function
    /// [default: `generate` for language models that can be driven, else `predict`].
    #[arg(long, value_name = "KIND", value_parser = choice::<WorkloadKind>())]
    kind: Option<WorkloadKind>,
    /// Functions to predict [default: all].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    functions: Option<Vec<String>>,
    /// Inputs of predictions: a safetensors file with a tensor per input, or several samples as `NAME.0`, `NAME.1`, … [default:
    /// made up from the declared types].
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Shape of an input, such as `image=1x3x224x224`; again for further shapes [default: each that is enumerated, of ranges the
    /// default].
    #[arg(long, value_name = "NAME=SHAPE", value_parser = assigned::<ShapeText>, conflicts_with = "inputs")]
    shape: Vec<(String, ShapeText)>,
    /// Integers that are made up for an input, such as `input_ids=0..30000` [default: 0..4].
    #[arg(long, value_name = "NAME=LOW..END", value_parser = assigned::<RangeText>, conflicts_with = "inputs")]
    range: Vec<(String, RangeText)>,
    /// What a prediction finds in the states of its model [default: `fresh`, which is zeros].
    #[arg(long, value_name = "USE", value_parser = choice::<StateUse>())]
    states: Option<StateUse>,
}

/// A name and what is given for it. Names may have a `=` in them, shapes and ranges have none.
fn assigned<T: std::str::FromStr<Err = String>>(text: &str) -> Result<(String, T), String> {
    let wrong = || format!("`{}` is not NAME=VALUE", text.escape_debug());
    let (name, value) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    Ok((name.to_owned(), value.parse()?))
}

impl PredictArgs {
    /// Puts what was given in place of what the workload says.
    pub(in crate::cli) fn apply(&self, config: &mut BenchConfig) -> Result<()> {
        config.kind = self.kind.or(config.kind);
        let predict = &mut config.predict;
        predict.functions = self.functions.clone().or(predict.functions.take());
        predict.inputs = self.inputs.clone().or(predict.inputs.take());
        predict.states = self.states.unwrap_or(predict.states);
        if !self.shape.is_empty() {
            predict.shapes.clear();
        }
        for (name, shape) in &self.shape {
            predict.shapes.entry(name.clone()).or_default().push(shape.clone());
        }
        for (name, range) in &self.range {
            if predict.ranges.insert(name.clone(), *range).is_some() {
                let name = name.escape_debug();
                return Err(Failure::bad_input(format!("--range is given twice for `{name}`"))
                    .with_help("give one range per input"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_an_equals_sign() {
        let (name, shape) = assigned::<ShapeText>("a=b=1x2").unwrap();
        assert_eq!((name.as_str(), shape.to_string().as_str()), ("a=b", "1x2"));
        for wrong in ["", "x", "=1x2", "x=", "x=1xa"] {
            assert!(assigned::<ShapeText>(wrong).is_err(), "{wrong}");
        }
    }
}
