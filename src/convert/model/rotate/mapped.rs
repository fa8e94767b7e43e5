//! A weight with maps of its inputs and outputs multiplied into it, computed while it is read.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::weight::{Source, Weight};
use super::rotation::Rotation;

/// Columns that are turned at a time, and rows.
const LANES: usize = 64;
const ROWS: usize = 16;

/// A matrix `L · W · diag(s) · R` of another one.
#[derive(Debug)]
pub struct Mapped {
    inner: Weight,
    /// A factor of each input.
    scales: Option<Vec<f32>>,
    inputs: Option<Arc<Rotation>>,
    /// Of the outputs, or of every so many of them.
    outputs: Option<Arc<Rotation>>,
    whole: Mutex<Whole>,
}

/// The elements of a matrix whose rows depend on each other, until all of them were read.
#[derive(Debug, Default)]
struct Whole {
    elements: Option<Arc<Vec<f32>>>,
    read: usize,
}

/// What is multiplied into a weight.
#[derive(Debug, Clone, Default)]
pub(super) struct Maps {
    /// A factor of each input.
    pub(super) scales: Option<Vec<f32>>,
    /// Rotation of the inputs, or of every so many of them.
    pub(super) inputs: Option<Arc<Rotation>>,
    /// Rotation of the outputs, or of every so many of them.
    pub(super) outputs: Option<Arc<Rotation>>,
}

impl Maps {
    /// Whether a matrix divides as the maps need it.
    fn fits(&self, shape: &[usize]) -> bool {
        let &[rows, columns] = shape else { return false };
        let divides = |rotation: &Option<Arc<Rotation>>, size: usize| {
            rotation.as_ref().is_none_or(|rotation| size.is_multiple_of(rotation.width().max(1)))
        };
        self.scales.as_ref().is_none_or(|scales| scales.len() == columns)
            && divides(&self.inputs, columns)
            && divides(&self.outputs, rows)
    }

    /// The weight with the maps. One of another shape than its place has stays as it is: lowering names it.
    pub(super) fn weight(self, inner: &Weight) -> Weight {
        if !self.fits(&inner.shape) {
            return inner.clone();
        }
        let Maps { scales, inputs, outputs } = self;
        let mapped = Mapped { inner: inner.clone(), scales, inputs, outputs, whole: Mutex::default() };
        Weight {
            name: inner.name.clone(),
            shape: inner.shape.clone(),
            source: Source::Mapped(Arc::new(mapped)),
        }
    }
}

impl Mapped {
    pub(crate) fn inner(&self) -> &Weight {
        &self.inner
    }

    /// The elements of the other matrix that those of a range depend on.
    pub(crate) fn needed(&self, range: Range<usize>) -> Range<usize> {
        let width = self.width();
        match self.outputs {
            Some(_) => 0..self.inner.element_count(),
            None => {
                range.start / width * width..self.inner.element_count().min(range.end.div_ceil(width) * width)
            }
        }
    }

    fn width(&self) -> usize {
        self.inner.shape.last().copied().unwrap_or(1).max(1)
    }

    pub(crate) fn read(&self, range: Range<usize>, out: &mut [f32]) {
        if self.outputs.is_some() {
            return out[..range.len()].copy_from_slice(&self.whole(range.len())[range]);
        }
        let width = self.width();
        let mut rows = vec![0.0; ROWS * width];
        let mut at = range.start;
        while at < range.end {
            let first = at / width * width;
            let last =
                self.inner.element_count().min(first + ROWS * width).min(self.needed(range.clone()).end);
            let rows = &mut rows[..last - first];
            self.rows(first..last, rows);
            let end = last.min(range.end);
            out[at - range.start..end - range.start].copy_from_slice(&rows[at - first..end - first]);
            at = end;
        }
    }

    /// Whole rows with their inputs mapped.
    fn rows(&self, range: Range<usize>, rows: &mut [f32]) {
        self.inner.read(range, rows);
        for row in rows.chunks_mut(self.width()) {
            if let Some(scales) = &self.scales {
                row.iter_mut().zip(scales).for_each(|(x, scale)| *x *= scale);
            }
            if let Some(rotation) = &self.inputs {
                row.chunks_mut(rotation.width()).for_each(|part| rotation.apply(part, 1));
            }
        }
    }

