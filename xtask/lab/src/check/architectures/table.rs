//! Rows per boundary, and the limits that they are held to.

use anemeter::render::Table;

use super::Checked;
use super::drive::{Comparison, QUERY};
use super::reference::{Boundary, Reference};

/// The least cosine of a position that `verify` lets pass, too.
const REQUIRED_COSINE: f64 = 0.9999;
/// The least cosine of a position of a twin that is not rounded to fp16 between operations.
const REQUIRED_OF_TWIN: f64 = 0.999_99;
const TWIN: &str = "activations of fp32";
/// The largest difference of a logit of the reference of `verify`, which computes in f32 as transformers does.
const LARGEST_DIFFERENCE: f32 = 2e-4;

/// What came of the positions beyond a boundary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) boundary: String,
    pub(super) positions: usize,
    /// The least cosine of the export's logits.
    pub(super) least_cosine: Option<f64>,
    /// The least cosine if the boundary were overlooked.
    pub(super) ignored: Option<f64>,
    /// The largest difference of a logit of the reference of `verify`.
    pub(super) difference: Option<f32>,
    /// Something else is wrong, as the boundary says.
    pub(super) is_other_fault: bool,
}

impl Row {
    /// A row without a figure.
    pub(super) fn empty(boundary: String) -> Row {
        Row {
            boundary,
            positions: 0,
            least_cosine: None,
            ignored: None,
            difference: None,
            is_other_fault: false,
        }
    }

    /// Whether everything is within its limit.
    pub(super) fn passes(&self) -> bool {
        // A check that would pass without the boundary shows nothing of it.
        let is_sensitive = self.ignored.is_none_or(|ignored| ignored < REQUIRED_COSINE);
        let is_equal = self.least_cosine.is_none_or(|cosine| cosine >= REQUIRED_COSINE);
        let is_same = self.difference.is_none_or(|difference| difference <= LARGEST_DIFFERENCE);
        is_sensitive && is_equal && is_same && !self.is_other_fault
    }

    /// Of those comparisons that are meant; a boundary that none is beyond fails.
    fn of(
        boundary: String,
        compared: &[Comparison],
        oracle: &[Comparison],
        is_meant: impl Fn(&Comparison) -> bool,
    ) -> Row {
        let meant: Vec<&Comparison> = compared.iter().filter(|one| is_meant(one)).collect();
        let references = oracle.iter().filter(|one| is_meant(one));
        Row {
            boundary,
            positions: meant.len(),
            least_cosine: meant.iter().map(|one| one.cosine).reduce(f64::min),
            ignored: None,
            difference: references.map(|one| one.difference).reduce(f32::max),
            is_other_fault: meant.is_empty(),
        }
    }
}

/// Positions before the first boundary, beyond each, in a cache that has grown, and after a prompt in pieces.
pub(super) fn rows(reference: &Reference, compared: &[Comparison], oracle: &[Comparison]) -> Vec<Row> {
    let inner: Vec<&Boundary> = reference.boundaries.iter().filter(|boundary| !boundary.end).collect();
    let first = inner.iter().map(|boundary| boundary.at).min();
    let within = match first {
        Some(at) => format!("up to {at} tokens"),
        None => "none".to_owned(),
    };
    let mut rows = vec![Row::of(within, compared, oracle, |one| first.is_none_or(|at| one.tokens <= at))];
    for boundary in inner {
        let Boundary { key, at, ignored, .. } = boundary;
        let row = Row::of(format!("{key} {at}"), compared, oracle, |one| one.tokens > *at);
        rows.push(Row { ignored: *ignored, ..row });
    }
    // The oracle has one cache and takes prompts in at once.
    rows.push(Row::of("a longer cache".to_owned(), compared, &[], |one| one.has_grown));
    // Models that keep states of fixed size take prompts in whole.
    if compared.is_empty() || compared.iter().any(|one| one.in_pieces) {
        rows.push(Row::of(format!("prompt in pieces of {QUERY}"), compared, &[], |one| one.in_pieces));
    }
    rows
}

