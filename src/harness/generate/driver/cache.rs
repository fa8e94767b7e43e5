//! Keys and values that the host keeps, and how kept ones move to a longer cache.

use half::f16;

use super::buffer::Buffer;
use anemeter_kernels::tensor::{AlignedBuf, DType, Element, Tensor, TensorError, TensorView};

/// Keys or values of one chunk, `[batch, channels, 1, length]`: fp16, or fp32 once a prediction gives that.
pub(super) struct Cache {
    buffer: Buffer,
    batch: usize,
    channels: usize,
    length: usize,
}

impl Cache {
    pub(super) fn new(batch: usize, channels: usize) -> Result<Cache, TensorError> {
        let buffer = Buffer::zeroed(DType::F16, &[batch, channels, 1, 0])?;
        Ok(Cache { buffer, batch, channels, length: 0 })
    }

    pub(super) fn view(&self) -> Result<TensorView<'_>, TensorError> {
        self.buffer.view()
    }

    /// Takes a length whatever was kept. Masked columns may hold anything finite.
    pub(super) fn restart(&mut self, length: usize) -> Result<(), TensorError> {
        self.length = length;
        self.buffer.resize(&[self.batch, self.channels, 1, length])
    }

    pub(super) fn clear(&mut self) {
        match self.buffer.dtype() {
            DType::F32 => self.buffer.elements_mut::<f32>().fill(0.0),
            _ => self.buffer.elements_mut::<f16>().fill(f16::ZERO),
        }
    }

    /// Makes the columns more, keeping the first `kept`.
    pub(super) fn grow(&mut self, length: usize, kept: usize) -> Result<(), TensorError> {
        let old = self.length;
        self.restart(length)?;
        let rows = self.batch * self.channels;
        match self.buffer.dtype() {
            DType::F32 => spread(self.buffer.elements_mut::<f32>(), rows, (old, length), kept),
            _ => spread(self.buffer.elements_mut::<f16>(), rows, (old, length), kept),
        }
        Ok(())
    }

    /// Writes the first `counts[b]` columns of what a prediction gave at position `starts[b]`.
    pub(super) fn write(
        &mut self,
        new: &TensorView<'_>,
        starts: &[usize],
        counts: &[usize],
    ) -> Result<(), TensorError> {
        if new.dtype() == DType::F32 {
            return self.write_elements::<f32>(new, starts, counts);
        }
        self.write_elements::<f16>(new, starts, counts)
    }

    fn write_elements<T: Element>(
        &mut self,
        new: &TensorView<'_>,
        starts: &[usize],
        counts: &[usize],
    ) -> Result<(), TensorError> {
        let width = new.shape().last().copied().unwrap_or(0);
        let needed = self.batch * self.channels * width;
        let new = new.slice::<T>()?;
        if new.len() != needed {
            let shape = vec![self.batch, self.channels, 1, width];
            return Err(TensorError::WrongLength { dtype: T::DTYPE, shape, needed, found: new.len() });
        }
        if self.buffer.dtype() != T::DTYPE {
            // Nothing is kept yet: a model gives one type.
            self.buffer = Buffer::zeroed(T::DTYPE, &[self.batch, self.channels, 1, self.length])?;
        }
        let (length, channels) = (self.length, self.channels);
        let sequences = self.buffer.elements_mut::<T>().chunks_exact_mut((channels * length).max(1));
        for (i, (kept, new)) in sequences.zip(new.chunks_exact((channels * width).max(1))).enumerate() {
            let (start, count) = (starts[i], counts[i]);
            for (kept, new) in kept.chunks_exact_mut(length).zip(new.chunks_exact(width)) {
                match count {
                    1 => kept[start] = new[0],
                    _ => kept[start..][..count].copy_from_slice(&new[..count]),
                }
            }
        }
        Ok(())
    }
}

/// Moves rows of `old` columns to where they are with `length`, keeping the first `kept` of each.
fn spread<T: Element>(elements: &mut [T], rows: usize, (old, length): (usize, usize), kept: usize) {
    for row in (1..rows).rev() {
        elements.copy_within(row * old..row * old + kept, row * length);
    }
}

/// A state `[rows, heads, length, width]` with its first `kept` positions, at another length.
pub(super) fn moved(state: &TensorView<'_>, length: usize, kept: usize) -> Result<Tensor, TensorError> {
    let [rows, heads, old, width] = *state.shape() else {
        return Err(TensorError::WrongLength {
            dtype: state.dtype(),
            shape: state.shape().to_vec(),
            needed: 4,
            found: state.rank(),
        });
    };
    let size = width * state.dtype().byte_len(1).unwrap_or(1);
    let mut to = AlignedBuf::zeroed(rows * heads * length * size);
    let kept = kept.min(old).min(length) * size;
    let runs = state.bytes().chunks_exact((old * size).max(1));
    for (from, to) in runs.zip(to.chunks_exact_mut((length * size).max(1))) {
        to[..kept].copy_from_slice(&from[..kept]);
    }
    Tensor::new(state.dtype(), [rows, heads, length, width][..].into(), to.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(values: &[f32]) -> Vec<f16> {
        values.iter().map(|&v| f16::from_f32(v)).collect()
    }

    #[test]
    fn columns_stay_with_their_rows_when_a_cache_grows() {
        let mut cache = Cache::new(2, 2).unwrap();
        cache.restart(2).unwrap();
        let first = halves(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let new = Tensor::from_slice(&[2, 2, 1, 2], &first).unwrap();
        cache.write(&new.view(), &[0, 0], &[2, 1]).unwrap();
        cache.grow(5, 2).unwrap();
        let next = Tensor::from_slice(&[2, 2, 1, 1], &halves(&[9.0, 10.0, 11.0, 12.0])).unwrap();
        cache.write(&next.view(), &[2, 1], &[1, 1]).unwrap();
        let found = cache.view().unwrap().slice::<f16>().unwrap();
        let row = |row: usize, count: usize| found[row * 5..][..count].to_vec();
        assert_eq!(row(0, 3), halves(&[1.0, 2.0, 9.0]));
        assert_eq!(row(1, 3), halves(&[3.0, 4.0, 10.0]));
        assert_eq!(row(2, 2), halves(&[5.0, 11.0]));
        assert_eq!(row(3, 2), halves(&[7.0, 12.0]));
        let wrong = Tensor::from_slice(&[4, 1, 1, 1], &halves(&[0.0; 4])).unwrap();
        cache.channels = 3;
        assert!(cache.write(&wrong.view(), &[0, 0], &[1, 1]).is_err());
    }

    #[test]
    fn states_move_position_by_position() {
        let numbers: Vec<f16> = (0..12).map(|v| f16::from_f32(v as f32)).collect();
        let state = Tensor::from_slice(&[1, 2, 3, 2], &numbers).unwrap();
        let longer = moved(&state.view(), 4, 2).unwrap();
        assert_eq!(longer.shape(), [1, 2, 4, 2]);
        let expected =
            halves(&[0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 6.0, 7.0, 8.0, 9.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(longer.view().slice::<f16>().unwrap(), expected);
        assert!(moved(&Tensor::from_slice(&[12], &numbers).unwrap().view(), 4, 2).is_err());
    }
}
