//! Exports a checkpoint and drives it, and the reference of `verify`, over what transformers computed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anemeter::bundle::Bundle;
use anemeter::export::{self, Chunking, ExportOptions, PrecisionPlan, Request};
use anemeter::generate::sample::likeliest;
use anemeter::generate::{Driver, SystemClock, sessions};
use anemeter::runtime::{self, LoadOptions};
use anemeter::stats;
use anemeter::vocabulary::{Activations, KvForm};
use anemeter::{checkpoint, model, oracle};
use anyhow::{Result, ensure};

use super::reference::{Boundary, Reference, Sequence};
use super::table::Row;

const FORMS: [KvForm; 3] = [KvForm::Io, KvForm::State, KvForm::None];
/// Forms of models whose layers keep states of fixed size.
const FORMS_WITHOUT_STATE: [KvForm; 2] = [KvForm::Io, KvForm::None];
/// Lengths of sequences and of the caches of `io`.
const SEQ_LENS: [usize; 3] = [48, 8, 24];
/// Lengths of states.
const CONTEXTS: [usize; 2] = [48, 16];
/// Tokens of a piece of a prompt with states.
pub(super) const QUERY: usize = 8;

/// One prediction beside that of transformers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparison {
    /// Tokens of the sequence then.
    pub(super) tokens: usize,
    /// Cosine of the logits, -1 if one of them is not a number.
    pub(super) cosine: f64,
    /// Largest difference of a logit.
    pub(super) difference: f32,
    /// The cache was moved to a longer one since the prompt.
    pub(super) has_grown: bool,
    /// The prompt was taken in by several pieces.
    pub(super) in_pieces: bool,
}

/// How an export is made: packages that the layers are divided among, sequences at once, and what the numbers between
/// operations are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division {
    pub(super) chunks: usize,
    pub(super) batch: usize,
    pub(super) activations: Activations,
}

/// One package, one sequence, fp16.
pub(super) const WHOLE: Division = Division { chunks: 1, batch: 1, activations: Activations::Fp16 };

/// Exports in every form, at lengths up to the longest sequence.
pub(super) fn export(checkpoint: &Path, output: &Path, longest: usize, division: Division) -> Result<Bundle> {
    let up_to = |lengths: &[usize]| {
        let mut seen = BTreeSet::new();
        let lengths = lengths.iter().map(|&length| length.min(longest));
        lengths.filter(|&length| seen.insert(length)).collect::<Vec<usize>>()
    };
    ensure!(longest <= SEQ_LENS[0], "the longest sequence has {longest} tokens, {} fit", SEQ_LENS[0]);
    export_at(checkpoint, output, (up_to(&SEQ_LENS), up_to(&CONTEXTS)), division)
}

fn export_at(
    checkpoint: &Path,
    output: &Path,
    (seq_lens, contexts): (Vec<usize>, Vec<usize>),
    division: Division,
) -> Result<Bundle> {
    let options = ExportOptions {
        enumerate_shapes: Some(seq_lens),
        contexts: Some(contexts),
        kv: Some(forms_of(checkpoint)?),
        activations: Some(division.activations),
        query: Some(QUERY),
        chunks: Some(Chunking::Count(division.chunks)),
        batch: Some(division.batch),
        ..ExportOptions::default()
    };
    let request = Request {
        checkpoint: checkpoint.to_owned(),
        output: output.to_owned(),
        overwrite: false,
        name: None,
        options,
        training_lengths: None,
        config: None,
        precision: PrecisionPlan::Fixed,
    };
    Ok(export::export(&request, &())?)
}

/// The forms that a checkpoint can be exported in.
pub(super) fn forms_of(path: &Path) -> Result<Vec<KvForm>> {
    let decoder = model::build(&checkpoint::open(path)?)?;
    let has_states = decoder.layers.iter().any(|layer| layer.mixer.state_bytes() > 0);
    Ok(if has_states { FORMS_WITHOUT_STATE.to_vec() } else { FORMS.to_vec() })
}

/// That lengths beyond the end of a model are refused, and that the error says where it ends.
pub(super) fn refusal(checkpoint: &Path, output: &Path, end: &Boundary) -> Row {
    let beyond = (vec![end.at + 1], vec![end.at + 1]);
    let refused = match export_at(checkpoint, output, beyond, WHOLE) {
        Ok(_) => false,
        Err(error) => error.to_string().contains(&end.at.to_string()),
    };
    let boundary = format!("{} {}: longer is refused", end.key, end.at);
    Row { is_other_fault: !refused, ..Row::empty(boundary) }
}

