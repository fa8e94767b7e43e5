//! Encoding unit by unit: units of a batch in parallel, their codes packed and written in order.

use std::io::{self, Write};

use rayon::prelude::*;

use super::weight::Weight;
use anemeter_kernels::quantize::{Loss, Packer};

/// How a weight is divided and what a unit gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Units {
    /// Elements of a unit.
    pub(super) elements: usize,
    /// Bytes an element may give before packing.
    pub(super) width: usize,
    /// Bits that are written of each such byte.
    pub(super) bits: u32,
    /// Numbers a unit gives besides its codes.
    pub(super) parameters: usize,
}

/// What a unit is read from and written to.
pub(super) struct Unit<'a> {
    /// Its place among the units.
    pub(super) index: usize,
    /// Its elements.
    pub(super) bytes: &'a [u8],
    /// Its codes.
    pub(super) codes: &'a mut [u8],
    /// Its other numbers.
    pub(super) parameters: &'a mut [f32],
}

/// What the units gave, besides their codes.
#[derive(Debug, Default)]
pub(super) struct Coded {
    pub(super) parameters: Vec<f32>,
    pub(super) loss: Loss,
}

/// How many codes a unit gave, and what it lost.
pub(super) type UnitResult = io::Result<(usize, Loss)>;

impl Units {
    /// Encodes all units of a weight and writes their codes. `make` makes what a thread keeps between units.
    pub(super) fn encode<S>(
        &self,
        weight: &Weight,
        out: &mut dyn Write,
        make: impl Fn() -> S + Sync + Send,
        encode: impl Fn(&mut S, Unit<'_>) -> UnitResult + Sync + Send,
    ) -> io::Result<Coded> {
        let mut coded = Coded::default();
        let mut writer = Codes::new(weight, self, out);
        let (mut codes, mut parameters, mut first) = (Vec::new(), Vec::new(), 0);
        let unit = self.elements * weight.element();
        weight.for_each_batch(self.elements, &mut |bytes| {
            let count = bytes.len().div_ceil(unit);
            codes.resize(bytes.len() / weight.element() * self.width, 0);
            parameters.resize(count * self.parameters.max(1), 0.0);
            let results: Vec<UnitResult> = bytes
                .par_chunks(unit)
                .zip(codes.par_chunks_mut(self.elements * self.width))
                .zip(parameters.par_chunks_mut(self.parameters.max(1)))
                .enumerate()
                .with_min_len((1 << 14) / self.elements.max(1) + 1)
                .map_init(&make, |state, (index, ((bytes, codes), parameters))| {
                    encode(state, Unit { index: first + index, bytes, codes, parameters })
                })
                .collect();
            for (result, codes) in results.into_iter().zip(codes.chunks(self.elements * self.width)) {
                let (used, loss) = result?;
                coded.loss += loss;
                writer.push(&codes[..used]);
            }
            if self.parameters > 0 {
                coded.parameters.extend_from_slice(&parameters);
            }
            first += count;
            writer.flush()
        })?;
        writer.finish()?;
        Ok(coded)
    }
}

/// Codes on their way out, packed; put back into the order of the weight's shape first if that is another.
struct Codes<'a> {
    weight: &'a Weight,
    packer: Packer,
    width: usize,
    packed: Vec<u8>,
    /// All codes, where they have to be put into another order.
    kept: Option<Vec<u8>>,
    out: &'a mut dyn Write,
}

impl<'a> Codes<'a> {
    fn new(weight: &'a Weight, units: &Units, out: &'a mut dyn Write) -> Codes<'a> {
        let kept = (!weight.layout.is_by_rows()).then(Vec::new);
        Codes { weight, packer: Packer::new(units.bits), width: units.width, packed: Vec::new(), kept, out }
    }

    fn push(&mut self, codes: &[u8]) {
        match &mut self.kept {
            Some(kept) => kept.extend_from_slice(codes),
            None => self.packer.push(codes, &mut self.packed),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.packed)?;
        self.packed.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if let Some(kept) = self.kept.take() {
            let ordered = self.weight.layout.undo_rows(self.width, &kept);
            self.packer.push(&ordered, &mut self.packed);
        }
        let Codes { packer, mut packed, out, .. } = self;
        packer.finish(&mut packed);
        out.write_all(&packed)
    }
}
