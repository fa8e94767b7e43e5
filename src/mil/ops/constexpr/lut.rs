//! Palettised weights: indices into lookup tables of numbers or vectors, one table per block.

use std::ops::Range;
use std::sync::Arc;

use super::super::blocks::Blocks;
use super::super::prelude::*;
use super::mask::Mask;
use super::source::{Source, fixed_shape, listed_shape};
use super::sparse::{MaskOutput, check_sparse};
use anemeter_kernels::dequantize::{CHUNK, Lut};
use anemeter_kernels::palette::Palettes;
use anemeter_kernels::weight_gemv::{WeightRows, WeightStorage};

const TABLE: &[DType] = &[DType::I8, DType::U8, DType::F16, DType::F32];
const INDICES: &[DType] = &[DType::U1, DType::U2, DType::U3, DType::U4, DType::U6, DType::U8];

pub(crate) const OPS: &[OpDef] = &[
    constexpr("constexpr_lut_to_dense", Ios16, infer_flat, decode_flat).takes(&[
        Param::constant("indices", &[DType::U8]),
        Param::constant("lut", TABLE),
        Param::constant("shape", &[DType::U32]),
    ]),
    constexpr("constexpr_lut_to_dense", Ios18, infer_dense, decode_dense).takes(&[
        Param::constant("indices", INDICES).packed(),
        Param::constant("lut", TABLE).packed(),
        Param::constant("vector_axis", INT).optional(),
    ]),
    constexpr("constexpr_lut_to_sparse", Ios18, infer_sparse, decode_sparse).takes(&[
        Param::constant("indices_mask", &[DType::U1]).packed(),
        Param::constant("indices_nonzero_data", INDICES).packed(),
        Param::constant("lut", TABLE).packed(),
        Param::constant("vector_axis", INT).optional(),
    ]),
];

/// How indices of a shape become elements.
struct Layout {
    /// Shape of the result.
    shape: Shape,
    /// Which table an index refers to.
    blocks: Blocks,
    /// Bits of an index.
    bits: u32,
    /// Numbers per table entry, and indices in a row over which they are laid out one after the other.
    vector: usize,
    inner: usize,
}

/// The first generation: one table, indices packed into a list of bytes.
fn flat_layout(call: &Call<'_>) -> Result<Layout> {
    let (indices, lut) = (fixed_shape(call, "indices")?, fixed_shape(call, "lut")?);
    let bits = match &lut[..] {
        [entries @ (2 | 4 | 16 | 64 | 256)] => entries.ilog2(),
        _ => refuse!("`lut` has shape {lut:?}, not 2, 4, 16, 64 or 256 entries"),
    };
    let shape = listed_shape(call, "shape")?;
    let ones: Shape = smallvec::smallvec![1; shape.len()];
    let blocks = Blocks::new(&shape, &ones)?;
    let packed = shape::element_count(&shape).and_then(|n| n.checked_mul(bits as usize));
    match (packed.map(|bits| bits.div_ceil(8)), &indices[..]) {
        (Some(needed), [bytes]) if needed == *bytes => {
            Ok(Layout { shape, blocks, bits, vector: 1, inner: 1 })
        }
        _ => refuse!(
            "`indices` of shape {indices:?} cannot hold {bits} bits for each element of {:?}",
            &shape[..]
        ),
    }
}

/// The later generation: tables per block in front, indices in their own type and shape.
fn layout(call: &Call<'_>, dtype: DType, indices: &[usize]) -> Result<Layout> {
    let lut = fixed_shape(call, "lut")?;
    let rank = indices.len();
    refuse_if!(
        rank == 0 || lut.len() != rank + 2,
        "`lut` of shape {:?} does not have two dimensions more than indices of shape {indices:?}",
        &lut[..]
    );
    let (entries, vector) = (lut[rank], lut[rank + 1]);
    refuse_if!(entries != 1 << dtype.bits(), "`lut` has {entries} entries for indices of type {dtype}");
    let mut shape = Shape::from_slice(indices);
    let count = |dims: &[usize]| {
        shape::element_count(dims)
            .ok_or_else(|| op_error!("a tensor of shape {dims:?} is too large to address"))
    };
    let axis = if call.has("vector_axis") { Some(call.axis("vector_axis", rank)?) } else { None };
    let inner = match (axis, vector) {
        (_, 0) => refuse!("`lut` has vectors of no numbers"),
        (None, 1) => 1,
        (None, _) => refuse!("`vector_axis` is missing for vectors of {vector} numbers"),
        (Some(axis), _) => {
            shape[axis] = shape[axis].saturating_mul(vector);
            count(&shape[axis + 1..])?
        }
    };
    count(&shape)?;
    let blocks = Blocks::new(indices, &lut[..rank])?;
    Ok(Layout { shape, blocks, bits: dtype.bits(), vector, inner })
}

