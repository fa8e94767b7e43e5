//! Matrices as GPTQ and AWQ store them: `qweight`, `qzeros` and `scales` by input and output, the transpose of the matrix.
//!
//! ```text
//! GPTQ  qweight [inputs * bits / 32, outputs]   a word has inputs of one output, and `g_idx` the group of each input
//! AWQ   qweight [inputs, outputs / 8]           a word has eight outputs of one input
//! both  qzeros [groups, outputs * bits / 32], scales [groups, outputs]
//! ```

use std::sync::Arc;

use super::fields::{Fields, Order};
use super::group_quantized::{GroupQuantized, Grouping, Table, Zeros};
use super::{Folding, Tensors};
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::{Encoding, Stored};
use anemeter_kernels::tensor::{DType, shape};

/// How all matrices of a checkpoint are packed.
#[derive(Clone, Copy)]
pub(super) struct Packing {
    pub(super) bits: u32,
    /// Inputs of a group, unless all are one.
    pub(super) size: Option<usize>,
    /// Of the fields of a word: interleaved ones are outputs, others inputs.
    pub(super) order: Order,
    /// What is added to the zeros.
    pub(super) more: f32,
    /// Whether inputs may be in groups in any order.
    pub(super) is_ordered_by_act: bool,
}

impl Packing {
    pub(super) fn folding(self) -> Folding {
        Box::new(move |tensors| {
            super::modules(tensors, "qweight").iter().try_for_each(|module| self.fold(tensors, module))
        })
    }

    fn is_by_input(self) -> bool {
        self.order == Order::Interleaved
    }

    fn fold(self, tensors: &mut Tensors, module: &str) -> Result<()> {
        let named = |part: &str| format!("{module}.{part}");
        let mut part = |name: &str| super::take(tensors, module, name);
        let (packed, zeros, scales) = (part("qweight")?, part("qzeros")?, part("scales")?);
        let index = if self.is_by_input() { None } else { tensors.remove(&named("g_idx")) };
        let [rows, columns] = self.shape(&packed, &named("qweight"))?;
        let (size, groups) =
            super::divided(columns, self.size).map_err(|e| e.at_tensor(&named("qweight")))?;
        let zero_words = self.order.words(rows, self.bits).expect("as many fields are in the file");
        super::check(&zeros, &named("qzeros"), super::is_word, "int32", &[groups, zero_words])?;
        super::check(&scales, &named("scales"), DType::is_float, "fp16", &[groups, rows])?;
        let listed = match index {
            Some(index) => super::listed(&index, &named("g_idx"), columns, size)?,
            None if self.is_ordered_by_act => {
                let message = "is missing, and config key `quantization_config.desc_act` is true";
                return Err(CheckpointError::new(message).at_tensor(&named("g_idx")));
            }
            None => None,
        };
        let Packing { bits, order, more, .. } = self;
        let fields =
            |stored: &Stored, line, word| Fields { bytes: stored.bytes.clone(), bits, order, line, word };
        let matrix = GroupQuantized {
            shape: [rows, columns],
            codes: if self.is_by_input() { fields(&packed, zero_words, 1) } else { fields(&packed, 1, rows) },
            by_input: self.is_by_input(),
            is_signed: false,
            scales: Table { stored: scales, steps: [1, rows] },
            zeros: Zeros::Packed(fields(&zeros, zero_words, 1), more),
            groups: Grouping { size, listed },
        };
        let encoding = Encoding::GroupQuantized(Arc::new(matrix));
        super::put(tensors, module, Stored { shape: [rows, columns][..].into(), encoding, ..packed })
    }

    /// Outputs and inputs.
    fn shape(self, packed: &Stored, name: &str) -> Result<[usize; 2]> {
        let Packing { bits, .. } = self;
        let misshapen = || {
            let expected = match self.is_by_input() {
                true => "inputs by words of eight outputs".to_owned(),
                false => format!("int32 words of {bits} bits by outputs"),
            };
            let found = &packed.shape[..];
            CheckpointError::new(format!("is {found:?}, expected {expected}")).at_tensor(name)
        };
        super::check(packed, name, super::is_word, "int32", &packed.shape)?;
        let fields = |words: usize| {
            let all = words.checked_mul(32).filter(|all| all.is_multiple_of(bits as usize))?;
            Some(all / bits as usize)
        };
        let shape = match packed.shape[..] {
            [columns, words] if self.is_by_input() => fields(words).map(|rows| [rows, columns]),
            [words, rows] => fields(words).map(|columns| [rows, columns]),
            _ => None,
        };
        let is_whole = |shape: &[usize; 2]| shape::element_count(shape).is_some_and(|count| count > 0);
        shape.filter(is_whole).ok_or_else(misshapen)
    }
}