/// All positions of a twin whose activations are fp32: what differs more than this is no rounding of fp16.
pub(super) fn twin(compared: &[Comparison]) -> Row {
    let row = Row::of(TWIN.to_owned(), compared, &[], |_| true);
    let is_beyond = row.least_cosine.is_some_and(|cosine| cosine < REQUIRED_OF_TWIN);
    Row { is_other_fault: row.is_other_fault || is_beyond, ..row }
}

/// All rows of all checkpoints.
pub(super) fn table(checked: &[Checked]) -> Table {
    let headings = [
        "class",
        "configuration",
        "boundary",
        ">positions",
        ">least cosine",
        ">if overlooked",
        ">reference differs by",
        "verdict",
    ];
    let mut table = Table::new(&headings);
    for one in checked {
        for row in &one.rows {
            let cosine =
                |cosine: Option<f64>| cosine.map(|cosine| format!("{cosine:.7}")).unwrap_or_default();
            table.row([
                one.class.clone(),
                one.name.clone(),
                row.boundary.clone(),
                row.positions.to_string(),
                cosine(row.least_cosine),
                cosine(row.ignored),
                row.difference.map(|difference| format!("{difference:.1e}")).unwrap_or_default(),
                if row.passes() { "passed".to_owned() } else { "FAILED".to_owned() },
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::reference::Greedy;
    use super::*;

    fn comparison(tokens: usize, cosine: f64, difference: f32) -> Comparison {
        Comparison { tokens, cosine, difference, has_grown: tokens > 8, in_pieces: tokens > 2 }
    }

    fn reference(ignored: f64) -> Reference {
        let window = Boundary { key: "sliding_window".into(), at: 4, end: false, ignored: Some(ignored) };
        let end = Boundary { key: "n_positions".into(), at: 12, end: true, ignored: None };
        let greedy = Greedy { ids: vec![1, 2], prompt: 1 };
        Reference { class: "A".into(), boundaries: vec![window, end], sequences: Vec::new(), greedy }
    }

    #[test]
    fn positions_are_counted_where_they_are() {
        let compared: Vec<Comparison> = (1..=12).map(|tokens| comparison(tokens, 1.0, 0.0)).collect();
        let rows = rows(&reference(0.5), &compared, &compared);
        let found: Vec<(&str, usize)> =
            rows.iter().map(|row| (row.boundary.as_str(), row.positions)).collect();
        let expected = [
            ("up to 4 tokens", 4),
            ("sliding_window 4", 8),
            ("a longer cache", 4),
            ("prompt in pieces of 8", 10),
        ];
        assert_eq!(found, expected);
        assert!(rows.iter().all(Row::passes));
    }

    #[test]
    fn one_position_beyond_a_limit_fails_its_row() {
        let verdicts = |cosine: f64, difference: f32, ignored: f64| {
            let mut compared: Vec<Comparison> = (1..=12).map(|tokens| comparison(tokens, 1.0, 0.0)).collect();
            compared[6] = comparison(7, cosine, difference);
            let rows = rows(&reference(ignored), &compared, &compared);
            rows.iter().map(Row::passes).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(0.9998, 0.0, 0.5), [true, false, true, false]);
        assert_eq!(verdicts(-1.0, 0.0, 0.5), [true, false, true, false]);
        assert_eq!(verdicts(1.0, 3e-4, 0.5), [true, false, true, true]);
        assert_eq!(verdicts(1.0, f32::INFINITY, 0.5), [true, false, true, true]);
        assert_eq!(verdicts(1.0, 0.0, 0.99995), [true, false, true, true], "the boundary is not seen");
        let nothing = rows(&reference(0.5), &[], &[]);
        assert!(nothing.iter().all(|row| !row.passes()), "nothing was compared");
    }
}
