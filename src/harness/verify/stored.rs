//! The weights that the packages of a bundle store compressed, decoded as the packages decode them.
//!
//! A reference that is given them computes what the packages should compute: what is left between the two is the
//! error of the program, not that of compression.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anemeter_convert::bundle::{Bundle, Rotated};
use anemeter_convert::compress::TensorLog;
use anemeter_measure::stats::cosine;
use anemeter_mil::op::{Decode, KnownValue, Numerics};
use anemeter_mil::package::{Package, PackageError};
use anemeter_mil::propagate::{self, propagate};

/// The compressed weights of a bundle by their names in its programs. A name ends with the rows of the weight where
/// the program holds only some of them, and with a number from 2 on where one function holds the weight again.
#[derive(Debug, Default)]
pub struct StoredWeights {
    weights: BTreeMap<(String, usize), Arc<dyn Decode>>,
    logged: BTreeMap<String, f64>,
    /// Factors of range repair, which the checkpoint's weights have not.
    factors: BTreeMap<String, f32>,
    /// Rotations, which the checkpoint's weights have not.
    rotated: Option<Rotated>,
    /// Whether there are compressed weights in assets alone, whose names are not kept there.
    unknown: bool,
}

/// What a matrix of the reference is called in the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The name of the weight, without rows or number.
    pub name: &'a str,
    /// The rank it is stored with: 2 for a table of which rows are looked up, 4 for the weight of a convolution.
    pub rank: usize,
}

/// A weight that is stored otherwise than the log of its compression says.
#[derive(Debug, Clone, PartialEq)]
pub struct Misstored {
    /// The weight.
    pub name: String,
    /// Cosine between the stored elements and those of the checkpoint.
    pub found: f64,
    /// The same as `export.json` has it.
    pub logged: f64,
}

impl StoredWeights {
    /// Finds the compressed weights of a bundle. Nothing is decoded yet.
    pub fn read(bundle: &Bundle) -> Result<StoredWeights, PackageError> {
        let manifest = bundle.manifest();
        let log = manifest.compression.iter().flat_map(|log| &log.tensors);
        let logged = log.map(|TensorLog { name, cosine, .. }| (name.clone(), *cosine)).collect();
        let factors = manifest.range_repair.as_ref().map(|repair| repair.weights.clone()).unwrap_or_default();
        let rotated = manifest.rotated.clone();
        let mut found = StoredWeights { weights: BTreeMap::new(), logged, factors, rotated, unknown: false };
        for chunk in &manifest.chunks {
            match chunk.package() {
                Some(file) => found.add(&Package::open(bundle.path(&file.name))?),
                None => found.unknown |= manifest.compression.is_some(),
            }
        }
        Ok(found)
    }

    fn add(&mut self, package: &Package) {
        let options =
            propagate::Options { fold_bytes: 0, trust_declared: true, numerics: Numerics::default() };
        for function in &package.model().program.functions {
            let (facts, _) = propagate(function, &[], options);
            for (value, known) in function.values.iter().zip(facts.known) {
                if let Some(KnownValue::Packed(decode)) = known {
                    self.weights.entry((value.name.clone(), decode.shape().len())).or_insert(decode);
                }
            }
        }
    }

    /// Whether there are compressed weights that cannot be told: those of Core AI assets without packages.
    pub fn are_unknown(&self) -> bool {
        self.unknown
    }

    /// The rotations that are multiplied into the weights, if there are any.
    pub fn rotated(&self) -> Option<&Rotated> {
        self.rotated.as_ref()
    }

    /// Whether no weight is compressed.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// How many rows a weight has that is stored as a whole.
    pub fn rows(&self, stored: &Stored<'_>) -> Option<usize> {
        self.weights.get(&(stored.name.to_owned(), stored.rank))?.shape().first().copied()
    }

