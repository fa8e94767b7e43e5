//! The inputs of one kind of prediction at one length: made once, filled for every prediction.

use std::sync::Arc;

use half::f16;

use super::buffer::Buffer;
use super::call::{Call, TokenBatch};
use super::layout::Layout;
use super::recurrent;
use super::rotation::{RotationTable, Rows, count_long};
use crate::generate::error::{GenerateError, Result};
use anemeter_base::recurrent::{LATEST, PRESENT};
use anemeter_base::vocabulary::FunctionRole;
use anemeter_convert::bundle::{Chunk, Function, MANIFEST};
use anemeter_convert::model::QueryGrowth;
use anemeter_kernels::tensor::DType;

/// Added to the scores of keys that a query does not see. Infinity would make a NaN where nothing is seen.
const HIDDEN: f16 = f16::from_f32_const(-1e4);

/// The input with what is looked up for each layer, and the output of `embed`.
pub(super) const LOOKED_UP: &str = "per_layer";

/// Where an input of a chunk comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// An input that all chunks share.
    Shared(usize),
    /// The vectors that the chunk before gave.
    Previous,
    /// What the nearest earlier chunk gives under the name of the input.
    Earlier,
    /// The chunk's keys or values.
    Keys,
    Values,
    /// A state that the chunk's last prediction gave.
    Recurrent(usize),
}

/// An input of a function.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) input: String,
    pub(super) source: Source,
}

struct Slot {
    name: String,
    role: Role,
    buffer: Buffer,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Ids,
    PositionIds,
    Position,
    Select,
    Present,
    /// The latest tokens, so many of them.
    Latest(usize),
    Vectors,
    LookedUp,
    Mask {
        window: Option<usize>,
    },
    QueryScale {
        beta: f64,
        length: usize,
    },
    Cos(usize),
    Sin(usize),
}

/// A function that makes vectors of tokens.
pub(super) struct Embed {
    pub(super) function: Arc<str>,
    pub(super) wires: Vec<Wire>,
}

/// The inputs of a prediction.
pub(super) struct Frame {
    pub(super) call: Call,
    pub(super) length: usize,
    pub(super) function: String,
    pub(super) width: usize,
    batch: usize,
    slots: Vec<Slot>,
    /// How many rotations had the angles of longer sequences when they were written.
    written_long: Option<usize>,
    /// Inputs of each chunk's function, in its order.
    pub(super) wires: Vec<Vec<Wire>>,
    /// The function that makes vectors, if there is one and they are asked for.
    pub(super) embed: Option<Embed>,
    /// Outputs with logits, in vocabulary order.
    pub(super) logits: Vec<String>,
}

impl Frame {
    pub(super) fn new(
        layout: &Layout,
        chunks: &[&Chunk],
        tables: &mut [RotationTable],
        call: Call,
        length: usize,
    ) -> Result<Frame> {
        let function = layout.function(call.role(length, layout.query), length);
        let width = call.width(length, layout.query);
        tables.iter_mut().for_each(|table| table.extend_to(length));
        let mut frame = Frame {
            call,
            length,
            function,
            width,
            batch: layout.batch,
            slots: Vec::new(),
            written_long: None,
            wires: Vec::new(),
            embed: None,
            logits: Vec::new(),
        };
        for (index, chunk) in chunks.iter().enumerate() {
            let function = find(chunk, &frame.function)?;
            let wires = function.inputs.iter().map(|port| match port.name.as_str() {
                "hidden" if index > 0 => Ok(Source::Previous),
                "k_cache" => Ok(Source::Keys),
                "v_cache" => Ok(Source::Values),
                name => match recurrent::place(name) {
                    Some(place) => Ok(Source::Recurrent(place)),
                    None if gives(&chunks[..index], &frame.function, name) => Ok(Source::Earlier),
                    None => frame.share(layout, (chunk, function), tables, name),
                },
            });
            let sources = wires.collect::<Result<Vec<Source>>>()?;
            frame.wires.push(wired(function, sources));
            if index + 1 == chunks.len() {
                frame.logits = logits(function);
            }
        }
        frame.wire_embed(layout, chunks, tables)?;
        Ok(frame)
    }

    /// Wires `embed` where the first chunk takes vectors and has that function.
    fn wire_embed(&mut self, layout: &Layout, chunks: &[&Chunk], tables: &[RotationTable]) -> Result<()> {
        let Some(first) = chunks.first().filter(|_| self.vectors().is_some()) else { return Ok(()) };
        let name = layout.function(FunctionRole::Embed, self.width);
        let Ok(embed) = find(first, &name) else { return Ok(()) };
        let sources = embed.inputs.iter().map(|port| self.share(layout, (first, embed), tables, &port.name));
        let sources = sources.collect::<Result<Vec<Source>>>()?;
        self.embed = Some(Embed { function: name.into(), wires: wired(embed, sources) });
        Ok(())
    }

