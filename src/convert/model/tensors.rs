//! The tensors of a checkpoint as a model asks for them: each with the shape its configuration implies. What is
//! missing, misshapen or left over is gathered and reported at the end, all at once.

use std::collections::BTreeSet;

use super::error::{Expected, TensorProblem};
use super::graph::{Linear, Norm, NormKind};
use super::keys::Size;
use super::weight::{Source, Weight};
use crate::checkpoint::{Checkpoint, Encoding, Stored};
use anemeter_kernels::tensor::{DType, Shape};

/// Where the names of an architecture start in a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefix {
    /// Before everything but the head.
    pub(super) body: &'static str,
    pub(super) head: &'static str,
}

/// The tensors of a checkpoint, with a record of what was asked for.
pub(super) struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
    prefix: Prefix,
    /// Whether the output projection is left where it is.
    leaves_head: bool,
    used: BTreeSet<String>,
    problems: Vec<TensorProblem>,
}

impl<'a> Tensors<'a> {
    /// The tensors under the first of the prefixes under which `probe` exists, or the first of all.
    pub(super) fn new(checkpoint: &'a Checkpoint, prefixes: &[Prefix], probe: &str) -> Tensors<'a> {
        let has = |prefix: &&Prefix| checkpoint.tensors.contains_key(&format!("{}{probe}", prefix.body));
        let found = prefixes.iter().find(has).or(prefixes.first());
        let prefix = found.copied().unwrap_or(Prefix { body: "", head: "" });
        Tensors { checkpoint, prefix, leaves_head: false, used: BTreeSet::new(), problems: Vec::new() }
    }

    /// The same for a model that has no use for its output projection, which may be stored or not.
    pub(super) fn without_head(mut self) -> Tensors<'a> {
        self.leave_head();
        self
    }

    /// Leaves the output projection where it is.
    pub(super) fn leave_head(&mut self) {
        self.leaves_head = true;
        let name = self.head_name();
        self.used.insert(name);
    }

    /// How many tensors the checkpoint has.
    pub(super) fn count(&self) -> usize {
        self.checkpoint.tensors.len()
    }

    /// Whether the checkpoint has a tensor of the body.
    pub(super) fn has(&self, name: &str) -> bool {
        self.checkpoint.tensors.contains_key(&self.full(name))
    }

    /// Whether the checkpoint has an output projection apart from the embedding.
    pub(super) fn has_head(&self) -> bool {
        self.checkpoint.tensors.contains_key(&self.head_name())
    }

    /// A weight as it is stored.
    pub(super) fn weight(&mut self, name: &str, shape: &[&Size]) -> Weight {
        self.named(self.full(name), shape)
    }

    /// A weight to which one is added.
    pub(super) fn weight_plus_one(&mut self, name: &str, shape: &[&Size]) -> Weight {
        let (name, stored) = self.take(self.full(name), shape);
        Weight { name, shape: stored.shape.clone(), source: Source::PlusOne(stored) }
    }

    /// The output projection if it is stored apart from the embedding.
    pub(super) fn head(&mut self, shape: &[&Size]) -> Weight {
        if self.leaves_head {
            return absent(self.head_name(), shape);
        }
        self.named(self.head_name(), shape)
    }

    /// Reports a stored output projection that differs from the embedding it is said to be.
    pub(super) fn tie(&mut self, embedding: &Weight) {
        if self.leaves_head {
            return;
        }
        let name = self.head_name();
        let Some(head) = self.checkpoint.tensors.get(&name) else { return };
        self.used.insert(name.clone());
        let Source::Stored(stored) = &embedding.source else { return };
        if head != stored {
            let problem = format!("differs from `{}`, but tie_word_embeddings is true", embedding.name);
            self.problems.push(TensorProblem::Content { tensor: name, problem });
        }
    }

    pub(super) fn linear(&mut self, module: &str, out: &Size, input: &Size, bias: bool) -> Linear {
        Linear {
            weight: self.weight(&format!("{module}.weight"), &[out, input]),
            bias: bias.then(|| self.weight(&format!("{module}.bias"), &[out])),
        }
    }

