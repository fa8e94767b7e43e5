//! Activations in the order in which four blocks of 4-bit codes, one AVX-512 register, are multiplied.
//!
//! ```text
//! codes: byte i of a block holds elements 2i (low half) and 2i + 1 (high half)
//!
//! SplitActivationQuad, int4:  x = high * 128 + low        vpdpbusd: u8 codes times i8, summed by fours
//!   highs[0], lows[0]   x[0] x[2] x[4] ..                 meet bytes & 15
//!   highs[1], lows[1]   x[1] x[3] x[5] ..                 meet bytes >> 4
//!   offsets[lane]       -8 * (sum of the lane's x)        u8 codes are w + 8
//!   negated_sums[lane]  -(sum of the lane's x)            times the offset that is subtracted from the weights of a block
//!
//! ActivationQuad, LUT:        16-bit words of four codes  vpermw looks up i16 weights, vpdpwssd sums by twos
//!   numbers[j]          x[j] x[j + 4] x[j + 8] ..         meet words >> 4 j
//!
//! FloatActivationQuad, LUT:   32-bit words of eight codes vpermps looks up f32 weights
//!   numbers[j]          x[j] x[j + 8] x[j + 16] ..        meet words >> 4 j
//! ```
//!
//! `vpermw` takes five bits of an index, of which the fifth is another code's: the LUT is in the register twice. Instruction
//! sets without it look up the two bytes of a weight by `pshufb` and have an order of their own ([`arrange`](super::Simd::arrange)).

use super::{LANES, WIDE};

/// Blocks of 4-bit codes that are multiplied at once.
pub const QUAD: usize = 4;

/// Activations that meet four blocks of indices into a LUT.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct ActivationQuad {
    /// As [`arrange`](super::Simd::arrange) arranges them.
    pub numbers: [[i16; QUAD * LANES]; 4],
    /// What a number of each block stands for, in the lanes of the block.
    pub scales: [f32; WIDE],
}

/// Activations that meet four blocks of indices into a LUT of f32.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct FloatActivationQuad {
    /// For each of the eight codes of every four bytes, what meets it.
    pub numbers: [[f32; WIDE]; 8],
}

/// Activations that meet four blocks of int4 weights, each as `high * SPLIT + low`.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct SplitActivationQuad {
    /// What meets the lower halves of bytes, then the upper ones.
    pub highs: [[i8; QUAD * WIDE]; 2],
    /// The rest of each, below [`SPLIT`].
    pub lows: [[i8; QUAD * WIDE]; 2],
    /// For each lane, eight times the numbers that are summed in it, negated.
    pub offsets: [i32; WIDE],
    /// For each lane, the numbers that are summed in it, negated.
    pub negated_sums: [f32; WIDE],
    /// What a number of each block stands for, in the lanes of the block.
    pub scales: [f32; WIDE],
}

/// What the high part of a number counts.
pub const SPLIT: i32 = 128;

/// What turns two signed codes of a byte into numbers that are too large by eight.
pub const SIGNED: u8 = 0x88;
