//! What meets four blocks of codes of four bits.

use super::{LANES, WIDE};

/// Blocks whose products with numbers of four bits are computed at once.
pub const QUAD: usize = 4;

/// Numbers that meet four blocks of named codes.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Quad {
    /// As [`arrange`](super::Simd::arrange) arranges them.
    pub numbers: [[i16; QUAD * LANES]; 4],
    /// What a number of each block stands for, in the lanes of the block.
    pub scales: [f32; WIDE],
}

/// Numbers that meet four blocks of signed numbers of four bits, each as `high * SPLIT + low`.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct SplitQuad {
    /// What meets the lower halves of bytes, then the upper ones.
    pub highs: [[i8; QUAD * WIDE]; 2],
    /// The rest of each, below [`SPLIT`].
    pub lows: [[i8; QUAD * WIDE]; 2],
    /// For each lane, eight times the numbers that are summed in it, negated: codes of signed numbers are eight more.
    pub offsets: [i32; WIDE],
    /// What a number of each block stands for, in the lanes of the block.
    pub scales: [f32; WIDE],
}

/// What the high part of a number counts.
pub const SPLIT: i32 = 128;
