//! The gated delta rule over a whole sequence, in pieces (Yang et al. 2024, section 3): products within a piece for all
//! pieces at once, and a step from piece to piece.
//!
//! Within a piece each token is corrected by those before it, which is a triangular system `(1 + A) U = V`. ML programs have
//! no solver, so the inverse of `1 + A` is built from its diagonal in blocks of doubling size:
//! `inverse' = inverse - inverse (A masked to what joins two blocks) inverse`. That is forward substitution in blocks, so that
//! no number becomes larger than those of the inverse, which the shorter product `(1 - A)(1 + A^2)(1 + A^4)…` does not
//! promise. It costs two products of `piece x piece` per doubling, 10 for a piece of 64.

use super::delta_net::{DeltaInputs, Heads, TOKENS};
use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Graph};
use anemeter_kernels::tensor::Tensor;
use anemeter_mil::ValueId;

/// The most tokens of a piece, as in the reference implementation.
const PIECE: usize = 64;
/// The axis of pieces: what is `CHANNELS` elsewhere.
const PIECES: usize = CHANNELS;

/// How a sequence is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    /// Value heads of all sequences.
    heads: usize,
    /// Those that share a key head.
    group: usize,
    tokens: usize,
    pieces: usize,
    /// Tokens of a piece.
    piece: usize,
    key_dim: usize,
    value_dim: usize,
}

impl Sequence {
    /// As few pieces as can be, of near-equal length.
    pub(super) fn of(heads: Heads) -> Sequence {
        let Heads { rows, group, tokens, key_dim, value_dim, .. } = heads;
        let pieces = tokens.div_ceil(PIECE);
        let piece = tokens.div_ceil(pieces);
        Sequence { heads: rows * group, group, tokens, pieces, piece, key_dim, value_dim }
    }

    /// Zeros after the last token.
    fn padding(self) -> usize {
        self.pieces * self.piece - self.tokens
    }
}

/// What is known of every piece before the first step, `[heads, pieces, …]`.
struct Pieces {
    /// What would be written without an earlier state, and what of that state is taken from it.
    written: ValueId,
    taken: ValueId,
    /// Keys as the end of the piece sees them, and what the piece keeps of an earlier state.
    key: ValueId,
    kept: ValueId,
    /// Queries as the beginning sees them.
    query: ValueId,
    /// What each token reads of its piece.
    scores: ValueId,
}

/// What comes out `[heads, 1, tokens, value_dim]`, and the state after it `[heads, 1, key_dim, value_dim]`.
pub(super) fn sequence(
    graph: &mut Graph<'_>,
    inputs: &DeltaInputs,
    sequence: Sequence,
) -> Result<(ValueId, ValueId)> {
    let pieces = graph.within("pieces", |graph| Pieces::of(graph, inputs, sequence))?;
    let (written, states) = graph.within("steps", |graph| steps(graph, &pieces, sequence))?;
    let mut out = graph.matmul("read", (pieces.scores, false), (written, false))?;
    let (last, earlier) = states.split_last().expect("a sequence has a piece");
    if !earlier.is_empty() {
        let first = graph.slice("read_first", out, PIECES, 0..1)?;
        let rest = graph.slice("read_rest", out, PIECES, 1..sequence.pieces)?;
        let query = graph.slice("query_rest", pieces.query, PIECES, 1..sequence.pieces)?;
        let states = graph.concat("states", earlier, PIECES)?;
        let of_states = graph.matmul("read_states", (query, false), (states, false))?;
        let rest = graph.binary("add", "read_both", rest, of_states)?;
        out = graph.concat("read_all", &[first, rest], PIECES)?;
    }
    let Sequence { heads, tokens, pieces, piece, value_dim, .. } = sequence;
    let out = graph.reshape("sequence", out, [heads, 1, pieces * piece, value_dim].map(Some))?;
    let out = if sequence.padding() > 0 { graph.slice("tokens", out, TOKENS, 0..tokens)? } else { out };
    Ok((out, *last))
}

/// Goes from piece to piece: what is written in each, and the state after each.
fn steps(graph: &mut Graph<'_>, pieces: &Pieces, sequence: Sequence) -> Result<(ValueId, Vec<ValueId>)> {
    let (mut written, mut states): (Vec<ValueId>, Vec<ValueId>) = (Vec::new(), Vec::new());
    for index in 0..sequence.pieces {
        let of = |graph: &mut Graph<'_>, label: &str, all: ValueId| match sequence.pieces {
            1 => Ok(all),
            _ => graph.slice(label, all, PIECES, index..index + 1),
        };
        let mut new = of(graph, "written_own", pieces.written)?;
        if let Some(&state) = states.last() {
            let share = of(graph, "taken_own", pieces.taken)?;
            let known = graph.matmul("known", (share, false), (state, false))?;
            new = graph.binary("sub", "written", new, known)?;
        }
        let key = of(graph, "key_own", pieces.key)?;
        let mut after = graph.matmul("state_added", (key, true), (new, false))?;
        if let Some(&state) = states.last() {
            let share = of(graph, "kept_own", pieces.kept)?;
            let kept = graph.binary("mul", "state_kept", state, share)?;
            after = graph.binary("add", "state", kept, after)?;
        }
        written.push(new);
        states.push(after);
    }
    Ok((graph.concat("written_all", &written, PIECES)?, states))
}