fn infer_flat(call: &Call<'_>) -> Result<Vec<Type>> {
    Ok(vec![TensorType::fixed(call.ty("lut")?.dtype, &flat_layout(call)?.shape).into()])
}

fn decode_flat(call: &Call<'_>) -> Result<Decoders> {
    let tables = Tables::of(call, flat_layout(call)?)?;
    Ok(vec![Arc::new(Dense::new(tables, Source::of(call, "indices")?))])
}

fn infer_dense(call: &Call<'_>) -> Result<Vec<Type>> {
    let layout = layout(call, call.ty("indices")?.dtype, &fixed_shape(call, "indices")?)?;
    Ok(vec![TensorType::fixed(call.ty("lut")?.dtype, &layout.shape).into()])
}

fn decode_dense(call: &Call<'_>) -> Result<Decoders> {
    let indices = Source::of(call, "indices")?;
    let tables = Tables::of(call, layout(call, indices.dtype(), indices.shape())?)?;
    Ok(vec![Arc::new(Dense::new(tables, indices))])
}

fn infer_sparse(call: &Call<'_>) -> Result<Vec<Type>> {
    check_sparse(call, "indices_mask", "indices_nonzero_data")?;
    let (dtype, mask) = (call.ty("indices_nonzero_data")?.dtype, fixed_shape(call, "indices_mask")?);
    let layout = layout(call, dtype, &mask)?;
    let stored = fixed_shape(call, "indices_nonzero_data")?[0].checked_mul(layout.vector);
    let stored = stored.ok_or_else(|| OpError::new("the stored elements are too many to address"))?;
    Ok(vec![
        TensorType::fixed(DType::U1, &layout.shape).into(),
        TensorType::fixed(call.ty("lut")?.dtype, &[stored]).into(),
    ])
}

fn decode_sparse(call: &Call<'_>) -> Result<Decoders> {
    let (mask, indices) = (Source::of(call, "indices_mask")?, Source::of(call, "indices_nonzero_data")?);
    let layout = layout(call, indices.dtype(), mask.shape())?;
    let bits = Arc::new(Mask::of_nonzero(&mask, &indices)?);
    let output = MaskOutput::repeated(bits.clone(), &layout.shape, layout.inner, layout.vector);
    let stored = [indices.len().saturating_mul(layout.vector)];
    let tables = Tables::of(call, layout)?;
    Ok(vec![Arc::new(output), Arc::new(SparseLut { tables, indices, mask: bits, stored })])
}

/// The lookup tables, as numbers.
struct Tables {
    layout: Layout,
    dtype: DType,
    values: Box<[f32]>,
}

impl Tables {
    fn of(call: &Call<'_>, layout: Layout) -> Result<Tables> {
        let lut = Source::of(call, "lut")?;
        let mut values = vec![0.0; lut.len()].into_boxed_slice();
        lut.read(0..lut.len(), &mut values);
        Ok(Tables { layout, dtype: lut.dtype(), values })
    }

    fn table(&self, block: usize) -> Lut<'_> {
        let len = self.layout.vector << self.layout.bits;
        Lut::new(&self.values[block * len..(block + 1) * len], self.layout.vector)
    }

    /// Number `component` of the entries that consecutive indices name. `place` tells how many of them lie in
    /// a range of elements.
    fn look_up(
        &self,
        elements: Range<usize>,
        indices: &[u8],
        component: usize,
        out: &mut [f32],
        mut place: impl FnMut(Range<usize>) -> usize,
    ) {
        let mut at = 0;
        self.layout.blocks.for_each_run(elements, |block, run| {
            let end = (at + place(run)).min(indices.len());
            self.table(block).look_up(&indices[at..end], component, &mut out[at..end]);
            at = end;
        });
    }

    fn stored_bytes(&self) -> usize {
        size_of_val(&self.values[..])
    }
}

