//! What a head gives: logits of each position, in one piece or in slices of the vocabulary, or the largest of each slice.

use std::iter;

use super::input::Piece;
use crate::generate::error::Result;
use anemeter_convert::bundle::contract::ArgMax;
use anemeter_kernels::convert::{to_f32, to_ints};
use anemeter_kernels::tensor::TensorView;

/// Gets an output by name.
type Output<'a> = dyn Fn(&str) -> Result<TensorView<'a>> + 'a;

/// Takes the logits of the last token, slice by slice; says what is wrong with them.
pub(super) fn logits(
    names: &[String],
    output: &Output<'_>,
    piece: &Piece<'_>,
    logits: &mut [f32],
) -> Result<Result<(), String>> {
    let mut offset = 0;
    for name in names {
        let given = output(name)?;
        let Some(slice) = given.shape().last().copied().filter(|&slice| slice > 0) else {
            return Ok(Err(format!("`{name}` of the shape {:?}, expected logits", given.shape())));
        };
        let row = match given.len() / slice {
            1 if piece.ids.len() == piece.width => 0,
            rows if rows == piece.width => piece.ids.len() - 1,
            rows => {
                let (width, count) = (piece.width, piece.ids.len());
                return Ok(Err(format!("`{name}` of {rows} positions for {count} tokens among {width}")));
            }
        };
        let Some(to) = logits.get_mut(offset..offset + slice) else {
            let (found, expected) = (offset + slice, logits.len());
            return Ok(Err(format!("{found} logits or more, expected {expected}")));
        };
        if !given.dtype().is_float() {
            return Ok(Err(format!("`{name}` of {}, expected floats", given.dtype())));
        }
        to_f32(&given, row * slice..(row + 1) * slice, to);
        offset += slice;
    }
    match offset == logits.len() {
        true => Ok(Ok(())),
        false => Ok(Err(format!("{offset} logits, expected {}", logits.len()))),
    }
}

/// Takes the largest logit there is; all others become minus infinity.
pub(super) fn largest(
    argmax: &[ArgMax],
    output: &Output<'_>,
    logits: &mut [f32],
) -> Result<Result<(), String>> {
    let mut best: Option<(usize, f32)> = None;
    for ArgMax { index, value, offsets } in argmax {
        let indices = match to_ints(&output(index)?) {
            Ok(indices) => indices,
            Err(error) => return Ok(Err(format!("`{index}`: {error}"))),
        };
        let mut values = vec![0.0f32; indices.len()];
        if let Some(value) = value {
            let given = output(value)?;
            if given.len() != indices.len() || !given.dtype().is_float() {
                return Ok(Err(format!("`{value}` of {} for {} indices", given.len(), indices.len())));
            }
            to_f32(&given, 0..given.len(), &mut values);
        }
        // Without offsets the indices are tokens.
        if !offsets.is_empty() && offsets.len() != indices.len() {
            let (found, slices) = (indices.len(), offsets.len());
            return Ok(Err(format!("`{index}` of {found} indices, and the contract has {slices} offsets")));
        }
        let offsets = offsets.iter().copied().chain(iter::repeat(0));
        for ((&index, &value), offset) in indices.iter().zip(&values).zip(offsets) {
            let token = usize::try_from(index).ok().and_then(|index| index.checked_add(offset));
            let Some(token) = token.filter(|&token| token < logits.len()) else {
                return Ok(Err(format!("the index {index}, and the vocabulary has {} tokens", logits.len())));
            };
            if best.is_none_or(|(_, largest)| value > largest) {
                best = Some((token, value));
            }
        }
    }
    let Some((token, value)) = best else { return Ok(Err("no index".to_owned())) };
    logits.fill(f32::NEG_INFINITY);
    logits[token] = value;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::Tensor;

    #[test]
    fn slices_follow_one_another_and_the_last_token_counts() {
        let slices = [
            ("logits1", Tensor::from_slice(&[1, 3, 2], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap()),
            ("logits2", Tensor::from_slice(&[1, 3, 1], &[6.0f32, 7.0, 8.0]).unwrap()),
        ];
        let output = |name: &str| Ok(slices.iter().find(|(n, _)| *n == name).unwrap().1.view());
        let names = ["logits1".to_owned(), "logits2".to_owned()];
        let mut found = [0.0; 3];
        let piece = Piece { ids: &[1, 2], begin: 0, width: 3, context: 3 };
        logits(&names, &output, &piece, &mut found).unwrap().unwrap();
        assert_eq!(found, [2.0, 3.0, 7.0]);
        let wrong = logits(&names[..1], &output, &piece, &mut found).unwrap().unwrap_err();
        assert_eq!(wrong, "2 logits, expected 3");
        let piece = Piece { ids: &[1], begin: 0, width: 2, context: 3 };
        let wrong = logits(&names, &output, &piece, &mut found).unwrap().unwrap_err();
        assert_eq!(wrong, "`logits1` of 3 positions for 1 tokens among 2");
        let scalar = Tensor::from_slice(&[], &[1.0f32]).unwrap();
        let wrong = logits(&names, &|_| Ok(scalar.view()), &piece, &mut found).unwrap().unwrap_err();
        assert_eq!(wrong, "`logits1` of the shape [], expected logits");
    }

    #[test]
    fn the_largest_of_all_slices_is_taken() {
        let indices = Tensor::from_slice(&[2], &[1i32, 2]).unwrap();
        let values = Tensor::from_slice(&[2], &[0.5f32, 0.75]).unwrap();
        let output = |name: &str| Ok(if name == "argmax_idx" { indices.view() } else { values.view() });
        let argmax = ArgMax {
            index: "argmax_idx".to_owned(),
            value: Some("argmax_val".to_owned()),
            offsets: vec![0, 3],
        };
        let mut found = [0.0; 6];
        largest(std::slice::from_ref(&argmax), &output, &mut found).unwrap().unwrap();
        assert_eq!((found[5], found[1]), (0.75, f32::NEG_INFINITY));
        let wrong = largest(std::slice::from_ref(&argmax), &output, &mut found[..5]).unwrap().unwrap_err();
        assert_eq!(wrong, "the index 2, and the vocabulary has 5 tokens");
        let missing = ArgMax { offsets: vec![0], ..argmax.clone() };
        let wrong = largest(&[missing], &output, &mut found).unwrap().unwrap_err();
        assert_eq!(wrong, "`argmax_idx` of 2 indices, and the contract has 1 offsets");
        let tokens = ArgMax { offsets: Vec::new(), ..argmax };
        largest(&[tokens], &output, &mut found).unwrap().unwrap();
        assert_eq!((found[2], found[1]), (0.75, f32::NEG_INFINITY));
    }
}
