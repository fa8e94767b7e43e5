//! Where the matrices of a reference are in the programs of a bundle, so that those which are stored compressed can
//! take the place of the checkpoint's.
//!
//! Only values come from the packages: which matrix is which is said here, by Hugging Face's names and those of
//! `docs/graph.md`. A matrix that an export put into the wrong place is further from the checkpoint's than its
//! compression explains, which is found when it is taken.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Result, Tensor};

use crate::folds::Folds;
use crate::turned::{Others, Sides, Turned, norm_before};
use anemeter_harness::verify::{Misstored, Stored, StoredWeights};

/// What was done with the stored weights.
#[derive(Debug, Default)]
pub(super) struct OverlayRecord {
    pub(super) names: Vec<String>,
    pub(super) misstored: Vec<Misstored>,
}

/// The compressed weights of a bundle, as a reference takes them.
pub(super) struct Overlay<'a> {
    pub(super) weights: &'a StoredWeights,
    pub(super) record: &'a Mutex<OverlayRecord>,
    /// How the program's matrices differ from the checkpoint's.
    pub(super) folds: Folds,
    /// How the program's coordinates do.
    pub(super) turned: Option<Turned>,
    /// What the program adds to the outputs of matrices besides, by their names: where a norm's bias was multiplied by the
    /// matrix before that was rounded.
    pub(super) added: Mutex<BTreeMap<String, Tensor>>,
}

/// The output projection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) is_tied: bool,
    /// The norm before it.
    pub(super) norm: &'static str,
}

/// A matrix of one layer: its name after the layer's, and the parts of it in the program, one below the other.
struct Role {
    tensor: &'static str,
    parts: &'static [&'static str],
    /// Whether the checkpoint has inputs as rows.
    by_inputs: bool,
}