struct Dense {
    tables: Tables,
    indices: Source,
    /// The tables as products take them, if they can be multiplied as they are stored.
    palettes: Option<Palettes>,
}

impl Dense {
    fn new(tables: Tables, indices: Source) -> Dense {
        let is_stored =
            matches!((&tables.layout, &indices), (Layout { bits: 4, vector: 1, .. }, Source::Plain(_)));
        let palettes = is_stored.then(|| Palettes::new(&tables.values));
        Dense { tables, indices, palettes }
    }

    /// Number `component` for every index from `start` on.
    fn decode_component(&self, start: usize, component: usize, out: &mut [f32]) {
        let mut indices = [0; CHUNK];
        for (i, out) in out.chunks_mut(CHUNK).enumerate() {
            let (start, indices) = (start + i * CHUNK, &mut indices[..out.len()]);
            self.indices.read_fields(self.tables.layout.bits, start, indices);
            let elements = start..start + out.len();
            self.tables.look_up(elements, indices, component, out, |run| run.len());
        }
    }

    /// Whole vectors, where the numbers of an entry follow each other.
    fn decode_vectors(&self, range: Range<usize>, out: &mut [f32]) {
        let (vector, mut at) = (self.tables.layout.vector, range.start);
        let mut indices = [0; CHUNK];
        while at < range.end {
            let first = at / vector;
            let count = CHUNK.min((range.end - 1) / vector + 1 - first);
            self.indices.read_fields(self.tables.layout.bits, first, &mut indices[..count]);
            self.tables.layout.blocks.for_each_run(first..first + count, |block, run| {
                let table = self.tables.table(block);
                for index in run {
                    let (skip, end) = (at - index * vector, range.end.min((index + 1) * vector));
                    let entry = &table.entry(indices[index - first])[skip..skip + end - at];
                    out[at - range.start..end - range.start].copy_from_slice(entry);
                    at = end;
                }
            });
        }
    }
}

impl Decode for Dense {
    fn dtype(&self) -> DType {
        self.tables.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.tables.layout.shape
    }

    fn decode(&self, range: Range<usize>, out: &mut [f32]) {
        let Layout { vector, inner, .. } = self.tables.layout;
        if vector == 1 {
            return self.decode_component(range.start, 0, &mut out[..range.len()]);
        }
        if inner == 1 {
            return self.decode_vectors(range, out);
        }
        let mut at = range.start;
        while at < range.end {
            let (row, column) = (at / inner, at % inner);
            let end = range.end.min(at - column + inner);
            let start = row / vector * inner + column;
            self.decode_component(start, row % vector, &mut out[at - range.start..end - range.start]);
            at = end;
        }
    }

    fn stored_bytes(&self) -> usize {
        let palettes = self.palettes.as_ref().map_or(0, Palettes::stored_bytes);
        self.tables.stored_bytes() + self.indices.stored_bytes() + palettes
    }

    fn rows(&self, columns: usize) -> Option<WeightRows<'_>> {
        let (Some(palettes), Source::Plain(indices)) = (&self.palettes, &self.indices) else { return None };
        let (rows, _) = self.tables.layout.blocks.of_rows(columns).filter(|&(_, block)| block == columns)?;
        let storage = WeightStorage::Lut4(indices.bytes(), palettes, rows);
        Some(WeightRows { columns, storage }).filter(WeightRows::is_regular)
    }
}

/// The stored elements of a palettised sparse tensor; the mask tells the table of each.
struct SparseLut {
    tables: Tables,
    indices: Source,
    mask: Arc<Mask>,
    stored: [usize; 1],
}

impl SparseLut {
    /// Number `component` for every stored index from `rank` on.
    fn decode_component(&self, rank: usize, component: usize, out: &mut [f32]) {
        let mut indices = [0; CHUNK];
        for (i, out) in out.chunks_mut(CHUNK).enumerate() {
            let (rank, indices) = (rank + i * CHUNK, &mut indices[..out.len()]);
            self.indices.read_fields(self.tables.layout.bits, rank, indices);
            let elements = self.mask.select(rank)..self.mask.select(rank + out.len() - 1) + 1;
            self.tables.look_up(elements, indices, component, out, |run| self.mask.count(run));
        }
    }
}

impl Decode for SparseLut {
    fn dtype(&self) -> DType {
        self.tables.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.stored
    }

