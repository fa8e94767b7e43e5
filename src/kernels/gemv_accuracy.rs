//! How far products with compressed weights are from those in f64, for weights of very different size.
//!
//! ```text
//! |found - exact| <= |exact| / 2^11                        fp16 rounding of the result
//!                  + sum of |w| max|x of its block| / 32,766   activations as integers
//!                  + sum of |w x| / 2^12                       LUTs as integers: see `palette`
//! ```
//!
//! and over all rows, the root mean square of the error is below 2^-11 of that of the results.

use half::f16;

use super::palette::Palettes;
use super::simd::{BLOCK, Isa, WIDE};
use super::weight_gemv::{Int4Codes, RowRange, Scales, WeightRows, WeightStorage, gemv_with, scratch_len};
use crate::tensor::{DType, TensorView, packed};

const ROWS: usize = 24;
/// Five blocks: the last four overlap the first, and 36 of them.
const COLUMNS: [usize; 2] = [5 * BLOCK, 36 * BLOCK];
/// How much larger an outlier is.
const OUTLIERS: [f32; 6] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5];

/// A sequence of numbers that looks random.
fn noise(seed: usize) -> impl FnMut() -> usize {
    let mut state = seed as u64 + 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as usize
    }
}

/// Activations that have a mean, which makes equal errors add up, as those after a SiLU do.
fn activations(columns: usize) -> Vec<f32> {
    let mut next = noise(columns);
    (0..columns).map(|_| f16::from_f32((next() % 1000) as f32 / 700.0 - 0.3).to_f32()).collect()
}

/// Tests products of a matrix with all instruction sets against those of its elements.
fn assert_accurate(what: &str, matrix: WeightRows<'_>, weight: impl Fn(usize, usize) -> f32) {
    assert!(matrix.is_regular(), "{what}");
    let x = activations(matrix.columns);
    let parts = [RowRange { matrix, first: 0, count: ROWS }];
    let mut scratch = vec![f32::NAN; scratch_len(x.len())];
    let products = Isa::all().map(|isa| {
        let mut out = vec![f32::NAN; ROWS];
        gemv_with(isa, &x, &parts, &mut scratch, &mut out);
        out
    });
    let products: Vec<Vec<f32>> = products.collect();
    assert!(products.iter().all(|other| *other == products[0]), "{what}: instruction sets differ");
    let (mut signal, mut error) = (0.0, 0.0);
    for (row, &found) in products[0].iter().enumerate() {
        let (mut exact, mut bound) = (0f64, 0f64);
        for (block, x) in x.as_chunks::<BLOCK>().0.iter().enumerate() {
            let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
            for (i, &x) in x.iter().enumerate() {
                let (x, w) = (f64::from(x), f64::from(weight(row, block * BLOCK + i)));
                exact += x * w;
                bound += (x * w).abs() / 4096.0 + w.abs() * f64::from(largest) / 32_766.0;
            }
        }
        let off = f64::from(found) - exact;
        bound += exact.abs() / 2048.0;
        assert!(off.abs() <= bound, "{what}, row {row}: {found} is not {exact} within {bound}");
        (signal, error) = (signal + exact * exact, error + off * off);
    }
    let relative = f64::sqrt(error / signal);
    assert!(relative <= 1.0 / 2048.0, "{what}: off by {relative}");
}

#[test]
fn palettes_with_outliers_lose_no_small_entry() {
    for columns in COLUMNS {
        for group in [ROWS, 8, 1] {
            for outlier in OUTLIERS {
                for share in [1, 40, usize::MAX] {
                    let mut next = noise(columns + group);
                    let mut tables: Vec<f32> =
                        (0..ROWS / group * WIDE).map(|_| (next() % 2000) as f32 / 1e6 - 1e-3).collect();
                    tables.iter_mut().step_by(WIDE).for_each(|entry| *entry = 1e-3 * outlier);
                    // The outlier in every place it falls on, rarely, or never.
                    let mut code = || match next() % WIDE {
                        0 if share == usize::MAX || !next().is_multiple_of(share) => 7,
                        code => code as u8,
                    };
                    let codes: Vec<u8> = (0..ROWS * columns).map(|_| code()).collect();
                    let stored = packed::pack(codes.iter().copied(), 4);
                    let palettes = Palettes::new(&tables);
                    let storage = WeightStorage::Lut4(&stored, &palettes, group);
                    let what = format!("{columns} columns, groups of {group}, outlier {outlier} in {share}");
                    assert_accurate(&what, WeightRows { columns, storage }, |row, column| {
                        tables[row / group * WIDE + usize::from(codes[row * columns + column])]
                    });
                }
            }
        }
    }
}