const fn role(tensor: &'static str, parts: &'static [&'static str]) -> Role {
    Role { tensor, parts, by_inputs: false }
}

const fn by_inputs(tensor: &'static str, parts: &'static [&'static str]) -> Role {
    Role { tensor, parts, by_inputs: true }
}

const ROLES: &[Role] = &[
    role("self_attn.q_proj", &["attention_query"]),
    role("self_attn.k_proj", &["attention_key"]),
    role("self_attn.v_proj", &["attention_value"]),
    role("self_attn.tied_v_proj", &["attention_value"]),
    role("self_attn.o_proj", &["attention_output"]),
    role("self_attn.qkv_proj", &["attention_query", "attention_key", "attention_value"]),
    role("self_attn.out_proj", &["attention_output"]),
    role("conv.in_proj", &["short_conv_before", "short_conv_after", "short_conv_value"]),
    role("conv.out_proj", &["short_conv_output"]),
    role("linear_attn.in_proj_qkv", &["delta_net_qkv"]),
    role("linear_attn.in_proj_z", &["delta_net_gate"]),
    role("linear_attn.in_proj_b", &["delta_net_beta"]),
    role("linear_attn.in_proj_a", &["delta_net_decay"]),
    role("linear_attn.out_proj", &["delta_net_output"]),
    role("feed_forward.w1", &["mlp_gate"]),
    role("feed_forward.w3", &["mlp_up"]),
    role("feed_forward.w2", &["mlp_down"]),
    role("mlp.gate_proj", &["mlp_gate"]),
    role("mlp.up_proj", &["mlp_up"]),
    role("mlp.down_proj", &["mlp_down"]),
    role("mlp.gate_up_proj", &["mlp_gate", "mlp_up"]),
    role("shared_mlp.input_linear", &["mlp_gate", "mlp_up"]),
    role("shared_mlp.output_linear", &["mlp_down"]),
    role("per_layer_input_gate", &["per_layer_gate"]),
    role("per_layer_projection", &["per_layer_projection"]),
    by_inputs("attn.c_attn", &["attention_query", "attention_key", "attention_value"]),
    by_inputs("attn.c_proj", &["attention_output"]),
    by_inputs("mlp.c_fc", &["mlp_up"]),
    by_inputs("mlp.c_proj", &["mlp_down"]),
    role("mlp.c_fc", &["mlp_up"]),
    role("mlp.c_proj", &["mlp_down"]),
    role("mlp.fc_in", &["mlp_into"]),
    role("mlp.act.value_proj", &["mlp_value"]),
    role("mlp.act.gate_proj", &["mlp_gate"]),
    role("mlp.fc_out", &["mlp_out"]),
];

/// Tables of which rows are looked up, by the ends of their names.
const TABLES: &[(&str, &str)] = &[
    ("embed_tokens_per_layer.weight", "per_layer_embedding_weight"),
    ("embed_tokens.weight", "embedding_weight"),
    ("wte.weight", "embedding_weight"),
    ("wpe.weight", "positions_weight"),
];

impl Overlay<'_> {
    /// A tensor of the checkpoint with the rows that the packages store compressed in their place.
    pub(super) fn tensor(
        &self,
        name: &str,
        tensor: Tensor,
        head: Option<Head>,
        others: Others<'_>,
    ) -> Result<Tensor> {
        if let Some(head) = head {
            return self.head(name, &tensor, head, others);
        }
        if let Some((_, table)) = TABLES.iter().find(|(end, _)| name.ends_with(end)) {
            let names = [Stored { name: table, rank: 2 }];
            let inputs = match &self.turned {
                Some(turned) if *table != "per_layer_embedding_weight" => turned.stream(tensor.dim(1)?)?,
                _ => None,
            };
            let sides = Sides { scales: None, inputs, outputs: None };
            return self.turned(&sides, &tensor, |matrix| self.replace(&names, matrix));
        }
        if name.ends_with("per_layer_model_projection.weight") {
            return self.replace(&[Stored { name: "per_layer_projection_weight", rank: 4 }], &tensor);
        }
        match layer_role(name) {
            Some((layer, role)) if role.by_inputs => {
                let matrix = tensor.t()?.contiguous()?;
                self.layer(name, (layer, role), &matrix, others)?.t()?.contiguous()
            }
            Some((layer, role)) => self.layer(name, (layer, role), &tensor, others),
            None => Ok(tensor),
        }
    }

    /// A matrix of a layer, in rows of inputs.
    fn layer(
        &self,
        name: &str,
        (layer, role): (usize, &Role),
        matrix: &Tensor,
        others: Others<'_>,
    ) -> Result<Tensor> {
        let Some(turned) = &self.turned else { return self.folded(layer, role, matrix) };
        let (rows, columns) = matrix.dims2()?;
        let sides = turned.sides((name, role.parts), [rows, columns], others)?;
        let found = self.turned(&sides, matrix, |matrix| self.folded(layer, role, matrix))?;
        if sides.scales.is_some()
            && let Some(bias) = norm_before(name, "bias", others)?
        {
            self.add(name, &(matrix - &found)?, bias)?;
        }
        Ok(found)
    }

    /// The output projection. That of a rotated model may have a map before it, which its norm became.
    fn head(&self, name: &str, matrix: &Tensor, head: Head, others: Others<'_>) -> Result<Tensor> {
        let names = ["head_weight", "embedding_weight"].map(|name| Stored { name, rank: 4 });
        let width = matrix.dim(1)?;
        let stream = self.turned.as_ref().map(|turned| turned.stream(width)).transpose()?.flatten();
        let Some(stream) = stream else { return self.replace(&names, matrix) };
        let vector = |part: &str| others(&format!("{}.{part}", head.norm)).map(|v| v.to_vec1::<f32>());
        let mut scales = vector("weight").transpose()?.unwrap_or_else(|| vec![1.0; width]);
        // The network multiplies logits by it, so that it is divided out again with the norm's scale.
        scales.iter_mut().for_each(|scale| *scale *= self.folds.logits as f32);
        let bias = vector("bias").transpose()?;
        let table = Sides { scales: None, inputs: Some(stream.clone()), outputs: None };
        if !head.is_tied && bias.is_none() {
            let sides = Sides { scales: Some(scales), ..table };
            return self.turned(&sides, matrix, |matrix| self.replace(&names, matrix));
        }
        let table = self.turned(&table, matrix, |matrix| self.replace(&names, matrix))?;
        let device = &Device::Cpu;
        let eye = Tensor::eye(width, DType::F32, device)?;
        let sides =
            Sides { scales: Some(scales), inputs: Some(stream.clone()), outputs: Some((stream, width)) };
        let names = [Stored { name: "head_map_weight", rank: 4 }];
        let map = self.turned(&sides, &eye, |matrix| self.replace(&names, matrix))?;
        let found = table.matmul(&map)?;
        if let Some(bias) = bias {
            self.add(name, &(table - &found)?, bias)?;
        }
        Ok(found)
    }

    /// Replaces what is stored of a matrix in the coordinates of the program.
    fn turned(
        &self,
        sides: &Sides,
        matrix: &Tensor,
        replace: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if sides.inputs.is_none() && sides.outputs.is_none() {
            return replace(matrix);
        }
        sides.turn_back(&replace(&sides.turn(matrix)?)?, matrix)
    }

    /// Keeps what the program adds to the outputs of a matrix: what it lacks, times the bias of the norm before it.
    fn add(&self, name: &str, lacking: &Tensor, bias: Vec<f32>) -> Result<()> {
        let width = bias.len();
        let bias = Tensor::from_vec(bias, (width, 1), &Device::Cpu)?;
        let added = lacking.matmul(&bias)?.flatten_all()?;
        self.added.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), added);
        Ok(())
    }

    /// What the program adds to the outputs of a matrix that was read.
    pub(super) fn added(&self, name: &str) -> Option<Tensor> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Replaces the parts of a matrix that the program stores with its factor and in its order of rows.
    fn folded(&self, layer: usize, role: &Role, matrix: &Tensor) -> Result<Tensor> {
        let Folds { added, pairs, .. } = self.folds;
        match (role.parts, pairs) {
            (["attention_output"] | ["mlp_down"], _) if added != 1.0 => {
                self.parts(layer, role, &(matrix * added)?)? / added
            }
            (["attention_query"] | ["attention_key"], Some(pairs)) => {
                pairs.by_neighbours(&self.parts(layer, role, &pairs.by_halves(matrix)?)?)
            }
            _ => self.parts(layer, role, matrix),
        }
    }

    /// Replaces the parts of a matrix. Where only one part is not compressed, it has the rows that the others leave;
    /// where more are not, nobody says which rows are whose and nothing is replaced.
    fn parts(&self, layer: usize, role: &Role, matrix: &Tensor) -> Result<Tensor> {
        let names: Vec<String> =
            role.parts.iter().map(|part| format!("layers_{layer}_{part}_weight")).collect();
        let known: Vec<Option<usize>> =
            names.iter().map(|name| self.weights.rows(&Stored { name, rank: 4 })).collect();
        let left = matrix.dim(0)?.checked_sub(known.iter().flatten().sum());
        let (Some(left), 0 | 1) = (left, known.iter().filter(|rows| rows.is_none()).count()) else {
            return Ok(matrix.clone());
        };
        let mut first = 0;
        let mut parts = Vec::with_capacity(names.len());
        for (name, rows) in names.iter().zip(known) {
            let rows = rows.unwrap_or(left);
            parts.push(self.replace(&[Stored { name, rank: 4 }], &matrix.narrow(0, first, rows)?)?);
            first += rows;
        }
        Tensor::cat(&parts, 0)
    }

    fn replace(&self, names: &[Stored<'_>], matrix: &Tensor) -> Result<Tensor> {
        let (rows, columns) = matrix.dims2()?;
        let mut values: Vec<f32> = matrix.contiguous()?.flatten_all()?.to_vec1()?;
        let overlaid = self.weights.overlay(names, &mut values, columns);
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.names.extend(overlaid.taken);
        record.misstored.extend(overlaid.misstored);
        Tensor::from_vec(values, (rows, columns), &Device::Cpu)
    }
}

