//! The index of the largest of many values, as greedy decoding picks a token. It stands here because the crates
//! that are on a step's clock for nothing else are built for a short build.

/// Values that are compared at a time, so that the compiler takes vectors of them.
const LANES: usize = 16;

/// What the largest of some values is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argmax {
    /// The index of the largest, the lowest of several.
    At(usize),
    /// The index of the first that is NaN or plus infinity.
    NotFinite(usize),
    /// There are no values, or all are minus infinity.
    Nothing,
}

/// Finds the largest of some values.
pub fn argmax(values: &[f32]) -> Argmax {
    let is_bad = |value: f32| value.is_nan() || value == f32::INFINITY;
    let (mut highest, mut bad) = ([f32::NEG_INFINITY; LANES], [false; LANES]);
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks.chain([rest]) {
        for ((&value, highest), bad) in chunk.iter().zip(&mut highest).zip(&mut bad) {
            *bad |= is_bad(value);
            *highest = if value > *highest { value } else { *highest };
        }
    }
    if bad.contains(&true)
        && let Some(index) = values.iter().position(|&value| is_bad(value))
    {
        return Argmax::NotFinite(index);
    }
    let highest = highest.into_iter().fold(f32::NEG_INFINITY, f32::max);
    match values.iter().position(|&value| value == highest) {
        Some(index) if highest > f32::NEG_INFINITY => Argmax::At(index),
        _ => Argmax::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_is_found_wherever_it_is() {
        for len in [1, 15, 16, 17, 100] {
            for at in 0..len {
                let mut values: Vec<f32> = (0..len).map(|i| -(i as f32) - 1.0).collect();
                values[at] = 3.0;
                values[len - 1] = 3.0;
                assert_eq!(argmax(&values), Argmax::At(at), "{at} of {len}");
            }
        }
    }

    #[test]
    fn what_has_no_largest_is_told_apart() {
        let mut values = vec![0.0; 40];
        values[21] = f32::NAN;
        values[33] = f32::INFINITY;
        assert_eq!(argmax(&values), Argmax::NotFinite(21));
        values[21] = f32::NEG_INFINITY;
        assert_eq!(argmax(&values), Argmax::NotFinite(33));
        assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), Argmax::Nothing);
        assert_eq!(argmax(&[]), Argmax::Nothing);
    }
}
