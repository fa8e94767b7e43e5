//! Picking a token from logits: greedy, or by chance with a seed.

use std::cmp::Ordering;

use anemeter_kernels::argmax::{Argmax, argmax};

/// How a token is picked.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Division of the logits before chance decides; 0 always picks the likeliest token.
    pub temperature: f32,
    /// Only so many of the likeliest tokens are considered.
    pub top_k: Option<usize>,
    /// Only the likeliest tokens that together reach this probability are considered.
    pub top_p: f32,
    /// Where chance begins; the same seed picks the same tokens.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { temperature: 0.0, top_k: None, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// What is wrong with the settings, if anything.
    pub fn problem(&self) -> Option<String> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Some(format!("temperature is {}, should be 0 or more", self.temperature));
        }
        if self.top_k == Some(0) {
            return Some("top-k is 0, should be 1 or more".to_owned());
        }
        let is_share = self.top_p > 0.0 && self.top_p <= 1.0;
        (!is_share).then(|| format!("top-p is {}, should be above 0 and at most 1", self.top_p))
    }
}

/// Logits from which nothing can be picked.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// The logit of this token is not a number, or infinite.
    #[error("the logit of token {0} is {1}")]
    NotFinite(u32, f32),
    /// There are no logits, or all are minus infinity.
    #[error("no token has a finite logit")]
    Nothing,
}

/// Picks tokens; its memory is reused from pick to pick.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    random: SplitMix,
    candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: u32,
    /// A logit, then a weight.
    value: f32,
}

impl Sampler {
    /// A sampler for one sequence; sequences of a batch have numbers of their own.
    pub fn new(sampling: Sampling, sequence: usize) -> Sampler {
        let mut random = SplitMix(sampling.seed);
        let sequence = sequence as u64;
        random.0 ^= SplitMix(sequence).next().wrapping_mul(u64::from(sequence > 0));
        Sampler { sampling, random, candidates: Vec::new() }
    }

    /// Picks a token. Of equal logits the lowest id counts as the likelier.
    pub fn pick(&mut self, logits: &[f32]) -> Result<u32, SampleError> {
        let best = likeliest(logits)?;
        if self.sampling.temperature == 0.0 || self.sampling.top_k == Some(1) {
            return Ok(best);
        }
        self.gather(logits);
        let highest = logits[best as usize];
        let total = self.weigh(highest);
        let kept = self.nucleus(total);
        let mut left = self.random.unit() * kept.1;
        let considered = &self.candidates[..kept.0];
        for candidate in considered {
            left -= f64::from(candidate.value);
            if left < 0.0 {
                return Ok(candidate.id);
            }
        }
        let possible = considered.iter().rev().find(|candidate| candidate.value > 0.0);
        Ok(possible.map_or(best, |candidate| candidate.id))
    }

    /// The considered tokens, likeliest first where an order is needed.
    fn gather(&mut self, logits: &[f32]) {
        self.candidates.clear();
        self.candidates.extend(logits.iter().zip(0..).map(|(&value, id)| Candidate { id, value }));
        let likelier = |a: &Candidate, b: &Candidate| {
            b.value.partial_cmp(&a.value).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
        };
        if let Some(k) = self.sampling.top_k.filter(|&k| k < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(k, likelier);
            self.candidates.truncate(k);
        }
        if self.sampling.top_k.is_some() || self.sampling.top_p < 1.0 {
            self.candidates.sort_unstable_by(likelier);
        }
    }

    /// Turns logits into weights, of which the likeliest is 1; gives their sum.
    fn weigh(&mut self, highest: f32) -> f64 {
        let temperature = f64::from(self.sampling.temperature);
        let mut total = 0.0;
        for candidate in &mut self.candidates {
            let weight = ((f64::from(candidate.value) - f64::from(highest)) / temperature).exp();
            candidate.value = weight as f32;
            total += f64::from(candidate.value);
        }
        total
    }

    /// How many candidates reach the probability asked for, and their weight.
    fn nucleus(&self, total: f64) -> (usize, f64) {
        if self.sampling.top_p >= 1.0 {
            return (self.candidates.len(), total);
        }
        let wanted = total * f64::from(self.sampling.top_p);
        let mut sum = 0.0;
        for (index, candidate) in self.candidates.iter().enumerate() {
            sum += f64::from(candidate.value);
            if sum >= wanted {
                return (index + 1, sum);
            }
        }
        (self.candidates.len(), sum)
    }
}

/// The token of the highest logit, the lowest id if several have it.
pub fn likeliest(logits: &[f32]) -> Result<u32, SampleError> {
    match argmax(logits) {
        Argmax::At(id) => Ok(id as u32),
        Argmax::NotFinite(id) => Err(SampleError::NotFinite(id as u32, logits[id])),
        Argmax::Nothing => Err(SampleError::Nothing),
    }
}

/// The `count` likeliest tokens with their logits, likeliest first.
pub fn top(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = logits.iter().zip(0..).map(|(&logit, id)| (id, logit)).collect();
    let likelier = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let count = count.min(all.len());
    if count < all.len() {
        all.select_nth_unstable_by(count, likelier);
        all.truncate(count);
    }
    all.sort_unstable_by(likelier);
    all
}