/// The layer of a matrix and what it is there.
fn layer_role(name: &str) -> Option<(usize, &'static Role)> {
    let name = name.strip_suffix(".weight")?;
    let mut words = name.splitn(4, '.').skip(2);
    let (layer, rest) = (words.next()?.parse().ok()?, words.next()?);
    // GPT-2 and StarCoder 2 have the same names for matrices of different layouts.
    let is_gpt2 = name.starts_with("transformer.");
    Some((layer, ROLES.iter().find(|role| role.tensor == rest && (is_gpt2 || !role.by_inputs))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_known_by_their_names() {
        let found = |name| layer_role(name).map(|(layer, role)| (layer, role.parts[0], role.by_inputs));
        assert_eq!(found("model.layers.3.self_attn.k_proj.weight"), Some((3, "attention_key", false)));
        assert_eq!(found("transformer.h.12.mlp.c_proj.weight"), Some((12, "mlp_down", true)));
        assert_eq!(found("transformer.h.0.mlp.act.gate_proj.weight"), Some((0, "mlp_gate", false)));
        assert_eq!(found("model.layers.1.mlp.c_proj.weight"), Some((1, "mlp_down", false)));
        for other in ["model.layers.3.self_attn.k_proj.bias", "model.norm.weight", "lm_head.weight"] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