/// All sequences in all forms, each with prompts that end around every boundary.
pub(super) fn compare(bundle: &Bundle, reference: &Reference) -> Result<Vec<Comparison>> {
    let mut found = Vec::new();
    for form in bundle.manifest().forms() {
        let mut driver = driver(bundle, form)?;
        for sequence in &reference.sequences {
            // Without a cache every position is a prediction of its own, whatever the prompt.
            let prompts = match form {
                KvForm::None => BTreeSet::from([1]),
                _ => prompts(reference, sequence.ids.len()),
            };
            for prompt in prompts {
                follow(&mut driver, sequence, prompt, &mut found)?;
            }
        }
    }
    Ok(found)
}

fn driver(bundle: &Bundle, form: KvForm) -> Result<Driver> {
    let how = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    let sessions = sessions(bundle, &runtime::cpu(), &how)?;
    Ok(Driver::new(bundle, sessions, Some(form), Arc::new(SystemClock::default()))?)
}

/// One token, the whole sequence, and one less, as many and one more than every boundary has.
fn prompts(reference: &Reference, len: usize) -> BTreeSet<usize> {
    let own = SEQ_LENS.into_iter().chain(CONTEXTS).chain([QUERY, 2 * QUERY]);
    let boundaries = reference.boundaries.iter().map(|boundary| boundary.at).chain(own);
    let around = boundaries.flat_map(|at| [at - 1, at, at + 1]);
    around.chain([1, len]).filter(|prompt| (1..=len).contains(prompt)).collect()
}

fn follow(
    driver: &mut Driver,
    sequence: &Sequence,
    prompt: usize,
    found: &mut Vec<Comparison>,
) -> Result<()> {
    let Sequence { ids, logits } = sequence;
    driver.prefill(&[&ids[..prompt]], None)?;
    let (first_length, in_pieces) = (driver.length(), driver.form() == KvForm::State && prompt > QUERY);
    for tokens in prompt..=ids.len() {
        if tokens > prompt {
            driver.step(&ids[tokens - 1..tokens])?;
        }
        let has_grown = driver.length() != first_length;
        found.push(Comparison {
            has_grown,
            in_pieces,
            ..compared(tokens, driver.logits(0), &logits[tokens - 1])?
        });
    }
    Ok(())
}

fn compared(tokens: usize, found: &[f32], expected: &[f32]) -> Result<Comparison> {
    ensure!(found.len() == expected.len(), "{} logits, expected {}", found.len(), expected.len());
    let cosine = stats::cosine(found, expected);
    let cosine = if cosine.is_nan() { -1.0 } else { cosine };
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    let difference = differences.fold(0.0, |most: f32, one| if one <= most { most } else { one });
    let difference = if difference.is_nan() { f32::INFINITY } else { difference };
    Ok(Comparison { tokens, cosine, difference, has_grown: false, in_pieces: false })
}

/// The reference of `verify` on all sequences, with the same prompts.
pub(super) fn compare_oracle(path: &Path, reference: &Reference) -> Result<Vec<Comparison>> {
    let mut oracle = oracle::open(&checkpoint::open(path)?, reference.longest())?;
    let mut found = Vec::new();
    for Sequence { ids, logits } in &reference.sequences {
        for prompt in prompts(reference, ids.len()) {
            oracle.reset();
            for tokens in prompt..=ids.len() {
                let from = if tokens == prompt { 0 } else { tokens - 1 };
                let computed = oracle.feed(&ids[from..tokens])?;
                found.push(compared(tokens, &computed, &logits[tokens - 1])?);
            }
        }
    }
    Ok(found)
}

/// The greedy continuation in every form beside that of transformers. All sequences of a batch have the same prompt.
pub(super) fn greedy(bundle: &Bundle, reference: &Reference, what: &str) -> Result<Row> {
    let expected = &reference.greedy;
    let (prompt, rest) = expected.ids.split_at(expected.prompt);
    let mut differ = Vec::new();
    let forms = bundle.manifest().forms();
    for &form in &forms {
        let mut driver = driver(bundle, form)?;
        let batch = driver.batch();
        driver.prefill(&vec![prompt; batch], None)?;
        let mut found = Vec::new();
        while found.len() < rest.len() {
            // Logits that are not numbers have no likeliest.
            let chosen = (0..batch).map(|sequence| likeliest(driver.logits(sequence)));
            let Ok(tokens) = chosen.collect::<Result<Vec<u32>, _>>() else { break };
            if tokens.iter().any(|token| *token != tokens[0]) {
                break;
            }
            found.push(tokens[0]);
            if found.len() < rest.len() {
                driver.step(&tokens)?;
            }
        }
        if found != rest {
            let same = found.iter().zip(rest).take_while(|(a, b)| a == b).count();
            differ.push(format!("{form} differs at token {}", prompt.len() + same));
        }
    }
    let mut boundary = format!("greedy tokens, all forms{what}");
    if !differ.is_empty() {
        boundary = format!("{boundary}: {}", differ.join(", "));
    }
    Ok(Row {
        positions: forms.len() * rest.len(),
        is_other_fault: !differ.is_empty(),
        ..Row::empty(boundary)
    })
}
