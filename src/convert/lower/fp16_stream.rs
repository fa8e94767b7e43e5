//! A weight as fp16, converted on all cores while what came before it is written.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use half::f16;

use super::read_stats::ReadStats;
use crate::model::Weight;
use anemeter_kernels::convert::convert;
use anemeter_mil::{Payload, QuantizedSource};

/// Elements that one thread converts before it hands them over.
const PIECE: usize = 1 << 20;
/// Elements that are in f32 at a time.
const STEP: usize = 1 << 14;

/// A range of a weight's elements as fp16.
pub(super) struct Fp16Stream {
    weight: Weight,
    range: Range<usize>,
    stats: Arc<ReadStats>,
}

/// Elements in fp16.
enum Piece<'a> {
    /// As the checkpoint has them.
    Stored(&'a [u8]),
    /// Converted.
    Made(Vec<f16>),
}

impl Fp16Stream {
    pub(super) fn new(weight: Weight, range: Range<usize>, stats: Arc<ReadStats>) -> Fp16Stream {
        Fp16Stream { weight, range, stats }
    }

    fn pieces(&self) -> Vec<Range<usize>> {
        let starts = self.range.clone().step_by(PIECE);
        starts.map(|start| start..self.range.end.min(start + PIECE)).collect()
    }

    /// Elements in fp16, in `room` if they are not stored so; an element that fp16 does not have is an error.
    fn piece(&self, range: Range<usize>, room: Vec<f16>) -> io::Result<Piece<'_>> {
        let started = Instant::now();
        self.weight.page_in(range.clone());
        let read = started.elapsed();
        let piece = match self.weight.halves(range.clone()) {
            Some(bytes) => self.checked(bytes, range.start)?,
            None => self.converted(range.clone(), room)?,
        };
        self.stats.add(&self.weight, range.len(), read, started.elapsed() - read);
        Ok(piece)
    }

    fn checked<'a>(&self, bytes: &'a [u8], first: usize) -> io::Result<Piece<'a>> {
        let (halves, _) = bytes.as_chunks();
        let bits = |&bytes: &[u8; 2]| u16::from_le_bytes(bytes);
        match not_finite(halves, bits) {
            Some(bad) => Err(self.out_of_range(first + bad, f16::from_bits(bits(&halves[bad])).to_f32())),
            None => Ok(Piece::Stored(bytes)),
        }
    }

    fn converted(&self, range: Range<usize>, mut halves: Vec<f16>) -> io::Result<Piece<'_>> {
        halves.resize(range.len(), f16::ZERO);
        let mut floats = [0.0; STEP];
        for (halves, start) in halves.chunks_mut(STEP).zip(range.clone().step_by(STEP)) {
            let floats = &mut floats[..halves.len()];
            self.weight.read(start..start + halves.len(), floats);
            convert(floats, halves);
            if let Some(bad) = not_finite(halves, |half| half.to_bits()) {
                return Err(self.out_of_range(start + bad, floats[bad]));
            }
        }
        self.weight.release(range);
        Ok(Piece::Made(halves))
    }

    fn out_of_range(&self, element: usize, value: f32) -> io::Error {
        let message = format!(
            "weight `{}`: element {element} is {value}, outside the range of fp16 (\u{b1}65504)",
            self.weight.name
        );
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

impl Payload for Fp16Stream {
    fn byte_len(&self) -> u64 {
        self.range.len() as u64 * 2
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let ranges = self.pieces();
        let mut ready: Vec<(&Range<usize>, io::Result<Piece<'_>>)> = Vec::new();
        let mut rooms: Vec<Vec<f16>> = Vec::new();
        for window in ranges.chunks(rayon::current_num_threads().clamp(1, 8)).chain([&[][..]]) {
            let mut next: Vec<_> = window.iter().map(|range| (range, Ok(Piece::Stored(&[])))).collect();
            let mut written = Vec::new();
            rayon::in_place_scope(|scope| {
                for (range, slot) in &mut next {
                    let room = rooms.pop().unwrap_or_default();
                    scope.spawn(move |_| *slot = self.piece(range.clone(), room));
                }
                for (range, piece) in ready.drain(..) {
                    match piece? {
                        Piece::Stored(bytes) => {
                            out.write_all(bytes)?;
                            self.weight.release(range.clone());
                        }
                        Piece::Made(halves) => {
                            out.write_all(bytemuck::cast_slice(&halves))?;
                            written.push(halves);
                        }
                    }
                }
                io::Result::Ok(())
            })?;
            rooms = written;
            ready = next;
        }
        Ok(())
    }

    fn quantized(&self) -> Option<Arc<dyn QuantizedSource>> {
        Some(Arc::new(self.weight.quantized_blocks(self.range.start)?))
    }
}

/// The first element that is infinite or no number.
fn not_finite<T>(elements: &[T], bits: impl Fn(&T) -> u16) -> Option<usize> {
    const INFINITY: i16 = 0x7c00;
    let magnitude = |element: &T| (bits(element) & 0x7fff).cast_signed();
    // The largest of all is found many at a time, which looking for one is not, and there is hardly ever one.
    let largest = elements.iter().map(magnitude).fold(0, i16::max);
    (largest >= INFINITY).then(|| elements.iter().position(|element| magnitude(element) >= INFINITY))?
}
