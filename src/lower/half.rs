//! A weight as fp16, converted on all cores while what came before it is written.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::meter::Meter;
use crate::mil::{Payload, Quantised};
use crate::model::{Integers, Weight};

/// Elements that one thread converts before it hands them over.
const PIECE: usize = 1 << 20;
/// Elements that are in f32 at a time.
const STEP: usize = 1 << 14;

/// A range of a weight's elements as fp16.
pub(super) struct Half {
    weight: Weight,
    range: Range<usize>,
    meter: Arc<Meter>,
}

/// Elements in fp16, or what was wrong with them.
type Converted = io::Result<Vec<f16>>;

impl Half {
    pub(super) fn new(weight: Weight, range: Range<usize>, meter: Arc<Meter>) -> Half {
        Half { weight, range, meter }
    }

    fn pieces(&self) -> Vec<Range<usize>> {
        let starts = self.range.clone().step_by(PIECE);
        starts.map(|start| start..self.range.end.min(start + PIECE)).collect()
    }

    fn convert(&self, piece: Range<usize>) -> Converted {
        let started = Instant::now();
        self.weight.page_in(piece.clone());
        let read = started.elapsed();
        let mut halves = vec![f16::ZERO; piece.len()];
        let mut floats = [0.0; STEP];
        for (halves, start) in halves.chunks_mut(STEP).zip(piece.clone().step_by(STEP)) {
            let floats = &mut floats[..halves.len()];
            self.weight.read(start..start + halves.len(), floats);
            halves.convert_from_f32_slice(floats);
            if let Some(bad) = halves.iter().position(|half| !half.is_finite()) {
                return Err(self.out_of_range(start + bad, floats[bad]));
            }
        }
        self.weight.release(piece.clone());
        self.meter.add(&self.weight, &piece, read, started.elapsed() - read);
        Ok(halves)
    }

    fn out_of_range(&self, element: usize, value: f32) -> io::Error {
        let message = format!(
            "weight `{}`: element {element} is {value}, outside the range of fp16 (\u{b1}65504)",
            self.weight.name
        );
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

impl Payload for Half {
    fn byte_len(&self) -> u64 {
        self.range.len() as u64 * 2
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let pieces = self.pieces();
        let mut ready: Vec<Converted> = Vec::new();
        for window in pieces.chunks(rayon::current_num_threads().clamp(1, 8)).chain([&[][..]]) {
            let mut next: Vec<Converted> = window.iter().map(|_| Ok(Vec::new())).collect();
            rayon::in_place_scope(|scope| {
                for (slot, piece) in next.iter_mut().zip(window) {
                    scope.spawn(move |_| *slot = self.convert(piece.clone()));
                }
                ready.drain(..).try_for_each(|halves| out.write_all(bytemuck::cast_slice(&halves?)))
            })?;
            ready = next;
        }
        Ok(())
    }

    fn quantised(&self) -> Option<Arc<dyn Quantised>> {
        let (integers, first) = self.weight.integers()?;
        let first = first + self.range.start;
        let is_whole = first.is_multiple_of(integers.block());
        is_whole
            .then(|| -> Arc<dyn Quantised> { Arc::new(Blocks { first: first / integers.block(), integers }) })
    }
}

/// The blocks of a range of a weight's elements.
struct Blocks {
    integers: Integers,
    first: usize,
}

impl Quantised for Blocks {
    fn bits(&self) -> u32 {
        self.integers.bits()
    }

    fn is_signed(&self) -> bool {
        self.integers.is_signed()
    }

    fn block(&self) -> usize {
        self.integers.block()
    }

    fn read(&self, blocks: Range<usize>, codes: &mut [u8], scales: &mut [f32], minimums: &mut [f32]) {
        self.integers.read(self.first + blocks.start..self.first + blocks.end, codes, scales, minimums);
    }
}