    /// The shared input of a name, made if it is new.
    fn share(
        &mut self,
        layout: &Layout,
        (chunk, function): (&Chunk, &Function),
        tables: &[RotationTable],
        name: &str,
    ) -> Result<Source> {
        if let Some(known) = self.slots.iter().position(|slot| slot.name == name) {
            return Ok(Source::Shared(known));
        }
        let (batch, width) = (layout.batch, self.width);
        let rows = if self.call.is_one() { batch } else { 1 };
        let role = role((chunk, function), tables, name).ok_or_else(|| {
            let problem = format!(
                "`{}` of `{}` takes `{name}`, which has no known meaning",
                self.function, chunk.file.name
            );
            GenerateError::file(MANIFEST, problem)
        })?;
        let (dtype, shape) = match role {
            Role::Ids | Role::PositionIds => (DType::I32, vec![batch, width]),
            Role::Position => (DType::I32, vec![1]),
            Role::Select | Role::Present => (DType::F16, vec![batch, 1, 1, width]),
            Role::Latest(count) => (DType::F16, vec![batch, 1, width, count]),
            Role::Vectors => (DType::F16, vec![batch, layout.hidden, 1, width]),
            Role::LookedUp => (DType::F16, vec![batch, layout.per_layer, 1, width]),
            Role::QueryScale { .. } => (DType::F16, vec![rows, 1, 1, width]),
            Role::Mask { .. } => (DType::F16, vec![rows, 1, width, self.length]),
            Role::Cos(table) | Role::Sin(table) => (DType::F16, vec![rows, tables[table].dims(), 1, width]),
        };
        let buffer = Buffer::zeroed(dtype, &shape)
            .map_err(|e| GenerateError::file(MANIFEST, format!("input `{name}`: {e}")))?;
        self.slots.push(Slot { name: name.to_owned(), role, buffer });
        Ok(Source::Shared(self.slots.len() - 1))
    }

    pub(super) fn shared(&self, index: usize) -> &Buffer {
        &self.slots[index].buffer
    }

    /// The vectors that the first chunk takes, if it takes no ids.
    pub(super) fn vectors(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.role == Role::Vectors)
    }

    /// What is looked up for each layer, if the first chunk takes it.
    pub(super) fn looked_up(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.role == Role::LookedUp)
    }

    pub(super) fn shared_mut(&mut self, index: usize) -> &mut Buffer {
        &mut self.slots[index].buffer
    }

    /// Writes ids and positions.
    pub(super) fn fill_tokens(&mut self, fed: &TokenBatch<'_>) {
        let (batch, width) = (self.batch, self.width);
        for slot in &mut self.slots {
            match slot.role {
                Role::Ids => {
                    for (row, ids) in slot.buffer.elements_mut::<i32>().chunks_exact_mut(width).zip(&fed.ids)
                    {
                        let (given, padding) = row.split_at_mut(ids.len());
                        given.iter_mut().zip(*ids).for_each(|(to, &id)| *to = id.cast_signed());
                        padding.fill(0);
                    }
                }
                Role::PositionIds => {
                    for (row, &start) in
                        slot.buffer.elements_mut::<i32>().chunks_exact_mut(width).zip(&fed.starts)
                    {
                        row.iter_mut().zip(start..).for_each(|(to, position)| *to = position as i32);
                    }
                }
                Role::Position => slot.buffer.elements_mut::<i32>()[0] = fed.starts[0] as i32,
                Role::Select => {
                    let elements = slot.buffer.elements_mut::<f16>();
                    elements.fill(f16::ZERO);
                    for b in 0..batch {
                        elements[b * width + fed.ids[b].len() - 1] = f16::ONE;
                    }
                }
                Role::Present => {
                    let rows = slot.buffer.elements_mut::<f16>().chunks_exact_mut(width);
                    for (row, ids) in rows.zip(&fed.ids) {
                        row[..ids.len()].fill(f16::ONE);
                        row[ids.len()..].fill(f16::ZERO);
                    }
                }
                Role::Latest(count) => {
                    let elements = slot.buffer.elements_mut::<f16>();
                    elements.fill(f16::ZERO);
                    for (rows, ids) in elements.chunks_exact_mut((width * count).max(1)).zip(&fed.ids) {
                        // Of a sequence of fewer tokens, what is before its beginning stays zero.
                        for column in count.saturating_sub(ids.len())..count {
                            rows[(ids.len() + column - count) * count + column] = f16::ONE;
                        }
                    }
                }
                Role::Vectors
                | Role::LookedUp
                | Role::Mask { .. }
                | Role::QueryScale { .. }
                | Role::Cos(_)
                | Role::Sin(_) => {}
            }
        }
    }

    /// Writes masks and rotations for a sequence that will have `seq_len` tokens, unless they are there already.
    pub(super) fn fill_places(&mut self, tables: &[RotationTable], fed: &TokenBatch<'_>, seq_len: usize) {
        let long = Some(count_long(tables, seq_len));
        if !self.call.starts_at_zero() {
            self.place(tables, &fed.starts, seq_len);
        } else if self.written_long != long {
            self.place(tables, &[0], seq_len);
            self.written_long = long;
        }
    }

    fn place(&mut self, tables: &[RotationTable], starts: &[usize], seq_len: usize) {
        let (call, width, length) = (self.call, self.width, self.length);
        let rows = |table: usize| -> &Rows { tables[table].rows(seq_len) };
        for slot in &mut self.slots {
            match slot.role {
                Role::Mask { window } => {
                    let rows = slot.buffer.elements_mut::<f16>().chunks_exact_mut(width * length);
                    for (row, &start) in rows.zip(starts) {
                        for (query, keys) in row.chunks_exact_mut(length).enumerate() {
                            let visible = call.visible(start + query, window, length);
                            keys[..visible.start].fill(HIDDEN);
                            keys[visible.end..].fill(HIDDEN);
                            keys[visible].fill(f16::ZERO);
                        }
                    }
                }
                Role::QueryScale { beta, length } => {
                    let growth = QueryGrowth { beta, length };
                    let rows = slot.buffer.elements_mut::<f16>().chunks_exact_mut(width);
                    for (row, &start) in rows.zip(starts) {
                        let factors = (start..).map(|position| f16::from_f32(growth.factor(position)));
                        row.iter_mut().zip(factors).for_each(|(to, factor)| *to = factor);
                    }
                }
                Role::Cos(table) => rotate(&mut slot.buffer, starts, width, |p| rows(table).cos(p)),
                Role::Sin(table) => rotate(&mut slot.buffer, starts, width, |p| rows(table).sin(p)),
                _ => {}
            }
        }
    }
}

