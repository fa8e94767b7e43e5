//! What to compare on where nobody says: texts written for this, or ids where there is no tokenizer.

/// Texts of different lengths and kinds, one per line.
pub const PROMPTS: &str = include_str!("prompts.txt");

/// How many tokens each sequence of [`pseudo_random`] has.
const LENGTHS: [usize; 8] = [1, 2, 5, 16, 33, 64, 120, 240];

/// The same sequences of ids every time.
pub fn pseudo_random(vocabulary: usize) -> Vec<Vec<u32>> {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = (state >> 33) as usize % vocabulary.max(1);
        u32::try_from(id).expect("an id has 31 bits")
    };
    LENGTHS.iter().map(|&length| (0..length).map(|_| next()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_ids_differ() {
        let lines: Vec<&str> = PROMPTS.lines().collect();
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.trim().len() > 10));
        let ids = pseudo_random(37);
        assert_eq!(ids, pseudo_random(37));
        assert!(ids.iter().flatten().all(|&id| id < 37));
        let mut seen: Vec<u32> = ids.concat();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 37, "every token occurs");
        assert!(pseudo_random(0).iter().flatten().all(|&id| id == 0));
    }
}
