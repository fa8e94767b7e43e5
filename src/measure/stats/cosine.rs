//! Cosine similarity `a . b / (|a| |b|)`, summed in f64.

/// Cosine of the angle between two vectors; 1 for two zeros.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let (a_square, b_square) = (dot(a, a), dot(b, b));
    // A zero vector has no direction: it equals another zero vector and is orthogonal to all others.
    if a_square == 0.0 || b_square == 0.0 {
        return f64::from(u8::from(a_square == b_square));
    }
    // Rounding may put the quotient of parallel vectors just beyond 1.
    (dot(a, b) / (a_square * b_square).sqrt()).clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_direction_counts() {
        assert_eq!(cosine(&[1.0, 2.0], &[2.0, 4.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert_eq!(cosine(&[1.0, -1.0], &[-1.0, 1.0]), -1.0);
        assert_eq!((cosine(&[0.0], &[0.0]), cosine(&[0.0], &[1.0])), (1.0, 0.0));
    }
}
