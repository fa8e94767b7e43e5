//! Which sides of which matrices an export with `--rotate` has in other coordinates (`docs/compression.md`), so that its
//! compressed weights can be compared and taken, and its hidden states compared.

use candle_core::{Device, Result, Tensor};

use crate::rotation::Rotation;
use anemeter_convert::bundle::Rotated;
use anemeter_convert::checkpoint::Config;

/// Seeds of the rotation of the residual stream and of that of values.
const STREAM: u64 = 0x616e_656d;
const VALUES: u64 = 0x6574_6572;

/// Architectures whose norms take the mean off.
const CENTRED: &[&str] = &["gpt2", "pagating", "starcoder2", "stablelm", "cohere2"];

/// Tensors of the checkpoint by the reference's names, for what is multiplied into others.
pub(super) type Others<'a> = &'a dyn Fn(&str) -> Option<Tensor>;

/// The rotations of a bundle.
pub(super) struct Turned {
    keeps_mean: bool,
    heads: usize,
    /// What the bundle says of them.
    said: Rotated,
}

/// Both sides of a matrix in the program's coordinates.
pub(super) struct Sides {
    /// A factor of each input.
    pub(super) scales: Option<Vec<f32>>,
    /// Of all inputs, or of every so many of them.
    pub(super) inputs: Option<Rotation>,
    /// Of every so many of the last rows.
    pub(super) outputs: Option<(Rotation, usize)>,
}

impl Turned {
    /// The rotations that a bundle says that it has.
    pub(super) fn of(rotated: Option<&Rotated>, architecture: &str, config: &Config) -> Option<Turned> {
        let said = rotated.filter(|rotated| rotated.is_used)?;
        let heads = |config: &Config| {
            ["num_attention_heads", "n_head"].iter().find_map(|key| config.get(key)?.as_u64())
        };
        let section = config.opt_section("text_config").ok().flatten();
        let heads = heads(config).or_else(|| section.as_ref().and_then(heads)).unwrap_or(1);
        Some(Turned {
            keeps_mean: CENTRED.contains(&architecture),
            heads: usize::try_from(heads).unwrap_or(1).max(1),
            said: said.clone(),
        })
    }

    /// The rotation of the residual stream that a bundle says that it has.
    pub(super) fn stream_of(
        rotated: Option<&Rotated>,
        architecture: &str,
        width: usize,
    ) -> Result<Option<Rotation>> {
        let Some(said) = rotated.filter(|rotated| rotated.is_used) else { return Ok(None) };
        let keeps_mean = CENTRED.contains(&architecture);
        Turned { keeps_mean, heads: 1, said: said.clone() }.stream(width)
    }

    /// The rotation of the residual stream.
    pub(super) fn stream(&self, width: usize) -> Result<Option<Rotation>> {
        let said = self.said.stream.as_ref();
        known(said.map(|_| Rotation::new(width, STREAM, self.keeps_mean)), said)
    }

    /// The rotation of each head's values.
    fn values(&self, head_dim: usize) -> Option<Rotation> {
        // The bundle names the first layer's; heads of others may be wider.
        self.said.values.as_ref().map(|_| Rotation::new(head_dim, VALUES, false))
    }

    /// The sides of a layer's matrix of so many rows and columns, which is such parts of the program.
    pub(super) fn sides(
        &self,
        (name, parts): (&str, &[&str]),
        [rows, columns]: [usize; 2],
        others: Others<'_>,
    ) -> Result<Sides> {
        let mut sides = Sides { scales: None, inputs: None, outputs: None };
        match parts {
            ["attention_output"] => {
                sides.inputs = self.values(columns / self.heads);
                sides.outputs = self.stream(rows)?.map(|rotation| (rotation, rows));
            }
            ["mlp_down" | "mlp_out"] => sides.outputs = self.stream(rows)?.map(|rotation| (rotation, rows)),
            _ if name.contains(".act.") => {}
            _ => {
                sides.inputs = self.stream(columns)?;
                if sides.inputs.is_some() {
                    sides.scales = norm_before(name, "weight", others)?;
                }
                if parts.contains(&"attention_value") {
                    let head_dim = self.head_dim(name, columns, others)?;
                    let own = if parts.len() == 1 { rows } else { (rows - self.heads * head_dim) / 2 };
                    sides.outputs = self.values(head_dim).map(|rotation| (rotation, own));
                }
            }
        }
        Ok(sides)
    }

    /// The width of the heads that a layer's output projection takes.
    fn head_dim(&self, name: &str, hidden: usize, others: Others<'_>) -> Result<usize> {
        let output = format!("{}.self_attn.o_proj.weight", layer_of(name));
        let width = others(&output).map_or(Ok(hidden), |output| output.dim(1))?;
        Ok(width / self.heads)
    }
}