    /// Replaces the rows of a matrix that are stored compressed under one of the names, the first that there is, and
    /// gives the names of the weights that were taken. `matrix` has rows of `columns` elements.
    pub fn overlay(&self, names: &[Stored<'_>], matrix: &mut [f32], columns: usize) -> Overlaid {
        let mut overlaid = Overlaid::default();
        for wanted in names {
            for ((name, rank), decode) in &self.weights {
                let Some(part) = part(name, wanted.name).filter(|_| *rank == wanted.rank) else { continue };
                let elements: usize = decode.shape().iter().product();
                let rows = part.unwrap_or(0..matrix.len() / columns.max(1));
                let range = rows.start * columns..rows.end * columns;
                // A weight of another size is not the one that the reference means.
                let Some(room) = matrix.get_mut(range).filter(|room| room.len() == elements) else {
                    continue;
                };
                overlaid.misstored.extend(self.replace(name, decode.as_ref(), room));
                if let Some(factor) = self.factors.get(wanted.name) {
                    room.iter_mut().for_each(|x| *x /= factor);
                }
                overlaid.taken.push(name.clone());
            }
            if !overlaid.taken.is_empty() {
                break;
            }
        }
        overlaid
    }

    fn replace(&self, name: &str, decode: &dyn Decode, room: &mut [f32]) -> Option<Misstored> {
        let mut values = vec![0.0; room.len()];
        decode.decode(0..room.len(), &mut values);
        let found = cosine(room, &values);
        room.copy_from_slice(&values);
        let logged = *self.logged.get(name)?;
        (found < logged - tolerance(logged)).then(|| Misstored { name: name.to_owned(), found, logged })
    }

    /// Compressed weights that are in none of the given names.
    pub fn others<'a>(&'a self, taken: &'a [String]) -> impl Iterator<Item = &'a str> {
        // What a decoder hands to the next one ends with other words than the weight, and is no weight itself.
        let names = self.logged.keys().filter(|name| self.weights.keys().any(|(stored, _)| stored == *name));
        names.map(String::as_str).filter(move |name| !taken.iter().any(|taken| taken == name))
    }
}

/// What [`StoredWeights::overlay`] did.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Overlaid {
    /// The weights that took the place of rows.
    pub taken: Vec<String>,
    /// Those that are further from the checkpoint than compression left them.
    pub misstored: Vec<Misstored>,
}

/// How much nearer to the checkpoint the log may have a weight: its elements were compared in fp16 there.
fn tolerance(logged: f64) -> f64 {
    1e-4 + (1.0 - logged) / 2.0
}

/// The rows that a weight called `name` has of the weight `whole`: nothing if it is another one, no rows if it is all.
fn part(name: &str, whole: &str) -> Option<Option<Range<usize>>> {
    let rest = name.strip_prefix(whole)?;
    if rest.is_empty() {
        return Some(None);
    }
    let numbers = rest.strip_prefix('_')?.split('_').map(|number| number.parse().ok());
    match numbers.collect::<Option<Vec<usize>>>()?[..] {
        [_] => Some(None),
        [first, end] | [first, end, _] if first < end => Some(Some(first..end)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::DType;

    /// A matrix of one number.
    struct Flat(Vec<usize>, f32);

    impl Decode for Flat {
        fn dtype(&self) -> DType {
            DType::F16
        }

        fn shape(&self) -> &[usize] {
            &self.0
        }

        fn decode(&self, range: Range<usize>, out: &mut [f32]) {
            out[..range.len()].fill(self.1);
        }

        fn stored_bytes(&self) -> usize {
            1
        }
    }

    fn stored(weights: &[(&str, &[usize], f32)]) -> StoredWeights {
        let entry = |&(name, shape, value): &(&str, &[usize], f32)| {
            let decode: Arc<dyn Decode> = Arc::new(Flat(shape.to_vec(), value));
            ((name.to_owned(), shape.len()), decode)
        };
        let logged = weights.iter().map(|(name, ..)| ((*name).to_owned(), 0.99)).collect();
        StoredWeights {
            weights: weights.iter().map(entry).collect(),
            logged,
            factors: BTreeMap::new(),
            rotated: None,
            unknown: false,
        }
    }

    const HEAD: Stored<'_> = Stored { name: "head", rank: 4 };

    #[test]
    fn names_tell_rows() {
        assert_eq!(part("head", "head"), Some(None));
        assert_eq!(part("head_2", "head"), Some(None));
        assert_eq!(part("head_3_7", "head"), Some(Some(3..7)));
        assert_eq!(part("head_3_7_2", "head"), Some(Some(3..7)));
        for other in ["header", "head_x", "head_7_3", "tail", "head_1_2_3_4", "head_"] {
            assert_eq!(part(other, "head"), None, "{other}");
        }
    }

    #[test]
    fn rows_that_are_stored_take_the_place_of_others() {
        let weights = stored(&[("head_0_1", &[1, 2, 1, 1], 5.0), ("head", &[3, 2], 9.0)]);
        let mut matrix = [1.0; 6];
        let overlaid = weights.overlay(&[HEAD], &mut matrix, 2);
        assert_eq!(matrix, [5.0, 5.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!((&overlaid.taken[..], overlaid.misstored.len()), (&["head_0_1".to_owned()][..], 0));
        assert_eq!(weights.others(&overlaid.taken).collect::<Vec<_>>(), ["head"]);
    }

    #[test]
    fn a_weight_of_another_size_or_content_is_not_believed() {
        let mut matrix = [1.0, -1.0, 1.0, -1.0];
        let small = stored(&[("head", &[1, 2, 1, 1], 5.0)]);
        assert_eq!(small.overlay(&[HEAD], &mut matrix, 2), Overlaid::default());
        let other = stored(&[("head", &[2, 2, 1, 1], 5.0)]);
        let misstored = other.overlay(&[HEAD], &mut matrix, 2).misstored;
        assert_eq!((misstored[0].found, misstored[0].logged), (0.0, 0.99));
    }
}
