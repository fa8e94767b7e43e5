//! Where an evaluation writes: outputs that are placed already or that it sizes itself, and scratch memory.

use super::{OpError, Result};
use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, TensorMut, shape};

/// The outputs of one operation.
pub struct Outputs<'s, 'b> {
    slots: &'s mut [Output<'b>],
    scratch: &'s mut Scratch,
}

/// An output with its memory.
pub struct Output<'a> {
    /// Element type.
    pub dtype: DType,
    /// Shape; `None` until an operation whose output size depends on data sets it.
    pub shape: Option<Shape>,
    /// Its memory.
    pub buffer: OutputBuffer<'a>,
}

/// The memory of an output.
pub enum OutputBuffer<'a> {
    /// Planned memory of exactly the right size.
    Placed(&'a mut [u8]),
    /// Memory that grows as needed and is kept for the next prediction.
    Growable {
        /// The memory.
        buffer: &'a mut AlignedBuf,
        /// The most bytes it may grow to.
        limit: usize,
    },
}

impl Output<'_> {
    fn view(&mut self) -> Result<TensorMut<'_>> {
        let Some(shape) = &self.shape else { refuse!("output shape was not set") };
        let bytes = shape::element_count(shape)
            .and_then(|n| self.dtype.byte_len(n))
            .ok_or_else(|| op_error!("output of shape {shape:?} is too large"))?;
        let data = match &mut self.buffer {
            OutputBuffer::Placed(data) => &mut **data,
            OutputBuffer::Growable { limit, .. } if bytes > *limit => {
                refuse!("an output of shape {shape:?} does not fit into the memory limit");
            }
            OutputBuffer::Growable { buffer, .. } => {
                buffer.resize(bytes);
                &mut buffer[..]
            }
        };
        Ok(TensorMut::new(self.dtype, shape, data)?)
    }
}

impl<'s, 'b> Outputs<'s, 'b> {
    /// Outputs over the given slots.
    pub fn new(slots: &'s mut [Output<'b>], scratch: &'s mut Scratch) -> Outputs<'s, 'b> {
        Outputs { slots, scratch }
    }

    /// Output `i`, whose shape is known.
    pub fn tensor(&mut self, i: usize) -> Result<TensorMut<'_>> {
        self.slots[i].view()
    }

    /// Output `i` together with scratch memory.
    pub fn with_scratch(&mut self, i: usize) -> Result<(TensorMut<'_>, &mut Scratch)> {
        Ok((self.slots[i].view()?, self.scratch))
    }

    /// Every output at once.
    pub fn all(&mut self) -> impl Iterator<Item = Result<TensorMut<'_>>> {
        self.slots.iter_mut().map(Output::view)
    }

    /// Every output at once, and scratch memory.
    pub fn all_with_scratch(&mut self) -> (impl Iterator<Item = Result<TensorMut<'_>>>, &mut Scratch) {
        (self.slots.iter_mut().map(Output::view), self.scratch)
    }

    /// The first two outputs and scratch memory.
    pub fn pair(&mut self) -> Result<(TensorMut<'_>, TensorMut<'_>, &mut Scratch)> {
        match &mut *self.slots {
            [a, b, ..] => Ok((a.view()?, b.view()?, self.scratch)),
            _ => Err(OpError::new("operation needs two outputs")),
        }
    }

    /// How many outputs there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Sets the shape of output `i`, which depends on data, and gives its memory.
    pub fn resize(&mut self, i: usize, shape: &[usize]) -> Result<TensorMut<'_>> {
        let slot = &mut self.slots[i];
        match &slot.shape {
            Some(planned) if planned[..] != *shape => {
                refuse!("output {i} was planned as {planned:?} and came out as {shape:?}")
            }
            Some(_) => slot.view(),
            None => {
                slot.shape = Some(shape.into());
                slot.view()
            }
        }
    }
}

/// Working memory that an evaluation may use freely; it grows once and is reused.
#[derive(Default)]
pub struct Scratch {
    buffer: AlignedBuf,
}

impl Scratch {
    /// Buffers of the given lengths, with arbitrary content.
    pub fn floats<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        const LINE: usize = 16;
        let total: usize = lengths.iter().map(|n| n.next_multiple_of(LINE)).sum();
        if self.buffer.len() < total * 4 {
            self.buffer.resize(total * 4);
        }
        let mut rest: &mut [f32] = bytemuck::cast_slice_mut(&mut self.buffer);
        lengths.map(|n| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n.next_multiple_of(LINE));
            rest = tail;
            &mut head[..n]
        })
    }
}