/// Steele, Lea and Flood's generator of 2014: one addition and a mix per number.
#[derive(Debug, Clone, Copy)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 up to 1, without 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sampler(temperature: f32, top_k: Option<usize>, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Sampling { temperature, top_k, top_p, seed }, 0)
    }

    #[test]
    fn the_generator_gives_the_published_numbers() {
        let mut random = SplitMix(1_234_567);
        let numbers = [random.next(), random.next(), random.next()];
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, published);
    }

    #[test]
    fn the_lowest_id_wins_ties_and_bad_logits_are_named() {
        assert_eq!(likeliest(&[1.0, 3.0, 3.0, -1.0]), Ok(1));
        assert_eq!(likeliest(&[f32::NEG_INFINITY, -7.0]), Ok(1));
        assert!(matches!(likeliest(&[0.0, f32::NAN]), Err(SampleError::NotFinite(1, _))));
        assert_eq!(likeliest(&[f32::INFINITY]), Err(SampleError::NotFinite(0, f32::INFINITY)));
        assert_eq!(likeliest(&[]), Err(SampleError::Nothing));
        assert_eq!(likeliest(&[f32::NEG_INFINITY; 3]), Err(SampleError::Nothing));
        assert_eq!(top(&[1.0, 3.0, 3.0, -1.0], 3), [(1, 3.0), (2, 3.0), (0, 1.0)]);
        assert_eq!(top(&[1.0], 3), [(0, 1.0)]);
    }

    #[test]
    fn picks_come_as_often_as_they_are_likely() {
        let logits = [0.6f32.ln(), 0.3f32.ln(), 0.1f32.ln(), f32::NEG_INFINITY];
        let mut counts = [0u32; 4];
        let mut sampler = sampler(1.0, None, 1.0, 5);
        for _ in 0..100_000 {
            counts[sampler.pick(&logits).unwrap() as usize] += 1;
        }
        for (count, expected) in counts.iter().zip([60_000.0, 30_000.0, 10_000.0, 0.0]) {
            assert!((f64::from(*count) - expected).abs() < 1_000.0, "{counts:?}");
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let problem = |sampling: Sampling| sampling.problem();
        assert_eq!(problem(Sampling::default()), None);
        let hot = Sampling { temperature: f32::NAN, ..Sampling::default() };
        assert_eq!(problem(hot).unwrap(), "temperature is NaN, should be 0 or more");
        let none = Sampling { top_k: Some(0), ..Sampling::default() };
        assert_eq!(problem(none).unwrap(), "top-k is 0, should be 1 or more");
        let all = Sampling { top_p: 1.5, ..Sampling::default() };
        assert_eq!(problem(all).unwrap(), "top-p is 1.5, should be above 0 and at most 1");
    }

    proptest! {
        #[test]
        fn picks_are_among_the_considered(
            logits in prop::collection::vec(-20.0f32..20.0, 1..60),
            temperature in 0.0f32..3.0, k in 1usize..70, p in 0.01f32..=1.0, seed: u64,
        ) {
            let picked = sampler(temperature, Some(k), p, seed).pick(&logits).unwrap();
            let considered = top(&logits, k);
            let rank = considered.iter().position(|&(id, _)| id == picked);
            prop_assert!(rank.is_some());
            let weight = |logit: f32| f64::from((logit - considered[0].1) / temperature.max(1e-9)).exp();
            let total: f64 = considered.iter().map(|&(_, logit)| weight(logit)).sum();
            let before: f64 = considered[..rank.unwrap()].iter().map(|&(_, logit)| weight(logit)).sum();
            prop_assert!(before <= total * f64::from(p) * (1.0 + 1e-4), "{before} of {total}");
        }

        #[test]
        fn the_first_highest_logit_is_found(logits in prop::collection::vec(-3i8..3, 1..70)) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let highest = logits.iter().copied().fold(f32::MIN, f32::max);
            let first = logits.iter().position(|&logit| logit == highest).unwrap();
            prop_assert_eq!(likeliest(&logits).unwrap() as usize, first);
            prop_assert_eq!(top(&logits, 1)[0].0 as usize, first);
        }

        #[test]
        fn seeds_repeat_and_no_heat_is_greedy(
            logits in prop::collection::vec(-20.0f32..20.0, 1..60), seed: u64,
        ) {
            let run = || {
                let mut sampler = sampler(1.0, None, 0.9, seed);
                (0..20).map(|_| sampler.pick(&logits).unwrap()).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(), run());
            let best = likeliest(&logits).unwrap();
            prop_assert_eq!(sampler(0.0, None, 1.0, seed).pick(&logits).unwrap(), best);
            prop_assert_eq!(sampler(2.0, Some(1), 1.0, seed).pick(&logits).unwrap(), best);
            prop_assert_eq!(sampler(1.0, None, f32::MIN_POSITIVE, seed).pick(&logits).unwrap(), best);
        }

        #[test]
        fn any_bits_are_picked_from_or_refused(
            bits in prop::collection::vec(any::<u32>(), 0..40), temperature in 0.0f32..4.0, p in 0.01f32..=1.0,
        ) {
            let logits: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            if let Ok(id) = sampler(temperature, Some(5), p, 1).pick(&logits) {
                prop_assert!(logits[id as usize] > f32::NEG_INFINITY);
            }
        }
    }
}