    /// A linear map whose name has no prefix.
    pub(super) fn outside(&mut self, module: &str, out: &Size, input: &Size, bias: bool) -> Linear {
        Linear {
            weight: self.outside_weight(&format!("{module}.weight"), &[out, input]),
            bias: bias.then(|| self.outside_weight(&format!("{module}.bias"), &[out])),
        }
    }

    /// A weight whose name has no prefix.
    pub(super) fn outside_weight(&mut self, name: &str, shape: &[&Size]) -> Weight {
        self.named(name.to_owned(), shape)
    }

    /// Leaves a tensor where it is, if it is there.
    pub(super) fn leave(&mut self, name: &str) {
        self.used.insert(self.full(name));
    }

    /// A linear map without outputs.
    pub(super) fn no_rows(&self, module: &str, input: &Size) -> Linear {
        let none = Size { value: 0, from: "0".to_owned() };
        Linear { weight: absent(self.full(&format!("{module}.weight")), &[&none, input]), bias: None }
    }

    /// A vector of ones, which no checkpoint stores.
    pub(super) fn ones(&self, name: &str, width: &Size) -> Weight {
        let shape = Shape::from_slice(&[width.value]);
        Weight { name: self.full(name), shape: shape.clone(), source: Source::Ones(stand_in(shape)) }
    }

    /// A number that is stored as a tensor of one element.
    pub(super) fn number(&mut self, name: &str) -> f32 {
        let one = Size { value: 1, from: "1".to_owned() };
        let (_, stored) = self.take(self.full(name), &[&one]);
        let mut value = [1.0];
        if !stored.bytes.is_empty() {
            stored.read(0..1, &mut value);
        }
        value[0]
    }

    /// The rows of a matrix from one on.
    pub(super) fn rows_from(
        &mut self,
        name: &str,
        (rows, first): (&Size, usize),
        left: &Size,
        width: &Size,
    ) -> Weight {
        let (name, stored) = self.take(self.full(name), &[rows, width]);
        let shape = Shape::from_slice(&[left.value, width.value]);
        Weight { name, shape, source: Source::Rows(stored, first) }
    }

    /// Linear maps whose rows are stored one after the other in one matrix, with their biases in one vector.
    pub(super) fn fused_biased<const N: usize>(
        &mut self,
        module: &str,
        parts: [(&str, &Size); N],
        input: &Size,
        bias: bool,
    ) -> [Linear; N] {
        let mut maps = self.fused(module, parts, input);
        if bias {
            let (name, stored) = self.take(self.full(&format!("{module}.bias")), &[&sum(&parts)]);
            let mut row = 0usize;
            for (map, (part, size)) in maps.iter_mut().zip(parts) {
                map.bias = Some(part_of(&name, part, &[size], Source::Rows(stored.clone(), row)));
                row = row.saturating_add(size.value);
            }
        }
        maps
    }

    /// Linear maps whose rows are stored one after the other in one matrix.
    pub(super) fn fused<const N: usize>(
        &mut self,
        module: &str,
        parts: [(&str, &Size); N],
        input: &Size,
    ) -> [Linear; N] {
        let (name, stored) = self.take(self.full(&format!("{module}.weight")), &[&sum(&parts), input]);
        let mut row = 0usize;
        parts.map(|(part, size)| {
            let source = Source::Rows(stored.clone(), row);
            let weight = part_of(&name, part, &[size, input], source);
            row = row.saturating_add(size.value);
            Linear { weight, bias: None }
        })
    }

    /// A linear map with a bias whose matrix is stored as `[in, out]`.
    pub(super) fn conv1d(&mut self, module: &str, out: &Size, input: &Size) -> Linear {
        let (name, stored) = self.take(self.full(&format!("{module}.weight")), &[input, out]);
        let shape = Shape::from_slice(&[out.value, input.value]);
        Linear {
            weight: Weight { name, shape, source: Source::Transposed(stored) },
            bias: Some(self.weight(&format!("{module}.bias"), &[out])),
        }
    }

    /// Linear maps with biases whose columns are stored side by side in one `[in, out]` matrix.
    pub(super) fn fused_conv1d<const N: usize>(
        &mut self,
        module: &str,
        parts: [(&str, &Size); N],
        input: &Size,
    ) -> [Linear; N] {
        let out = sum(&parts);
        let (name, stored) = self.take(self.full(&format!("{module}.weight")), &[input, &out]);
        let (bias_name, bias) = self.take(self.full(&format!("{module}.bias")), &[&out]);
        let mut column = 0usize;
        parts.map(|(part, size)| {
            let source = Source::TransposedColumns(stored.clone(), column);
            let weight = part_of(&name, part, &[size, input], source);
            let bias = part_of(&bias_name, part, &[size], Source::Rows(bias.clone(), column));
            column = column.saturating_add(size.value);
            Linear { weight, bias: Some(bias) }
        })
    }