    /// All elements, kept until so many were asked for that all may have been read. Nothing in here is shared among threads:
    /// one that waited for others while it holds the lock might be given work that needs it.
    fn whole(&self, wanted: usize) -> Arc<Vec<f32>> {
        let mut kept = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let elements = kept.elements.take().unwrap_or_else(|| Arc::new(self.computed()));
        kept.read += wanted;
        match kept.read >= elements.len() {
            true => kept.read = 0,
            false => kept.elements = Some(elements.clone()),
        }
        elements
    }

    fn computed(&self) -> Vec<f32> {
        let (count, width) = (self.inner.element_count(), self.width());
        let mut elements = vec![0.0; count];
        self.rows(0..count, &mut elements);
        let Some(rotation) = &self.outputs else { return elements };
        let mut strip = vec![0.0; rotation.width() * LANES];
        for rows in elements.chunks_mut(rotation.width() * width) {
            for first in (0..width).step_by(LANES) {
                let lanes = LANES.min(width - first);
                let strip = &mut strip[..rotation.width() * lanes];
                for (to, from) in strip.chunks_mut(lanes).zip(rows.chunks(width)) {
                    to.copy_from_slice(&from[first..first + lanes]);
                }
                rotation.apply(strip, lanes);
                for (from, to) in strip.chunks(lanes).zip(rows.chunks_mut(width)) {
                    to[first..first + lanes].copy_from_slice(from);
                }
            }
        }
        elements
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::stored;
    use super::*;

    /// A matrix of 24 by 40 with all maps, or without one of the outputs, and what it should be.
    fn case(has_outputs: bool) -> (Weight, Vec<f32>) {
        let inner = Weight {
            name: "w".to_owned(),
            shape: [24, 40][..].into(),
            source: Source::Stored(stored(&[24, 40])),
        };
        let (inputs, outputs) = (Rotation::new(20, 1), Rotation::new(8, 2));
        let scales: Vec<f32> = (0..40).map(|i| 1.0 + i as f32 / 40.0).collect();
        let mut wanted: Vec<f32> = (0..960).map(|i| i as f32 * scales[i % 40]).collect();
        wanted.chunks_mut(20).for_each(|part| inputs.apply(part, 1));
        let outputs = has_outputs.then(|| Arc::new(outputs));
        if let Some(outputs) = &outputs {
            wanted.chunks_mut(8 * 40).for_each(|rows| outputs.apply(rows, 40));
        }
        let maps = Maps { scales: Some(scales), inputs: Some(Arc::new(inputs)), outputs };
        (maps.weight(&inner), wanted)
    }

    #[test]
    fn every_range_is_that_of_the_product() {
        for has_outputs in [false, true] {
            let (weight, wanted) = case(has_outputs);
            for range in [0..960, 0..1, 39..41, 955..960, 100..700, 17..17, 0..960, 640..960] {
                let mut out = vec![-1.0; range.len()];
                weight.read(range.clone(), &mut out);
                for (found, wanted) in out.iter().zip(&wanted[range.clone()]) {
                    assert!((found - wanted).abs() < 1e-3, "{range:?}: {found} for {wanted}");
                }
            }
        }
    }

    #[test]
    fn elements_are_dropped_once_all_were_read() {
        let (weight, _) = case(true);
        let Source::Mapped(mapped) = &weight.source else { panic!("the weight is mapped") };
        let is_kept = || mapped.whole.lock().unwrap().elements.is_some();
        let mut out = vec![0.0; 960];
        weight.read(0..400, &mut out);
        assert!(is_kept());
        weight.read(400..960, &mut out);
        assert!(!is_kept());
    }

    #[test]
    fn a_weight_of_another_shape_stays() {
        let inner = Weight {
            name: "w".to_owned(),
            shape: [24, 41][..].into(),
            source: Source::Stored(stored(&[24, 41])),
        };
        let maps = Maps { inputs: Some(Arc::new(Rotation::new(20, 1))), ..Maps::default() };
        assert!(matches!(maps.weight(&inner).source, Source::Stored(_)));
    }
}
