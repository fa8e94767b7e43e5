//! Tensors whose elements lie apart: rows that are padded, dimensions in another order.
//!
//! Contiguous bytes are gathered from strided ones and scattered back. Sizes and strides come from outside, so every
//! index is checked before any element is touched.

use std::fmt;

use anemeter_kernels::tensor::{Shape, shape};

/// How elements lie in memory. Strides count elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strided {
    shape: Shape,
    strides: Shape,
    element: usize,
}

/// Why a layout cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayoutError(String);

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Strided {
    /// A layout of elements of so many bytes.
    pub(crate) fn new(shape: &[usize], strides: &[usize], element: usize) -> Result<Strided, LayoutError> {
        let layout = Strided { shape: shape.into(), strides: strides.into(), element };
        if shape.len() != strides.len() {
            return Err(LayoutError(format!("has {} strides for shape {shape:?}", strides.len())));
        }
        match layout.extent().zip(shape::element_count(shape).and_then(|n| n.checked_mul(element))) {
            Some(_) => Ok(layout),
            None => Err(LayoutError(format!("has impossible strides {strides:?} for shape {shape:?}"))),
        }
    }

    /// Bytes from the first to the end of the last element.
    fn extent(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let last =
            self.shape.iter().zip(&self.strides).try_fold(0usize, |last, (&size, &stride)| {
                last.checked_add((size - 1).checked_mul(stride)?)
            })?;
        last.checked_add(1)?.checked_mul(self.element)
    }

    /// Bytes of the elements when they lie side by side.
    pub(crate) fn contiguous_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.element
    }

    /// Copies strided elements into contiguous ones.
    pub(crate) fn gather(&self, from: &[u8], to: &mut [u8]) -> Result<(), LayoutError> {
        self.check(from.len(), to.len())?;
        self.runs(|strided, contiguous, bytes| {
            to[contiguous..contiguous + bytes].copy_from_slice(&from[strided..strided + bytes]);
        });
        Ok(())
    }

    /// Copies contiguous elements into strided ones; what lies between them stays as it is.
    pub(crate) fn scatter(&self, from: &[u8], to: &mut [u8]) -> Result<(), LayoutError> {
        self.check(to.len(), from.len())?;
        self.runs(|strided, contiguous, bytes| {
            to[strided..strided + bytes].copy_from_slice(&from[contiguous..contiguous + bytes]);
        });
        Ok(())
    }

    fn check(&self, strided: usize, contiguous: usize) -> Result<(), LayoutError> {
        let needed = self.extent().unwrap_or(usize::MAX);
        if needed > strided {
            return Err(LayoutError(format!(
                "has {strided} bytes, shape {:?} with strides {:?} takes {needed}",
                self.shape, self.strides
            )));
        }
        let expected = self.contiguous_bytes();
        match expected == contiguous {
            true => Ok(()),
            false => Err(LayoutError(format!("has {expected} bytes of elements, expected {contiguous}"))),
        }
    }

    /// Visits runs of elements that lie side by side: offset among the strided, offset among the contiguous, length.
    fn runs(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let rank = self.shape.len();
        let mut inner = 1;
        let mut axes = rank;
        while axes > 0 && (self.strides[axes - 1] == inner || self.shape[axes - 1] == 1) {
            inner *= self.shape[axes - 1];
            axes -= 1;
        }
        let bytes = inner * self.element;
        let count: usize = self.shape[..axes].iter().product();
        if bytes == 0 {
            return;
        }
        let mut index = Shape::from_elem(0, axes);
        for run in 0..count {
            let offset: usize = index.iter().zip(&self.strides).map(|(i, stride)| i * stride).sum();
            visit(offset * self.element, run * bytes, bytes);
            for axis in (0..axes).rev() {
                index[axis] += 1;
                if index[axis] < self.shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn padded_rows_are_read_without_their_padding() {
        let layout = Strided::new(&[2, 3], &[4, 1], 1).unwrap();
        let mut out = [0; 6];
        layout.gather(&[1, 2, 3, 99, 4, 5, 6], &mut out).unwrap();
        assert_eq!(out, [1, 2, 3, 4, 5, 6]);
        let mut padded = [7; 8];
        layout.scatter(&out, &mut padded).unwrap();
        assert_eq!(padded, [1, 2, 3, 7, 4, 5, 6, 7]);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let error =
            |shape: &[usize], strides: &[usize]| Strided::new(shape, strides, 2).unwrap_err().to_string();
        assert_eq!(error(&[2, 2], &[1]), "has 1 strides for shape [2, 2]");
        assert!(error(&[2, 3], &[usize::MAX, 1]).contains("impossible strides"));
        let layout = Strided::new(&[2, 3], &[4, 1], 2).unwrap();
        let short = layout.gather(&[0; 13], &mut [0; 12]).unwrap_err().to_string();
        assert_eq!(short, "has 13 bytes, shape [2, 3] with strides [4, 1] takes 14");
        assert!(layout.gather(&[0; 14], &mut [0; 10]).is_err());
    }

    proptest! {
        #[test]
        fn every_element_arrives_where_its_index_says(
            shape in proptest::collection::vec(0usize..5, 0..4),
            strides in proptest::collection::vec(0usize..40, 4),
        ) {
            let strides = &strides[..shape.len()];
            let layout = Strided::new(&shape, strides, 1).unwrap();
            let from: Vec<u8> = (0..layout.extent().unwrap()).map(|i| (i % 251) as u8).collect();
            let mut out = vec![0; shape.iter().product()];
            layout.gather(&from, &mut out).unwrap();
            for (flat, &found) in out.iter().enumerate() {
                let (mut rest, mut at) = (flat, 0);
                for axis in (0..shape.len()).rev() {
                    at += rest % shape[axis] * strides[axis];
                    rest /= shape[axis];
                }
                prop_assert_eq!(found, from[at]);
            }
        }

        #[test]
        fn what_is_scattered_is_gathered(
            shape in proptest::collection::vec(1usize..5, 1..4),
            padding in proptest::collection::vec(0usize..4, 4),
        ) {
            let mut strides = vec![1usize; shape.len()];
            for axis in (0..shape.len().saturating_sub(1)).rev() {
                strides[axis] = strides[axis + 1] * shape[axis + 1] + padding[axis];
            }
            let layout = Strided::new(&shape, &strides, 4).unwrap();
            let from: Vec<u8> = (0..layout.contiguous_bytes()).map(|i| (i % 253) as u8).collect();
            let mut strided = vec![0; layout.extent().unwrap()];
            layout.scatter(&from, &mut strided).unwrap();
            let mut back = vec![0; from.len()];
            layout.gather(&strided, &mut back).unwrap();
            prop_assert_eq!(back, from);
        }
    }
}