    /// A layer norm with scale and shift.
    pub(super) fn layer_norm(&mut self, module: &str, width: &Size, epsilon: f32) -> Norm {
        Norm {
            kind: NormKind::Layer,
            weight: self.weight(&format!("{module}.weight"), &[width]),
            bias: Some(self.weight(&format!("{module}.bias"), &[width])),
            epsilon,
        }
    }

    /// A single number between 0 and 1 after `map`.
    pub(super) fn share(&mut self, name: &str, map: fn(f32) -> f32) -> f32 {
        let missing = !self.has(name);
        let (tensor, stored) = self.take(self.full(name), &[]);
        if missing || !stored.shape.is_empty() {
            return 0.0;
        }
        let mut value = [f32::NAN];
        stored.read(0..1, &mut value);
        let share = map(value[0]);
        if !(0.0..=1.0).contains(&share) {
            let problem = format!("is {share}, expected a number from 0 to 1");
            self.problems.push(TensorProblem::Content { tensor, problem });
        }
        share
    }

    /// Everything that was wrong, with the tensors that were never asked for unless they are harmless.
    pub(super) fn finish(mut self, harmless: fn(&str) -> bool) -> Vec<TensorProblem> {
        for (name, stored) in &self.checkpoint.tensors {
            if !self.used.contains(name) && !harmless(name) {
                let problem = TensorProblem::Unused { tensor: name.clone(), found: stored.shape.clone() };
                self.problems.push(problem);
            }
        }
        self.problems
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix.body)
    }

    fn head_name(&self) -> String {
        format!("{}lm_head.weight", self.prefix.head)
    }

    fn named(&mut self, name: String, shape: &[&Size]) -> Weight {
        let (name, stored) = self.take(name, shape);
        Weight { name, shape: stored.shape.clone(), source: Source::Stored(stored) }
    }

    /// The tensor if it is as expected; otherwise an empty stand-in, so that the search for problems goes on.
    fn take(&mut self, name: String, sizes: &[&Size]) -> (String, Stored) {
        let shape: Shape = sizes.iter().map(|size| size.value).collect();
        let expected =
            || Expected { shape: shape.clone(), from: sizes.iter().map(|size| size.from.clone()).collect() };
        self.used.insert(name.clone());
        let problem = match self.checkpoint.tensors.get(&name) {
            Some(stored) if stored.shape == shape => return (name, stored.clone()),
            Some(stored) => TensorProblem::Misshapen {
                tensor: name.clone(),
                expected: expected(),
                found: stored.shape.clone(),
            },
            None => TensorProblem::Missing { tensor: name.clone(), expected: expected() },
        };
        self.problems.push(problem);
        (name, stand_in(shape))
    }
}

/// A tensor without content.
fn stand_in(shape: Shape) -> Stored {
    Stored { shape, encoding: Encoding::Plain(DType::F32), bytes: Vec::new().into(), shard: 0 }
}

/// A weight that the model has no use for.
fn absent(name: String, sizes: &[&Size]) -> Weight {
    let shape: Shape = sizes.iter().map(|size| size.value).collect();
    Weight { name, shape: shape.clone(), source: Source::Stored(stand_in(shape)) }
}

fn sum<const N: usize>(parts: &[(&str, &Size); N]) -> Size {
    let mut sizes = parts.iter().map(|(_, size)| (*size).clone());
    let first = sizes.next().unwrap_or(Size { value: 0, from: String::new() });
    sizes.fold(first, |sum, size| sum.plus(&size))
}

/// A part of a fused tensor.
fn part_of(name: &str, part: &str, sizes: &[&Size], source: Source) -> Weight {
    let (module, last) = name.rsplit_once('.').unwrap_or(("", name));
    let shape = sizes.iter().map(|size| size.value).collect();
    Weight { name: format!("{module}.{part}.{last}"), shape, source }
}