/// Writes the rows of a table as columns.
fn rotate<'t>(buffer: &mut Buffer, starts: &[usize], width: usize, row: impl Fn(usize) -> &'t [f16]) {
    let dims = buffer.shape()[1];
    if dims == 0 {
        return;
    }
    for (to, &start) in buffer.elements_mut::<f16>().chunks_exact_mut(dims * width).zip(starts) {
        for column in 0..width {
            let row = row(start + column);
            to[column..].iter_mut().step_by(width).zip(row).for_each(|(to, &value)| *to = value);
        }
    }
}

fn role((chunk, function): (&Chunk, &Function), tables: &[RotationTable], name: &str) -> Option<Role> {
    let mask = chunk.masks.iter().find(|mask| mask.input == name);
    let scale = chunk.query_scales.iter().find(|scale| scale.input == name);
    let role = match name {
        "input_ids" => Role::Ids,
        "position_ids" => Role::PositionIds,
        "position" => Role::Position,
        "select" => Role::Select,
        PRESENT => Role::Present,
        LATEST => Role::Latest(last_size(function, name)?),
        "hidden" => Role::Vectors,
        LOOKED_UP => Role::LookedUp,
        _ => match (mask, scale) {
            (Some(mask), _) => Role::Mask { window: mask.window },
            (None, Some(scale)) => Role::QueryScale { beta: scale.beta, length: scale.length },
            (None, None) => match tables.iter().position(|table| table.cos_input == name) {
                Some(table) => Role::Cos(table),
                None => Role::Sin(tables.iter().position(|table| table.sin_input == name)?),
            },
        },
    };
    Some(role)
}

/// Whether one of the chunks gives an output of this name, in the same function.
fn gives(chunks: &[&Chunk], function: &str, name: &str) -> bool {
    let functions = chunks.iter().flat_map(|chunk| &chunk.functions).filter(|own| own.name == function);
    functions.flat_map(|own| &own.outputs).any(|port| port.name == name)
}

/// The last size of an input.
fn last_size(function: &Function, input: &str) -> Option<usize> {
    const MOST: u64 = 1 << 10;
    let port = function.inputs.iter().find(|port| port.name == input)?;
    let size = port.shapes.first()?.last().filter(|&&size| size <= MOST)?;
    usize::try_from(*size).ok()
}

fn find<'c>(chunk: &'c Chunk, name: &str) -> Result<&'c Function> {
    chunk.functions.iter().find(|function| function.name == name).ok_or_else(|| {
        let known: Vec<&str> = chunk.functions.iter().map(|function| function.name.as_str()).collect();
        let problem = format!("`{}` has no function `{name}`, only {}", chunk.file.name, known.join(", "));
        GenerateError::file(MANIFEST, problem)
    })
}

fn wired(function: &Function, sources: Vec<Source>) -> Vec<Wire> {
    let inputs = function.inputs.iter().map(|port| port.name.clone());
    inputs.zip(sources).map(|(input, source)| Wire { input, source }).collect()
}

/// `logits`, or `logits_0` and so on.
fn logits(function: &Function) -> Vec<String> {
    let is_output = |name: &String| function.outputs.iter().any(|port| port.name == *name);
    let whole = "logits".to_owned();
    if is_output(&whole) {
        return vec![whole];
    }
    (0..function.outputs.len()).map(|part| format!("logits_{part}")).take_while(is_output).collect()
}
