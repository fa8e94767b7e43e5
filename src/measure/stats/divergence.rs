//! From logits: the Kullback-Leibler divergence of next-token distributions, the negative log-likelihood (NLL) of a token.
//!
//! ```text
//! KL(p || q) = sum p (ln p - ln q)        NLL = ln(sum exp logits) - logits[token]        perplexity = exp(mean NLL)
//! ```
//!
//! S. Kullback and R. A. Leibler, "On information and sufficiency", Ann. Math. Statist. 22 (1951).

/// KL divergence of the softmax of the first logits from that of the second, in nats.
pub fn kl_divergence(reference: &[f32], found: &[f32]) -> f64 {
    let (r_sum, f_sum) = (log_sum_exp(reference), log_sum_exp(found));
    let term = |(&r, &f): (&f32, &f32)| {
        let (r, f) = (f64::from(r) - r_sum, f64::from(f) - f_sum);
        r.exp() * (r - f)
    };
    // Gibbs' inequality: less than 0 is rounding.
    reference.iter().zip(found).map(term).sum::<f64>().max(0.0)
}

/// Negative log-likelihood of a token, in nats.
pub fn negative_log_likelihood(logits: &[f32], token: usize) -> f64 {
    log_sum_exp(logits) - f64::from(logits[token])
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    // The largest logit is taken out of the sum, so that no exponential overflows.
    let largest = logits.iter().map(|&x| f64::from(x)).fold(f64::NEG_INFINITY, f64::max);
    largest + logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergences_are_those_computed_by_hand() {
        let ln2 = std::f32::consts::LN_2;
        // A half and a half against two thirds and one third.
        let expected = 0.5 * (0.75f64).ln() + 0.5 * (1.5f64).ln();
        assert!((kl_divergence(&[0.0, 0.0], &[ln2, 0.0]) - expected).abs() < 1e-7);
        assert!(kl_divergence(&[1.0, 2.0, 3.0], &[101.0, 102.0, 103.0]) < 1e-12);
    }

    #[test]
    fn a_sure_token_has_no_nll() {
        assert!((negative_log_likelihood(&[0.0; 8], 3) - 8f64.ln()).abs() < 1e-12);
        assert!(negative_log_likelihood(&[100.0, 0.0], 0) < 1e-12);
    }
}