    fn decode(&self, range: Range<usize>, out: &mut [f32]) {
        let Layout { vector, inner, .. } = self.tables.layout;
        if vector == 1 {
            return self.decode_component(range.start, 0, &mut out[..range.len()]);
        }
        let mut at = range.start;
        while at < range.end {
            let row = self.mask.select(at / vector) / inner * inner;
            let (before, in_row) = (self.mask.rank(row), self.mask.count(row..row + inner));
            let (component, column) = ((at - before * vector) / in_row, (at - before * vector) % in_row);
            let end = range.end.min(at - column + in_row);
            self.decode_component(before + column, component, &mut out[at - range.start..end - range.start]);
            at = end;
        }
    }

    fn stored_bytes(&self) -> usize {
        self.tables.stored_bytes() + self.indices.stored_bytes() + self.mask.stored_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_index_one_table() {
        let args = [
            ("indices", tensor(&[2], &[0b01_10_11_00u8, 0b11])),
            ("lut", tensor(&[4], &[1i8, -2, 3, 4])),
            ("shape", tensor(&[2], &[1u32, 5])),
        ];
        gives::<i8>(run("constexpr_lut_to_dense", Ios16, &args), &[1, 5], &[1, 4, 3, -2, 4]);
    }

    #[test]
    fn groups_have_their_own_table() {
        let lut = [1.0f32, 5.0, 9.0, 13.0, 2.0, 10.0, 18.0, 26.0];
        let args = [
            ("indices", packed(DType::U2, &[6, 2], &[2, 3, 3, 0, 1, 0, 3, 0, 2, 1, 0, 3])),
            ("lut", tensor(&[2, 1, 4, 1], &lut)),
        ];
        let out = run("constexpr_lut_to_dense", Ios18, &args).unwrap();
        let expected = [9.0, 13.0, 13.0, 1.0, 5.0, 1.0, 26.0, 2.0, 18.0, 10.0, 2.0, 26.0];
        assert_eq!(out[0].view().slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn vectors_are_laid_out_along_their_axis() {
        let indices = packed(DType::U1, &[2, 2], &[0, 1, 1, 1]);
        let lut = tensor(&[1, 1, 2, 2], &[1i8, 2, 3, 4]);
        let along = |axis: i32| {
            let args =
                [("indices", indices.clone()), ("lut", lut.clone()), ("vector_axis", Tensor::scalar(axis))];
            run("constexpr_lut_to_dense", Ios18, &args)
        };
        gives::<i8>(along(0), &[4, 2], &[1, 3, 2, 4, 3, 3, 4, 4]);
        gives::<i8>(along(-1), &[2, 4], &[1, 2, 3, 4, 3, 4, 3, 4]);
    }

    #[test]
    fn stored_vectors_follow_the_expanded_mask() {
        let args = [
            ("indices_mask", packed(DType::U1, &[2, 3], &[1, 1, 0, 0, 0, 1])),
            ("indices_nonzero_data", packed(DType::U1, &[3], &[0, 1, 1])),
            ("lut", tensor(&[1, 1, 2, 2], &[1i8, 2, 3, 4])),
            ("vector_axis", Tensor::scalar(0i32)),
        ];
        let out = run_many("constexpr_lut_to_sparse", Ios18, &args, 2).unwrap();
        assert_eq!(out[0], packed(DType::U1, &[4, 3], &[1, 1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1]));
        assert_eq!(out[1].view().slice::<i8>().unwrap(), [1, 3, 2, 4, 3, 4]);
    }

    #[test]
    fn tables_must_fit_the_indices() {
        let lut = |shape: &[usize]| {
            let values = vec![0i8; shape.iter().product()];
            ("lut", tensor(shape, &values))
        };
        for (shape, message) in [
            (&[1, 8, 1][..], "`lut` has 8 entries for indices of type uint2"),
            (&[3, 4, 1], "dimension 0 of size 4 cannot be divided into 3 blocks"),
            (&[1, 4, 2], "`vector_axis` is missing for vectors of 2 numbers"),
            (&[1, 4, 0], "`lut` has vectors of no numbers"),
        ] {
            let args = [("indices", packed(DType::U2, &[4], &[0; 4])), lut(shape)];
            refused(run("constexpr_lut_to_dense", Ios18, &args), message);
        }
    }
}
