//! How far activations stand out, with rotations and without.

use std::path::Path;

use anemeter::calibrate::{Outlier, outliers};
use anemeter::{checkpoint, model};
use anyhow::{Context, Result};

/// Tokens that are looked at, and those of a sequence.
const TOKENS: usize = 1024;
const SEQ_LEN: usize = 512;

/// A table of the model as it is and rotated.
pub(super) fn table(model: &Path, ids: &[u32]) -> Result<String> {
    let decoder = model::build(&checkpoint::open(model)?)?;
    let rotated = model::rotate(&decoder).decoder;
    let ids = &ids[..ids.len().min(TOKENS)];
    let sequences: Vec<Vec<u32>> = ids.chunks(SEQ_LEN).map(<[u32]>::to_vec).collect();
    let mut text = format!(
        "Largest magnitude over root mean square of the activations of {} tokens, over all places:\n\n\
         | form | largest | where | median |\n|---|---|---|---|\n",
        ids.len()
    );
    for (form, decoder) in [("as it is", &decoder), ("rotated", &rotated)] {
        text += &row(form, &outliers(decoder, &sequences)?)?;
    }
    Ok(text)
}

/// Places are ordered, the furthest first.
fn row(form: &str, places: &[Outlier]) -> Result<String> {
    let (largest, median) = (places.first(), places.get(places.len() / 2));
    let (largest, median) = largest.zip(median).context("the model has no activations")?;
    Ok(format!("| {form} | {:.1} | `{}` | {:.1} |\n", largest.ratio, largest.tensor, median.ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_largest_and_the_median() {
        let place = |tensor: &str, ratio| Outlier { tensor: tensor.to_owned(), ratio };
        let places = [place("a", 90.0), place("b", 7.25), place("c", 3.0)];
        assert_eq!(row("rotated", &places).unwrap(), "| rotated | 90.0 | `a` | 7.2 |\n");
        assert!(row("rotated", &[]).is_err());
    }
}