#[test]
fn scales_of_very_different_size_lose_nothing() {
    for columns in COLUMNS {
        for outlier in OUTLIERS {
            let blocks = [(BLOCK, 1), (BLOCK, 3), (3 * BLOCK, 1), (columns, 1), (columns, 4)];
            for (block, shared) in blocks.into_iter().filter(|(block, _)| columns.is_multiple_of(*block)) {
                let mut next = noise(columns + block + shared);
                let per_row = columns / block;
                let mut scales =
                    || f16::from_f32(if next().is_multiple_of(5) { 1e-4 * outlier } else { 1e-4 });
                let scales: Vec<f16> = (0..ROWS * per_row).map(|_| scales()).collect();
                let count = [scales.len()];
                let values = TensorView::new(DType::F16, &count, bytemuck::cast_slice(&scales)).unwrap();
                let scale =
                    |row: usize, column: usize| scales[row / shared * per_row + column / block].to_f32();
                let bytes: Vec<i8> = (0..ROWS * columns).map(|_| next() as i8).collect();
                let what = format!("{columns} columns, blocks of {block}, outlier {outlier}");
                let of = |storage| WeightRows { columns, storage };
                let scales = Scales { rows: shared, block, values };
                assert_accurate(&format!("int8, {what}"), of(WeightStorage::Int8(&bytes, scales)), |r, c| {
                    f32::from(bytes[r * columns + c]) * scale(r, c)
                });
                let nibbles = packed::pack(bytes.iter().map(|&byte| byte as u8 & 15), 4);
                let codes = Int4Codes { bytes: &nibbles, is_signed: true, offsets: None };
                assert_accurate(&format!("int4, {what}"), of(WeightStorage::Int4(codes, scales)), |r, c| {
                    f32::from(bytes[r * columns + c] << 4 >> 4) * scale(r, c)
                });
            }
        }
    }
}

/// A type of offsets, and numbers of that type as bytes.
type OffsetKind = (DType, fn(&[f32]) -> Vec<u8>);

#[test]
fn offsets_of_every_type_and_very_different_size_lose_nothing() {
    let halves = |numbers: &[f32]| -> Vec<u8> {
        let halves: Vec<f16> = numbers.iter().map(|&x| f16::from_f32(x)).collect();
        bytemuck::cast_slice(&halves).to_vec()
    };
    let nibbles = |numbers: &[f32]| packed::pack(numbers.iter().map(|&x| x as i32 as u8), 4);
    let kinds: [OffsetKind; 4] = [
        (DType::I4, nibbles),
        (DType::U4, nibbles),
        (DType::F16, halves),
        (DType::F32, |numbers| bytemuck::cast_slice(numbers).to_vec()),
    ];
    for columns in COLUMNS {
        for (block, shared) in [(BLOCK, 1), (BLOCK, 3), (columns, 1), (columns, 4)] {
            for (kind, bytes_of) in kinds {
                for is_signed in [false, true].into_iter().filter(|&signed| match kind {
                    DType::I4 => signed,
                    DType::U4 => !signed,
                    _ => true,
                }) {
                    for outlier in OUTLIERS.into_iter().take(if kind.is_float() { 5 } else { 1 }) {
                        let mut next = noise(columns + block + shared);
                        let (per_row, low) = (columns / block, if is_signed { -8.0 } else { 0.0 });
                        // Multiples of an eighth, some far from the integers, where differences have few digits left.
                        let mut offset = || match next() % 7 {
                            0 if kind.is_float() => 0.375 * outlier,
                            some if kind.is_float() => low + some as f32 * 2.125,
                            _ => low + (next() % 16) as f32,
                        };
                        let offsets: Vec<f32> = (0..ROWS * per_row).map(|_| offset()).collect();
                        let stored = bytes_of(&offsets);
                        let scales: Vec<f32> =
                            (0..ROWS * per_row).map(|_| 1e-3 * (1 + next() % 100) as f32).collect();
                        let count = [offsets.len()];
                        let values =
                            TensorView::new(DType::F32, &count, bytemuck::cast_slice(&scales)).unwrap();
                        let codes: Vec<u8> = (0..ROWS * columns).map(|_| next() as u8 & 15).collect();
                        let bytes = packed::pack(codes.iter().copied(), 4);
                        let view = TensorView::new(kind, &count, &stored).unwrap();
                        let storage = WeightStorage::Int4(
                            Int4Codes { bytes: &bytes, is_signed, offsets: Some(view) },
                            Scales { rows: shared, block, values },
                        );
                        let what = format!(
                            "{kind}, signed {is_signed}, {columns} columns, blocks of {block}, {outlier}"
                        );
                        assert_accurate(&what, WeightRows { columns, storage }, |r, c| {
                            let at = r / shared * per_row + c / block;
                            let code = i32::from(codes[r * columns + c]);
                            let number = if is_signed { (code ^ 8) - 8 } else { code };
                            let offset = if kind == DType::F16 {
                                f16::from_f32(offsets[at]).to_f32()
                            } else {
                                offsets[at]
                            };
                            scales[at] * (number as f32 - offset)
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn unsigned_integers_need_no_offset() {
    let columns = 6 * BLOCK;
    let mut next = noise(1);
    let codes: Vec<u8> = (0..ROWS * columns).map(|_| next() as u8 & 15).collect();
    let bytes = packed::pack(codes.iter().copied(), 4);
    let values = TensorView::new(DType::F32, &[1], bytemuck::cast_slice(&[0.5f32])).unwrap();
    let storage = WeightStorage::Int4(
        Int4Codes { bytes: &bytes, is_signed: false, offsets: None },
        Scales { rows: ROWS, block: columns, values },
    );
    assert_accurate("unsigned", WeightRows { columns, storage }, |r, c| {
        0.5 * f32::from(codes[r * columns + c])
    });
}