/// What a bundle says has to be what is known here.
fn known(rotation: Option<Rotation>, said: Option<&String>) -> Result<Option<Rotation>> {
    let found = rotation.as_ref().map(Rotation::describe);
    if found.as_ref() == said {
        return Ok(rotation);
    }
    let (said, found) = (said.map_or("none", String::as_str), found.unwrap_or_else(|| "none".to_owned()));
    Err(candle_core::Error::Msg(format!(
        "`rotated` of export.json is `{said}`, and the reference knows `{found}` for this width"
    )))
}

/// Such as `model.layers.3`.
fn layer_of(name: &str) -> &str {
    name.match_indices('.').nth(2).map_or(name, |(at, _)| &name[..at])
}

/// Weight or bias of the norm whose outputs a matrix takes, if there is one.
pub(super) fn norm_before(name: &str, part: &str, others: Others<'_>) -> Result<Option<Vec<f32>>> {
    let rest = &name[layer_of(name).len()..];
    let norms: &[&str] = match rest.split('.').nth(1) {
        Some("attn") => &["ln_1"],
        Some("self_attn") => &["input_layernorm"],
        // Beside attention, an MLP may take what attention takes.
        _ if name.starts_with("transformer.") => &["ln_2"],
        _ => &["post_attention_layernorm", "input_layernorm"],
    };
    let found = norms.iter().find(|norm| others(&format!("{}.{norm}.weight", layer_of(name))).is_some());
    let Some(norm) = found else { return Ok(None) };
    let vector = others(&format!("{}.{norm}.{part}", layer_of(name)));
    vector.map(|vector| vector.to_vec1()).transpose()
}

impl Sides {
    /// A matrix of the checkpoint as the program has it.
    pub(super) fn turn(&self, matrix: &Tensor) -> Result<Tensor> {
        let (rows, columns) = matrix.dims2()?;
        let mut values: Vec<f32> = matrix.contiguous()?.flatten_all()?.to_vec1()?;
        if let Some(scales) = &self.scales {
            values.chunks_mut(columns).for_each(|row| row.iter_mut().zip(scales).for_each(|(x, s)| *x *= s));
        }
        if let Some(rotation) = &self.inputs {
            each(&mut values, rotation.width(), |x| rotation.turn(x));
        }
        let matrix = Tensor::from_vec(values, (rows, columns), &Device::Cpu)?;
        self.last_rows(&matrix, Rotation::turn)
    }

    /// A matrix of the program as the checkpoint has it, which is also given: an input whose factor is zero comes from there.
    pub(super) fn turn_back(&self, matrix: &Tensor, original: &Tensor) -> Result<Tensor> {
        let (rows, columns) = matrix.dims2()?;
        let matrix = self.last_rows(matrix, Rotation::turn_back)?;
        let mut values: Vec<f32> = matrix.contiguous()?.flatten_all()?.to_vec1()?;
        if let Some(rotation) = &self.inputs {
            each(&mut values, rotation.width(), |x| rotation.turn_back(x));
        }
        if let Some(scales) = &self.scales {
            let original: Vec<f32> = original.contiguous()?.flatten_all()?.to_vec1()?;
            for (row, original) in values.chunks_mut(columns).zip(original.chunks(columns)) {
                for ((x, scale), original) in row.iter_mut().zip(scales).zip(original) {
                    *x = if *scale == 0.0 { *original } else { *x / scale };
                }
            }
        }
        Tensor::from_vec(values, (rows, columns), &Device::Cpu)
    }

    fn last_rows(&self, matrix: &Tensor, turn: fn(&Rotation, &mut [f64])) -> Result<Tensor> {
        let Some((rotation, own)) = &self.outputs else { return Ok(matrix.clone()) };
        let (rows, columns) = matrix.dims2()?;
        let others = matrix.narrow(0, 0, rows - own)?;
        let mut values: Vec<f32> =
            matrix.narrow(0, rows - own, *own)?.t()?.contiguous()?.flatten_all()?.to_vec1()?;
        each(&mut values, rotation.width(), |x| turn(rotation, x));
        let turned = Tensor::from_vec(values, (columns, *own), &Device::Cpu)?.t()?.contiguous()?;
        if *own == rows { Ok(turned) } else { Tensor::cat(&[others, turned], 0) }
    }
}

/// Does something to every so many numbers.
pub(super) fn each(values: &mut [f32], width: usize, act: impl Fn(&mut [f64])) {
    let mut x = vec![0.0; width];
    for run in values.chunks_exact_mut(width.max(1)) {
        x.iter_mut().zip(run.iter()).for_each(|(x, value)| *x = f64::from(*value));
        act(&mut x);
        run.iter_mut().zip(&x).for_each(|(value, x)| *value = *x as f32);
    }
}