impl Pieces {
    fn of(graph: &mut Graph<'_>, inputs: &DeltaInputs, sequence: Sequence) -> Result<Pieces> {
        let Sequence { piece, key_dim, value_dim, .. } = sequence;
        let shared = sequence.group;
        let query = divided(graph, "query", inputs.query, (sequence, key_dim), shared)?;
        let key = divided(graph, "key", inputs.key, (sequence, key_dim), shared)?;
        let value = divided(graph, "value", inputs.value, (sequence, value_dim), 1)?;
        let beta = divided(graph, "beta", inputs.beta, (sequence, 1), 1)?;
        let log_decay = divided(graph, "decay", inputs.log_decay, (sequence, 1), 1)?;

        // Logarithms of what is kept from the beginning of the piece to each token.
        let lower = square(graph, "lower", piece, |row, column| column <= row)?;
        let log_kept = graph.matmul("log_kept", (lower, false), (log_decay, false))?;
        let kept = graph.unary("exp", "kept", log_kept)?;
        let between = between(graph, log_kept, sequence)?;

        let alike = graph.matmul("alike", (key, false), (key, true))?;
        let alike = graph.binary("mul", "alike_kept", alike, between)?;
        let system = graph.binary("mul", "system", alike, beta)?;
        let inverse = graph.within("inverse", |graph| inverse(graph, system, piece))?;
        let value = graph.binary("mul", "value_written", value, beta)?;
        let share = graph.binary("mul", "beta_kept", beta, kept)?;
        let corrected = graph.binary("mul", "key_corrected", key, share)?;

        let scores = graph.matmul("scores", (query, false), (key, true))?;
        let scores = graph.binary("mul", "scores_kept", scores, between)?;
        let last = graph.slice("log_kept_last", log_kept, TOKENS, piece - 1..piece)?;
        let until_end = graph.binary("sub", "log_until_end", last, log_kept)?;
        let until_end = graph.unary("exp", "until_end", until_end)?;
        Ok(Pieces {
            written: graph.matmul("written", (inverse, false), (value, false))?,
            taken: graph.matmul("taken", (inverse, false), (corrected, false))?,
            key: graph.binary("mul", "key_at_end", key, until_end)?,
            kept: graph.unary("exp", "piece_kept", last)?,
            query: graph.binary("mul", "query_at_start", query, kept)?,
            scores: graph.binary("mul", "scores_seen", scores, lower)?,
        })
    }
}

/// What is kept from each token to each later one, `[heads, pieces, piece, piece]`; at most one, also where that is of no use.
fn between(graph: &mut Graph<'_>, log_kept: ValueId, sequence: Sequence) -> Result {
    let Sequence { heads, pieces, piece, .. } = sequence;
    let row = graph.reshape("log_kept_row", log_kept, [heads, pieces, 1, piece].map(Some))?;
    let log = graph.binary("sub", "log_between", log_kept, row)?;
    let log = graph.binary("minimum", "log_forgotten", log, 0.0f32)?;
    graph.unary("exp", "between", log)
}

/// The inverse of `1 + A` for the part of `system` below the diagonal.
fn inverse(graph: &mut Graph<'_>, system: ValueId, piece: usize) -> Result {
    let mut inverse = square(graph, "one", piece, |row, column| row == column)?;
    let mut block = 1;
    while block < piece {
        let joins = |row: usize, column: usize| {
            row / (2 * block) == column / (2 * block)
                && row / block % 2 == 1
                && (column / block).is_multiple_of(2)
        };
        let mask = square(graph, &format!("joins_{block}"), piece, joins)?;
        let joining = graph.binary("mul", "joining", system, mask)?;
        let correction = match block {
            // The inverse is still one.
            1 => joining,
            _ => {
                let left = graph.matmul("left", (inverse, false), (joining, false))?;
                graph.matmul("both", (left, false), (inverse, false))?
            }
        };
        inverse = graph.binary("sub", "inverse", inverse, correction)?;
        block *= 2;
    }
    Ok(inverse)
}

/// `[rows, 1 or group, tokens, width]` as `[heads, pieces, piece, width]`, with zeros after the last token. So many heads of
/// values in a row share each of what comes in.
fn divided(
    graph: &mut Graph<'_>,
    label: &str,
    x: ValueId,
    (sequence, width): (Sequence, usize),
    shared: usize,
) -> Result {
    graph.within(label, |graph| {
        let Sequence { heads, pieces, piece, .. } = sequence;
        let mut x = x;
        if sequence.padding() > 0 {
            x = graph.zeros_after("padded", x, TOKENS, sequence.padding())?;
        }
        let x = graph.concat("shared", &vec![x; shared], CHANNELS)?;
        graph.reshape("pieces", x, [heads, pieces, piece, width].map(Some))
    })
}

/// A constant of ones and zeros in fp32, `[1, 1, size, size]`, one per function.
fn square(graph: &mut Graph<'_>, name: &str, size: usize, is_one: impl Fn(usize, usize) -> bool) -> Result {
    let at = (0..size).flat_map(|row| (0..size).map(move |column| (row, column)));
    let values: Vec<f32> = at.map(|(row, column)| f32::from(u8::from(is_one(row, column)))).collect();
    let tensor = Tensor::from_slice(&[1, 1, size, size], &values)
        .map_err(|e| LowerError::model(graph.scope(), e.to_string()))?;
    Ok(graph.shared_constant(&format!("delta_{name}_{size}"), &tensor))
}
