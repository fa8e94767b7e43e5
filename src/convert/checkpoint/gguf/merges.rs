//! The merges that a SentencePiece vocabulary implies: pieces are joined in the order of their scores.

use std::collections::HashMap;

/// A merge of two pieces.
pub(super) type Merge<'a> = (&'a str, &'a str);

/// Merges and bytes of them that are rebuilt: vocabularies of 260,000 pieces imply 600,000 merges of 8 MB. A vocabulary
/// of long pieces that are made of each other implies more than it has letters.
const MOST: usize = 4_000_000;
const MOST_BYTES: usize = 96 << 20;

/// All merges of pieces into pieces of `joined`, first to last; `ids` has every piece that may take part. Nothing if they
/// are too many.
pub(super) fn implied<'a>(joined: &[(&'a str, f32)], ids: &HashMap<&str, u32>) -> Option<Vec<Merge<'a>>> {
    let mut merges: Vec<(Merge<'a>, f32)> = Vec::new();
    let mut bytes = 0;
    for &(piece, score) in joined {
        let cuts = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
        let mut own: Vec<_> = cuts
            .filter_map(|(left, right)| Some(((left, right), (ids.get(left)?, ids.get(right)?))))
            .collect();
        bytes += own.len() * piece.len();
        if merges.len() + own.len() > MOST || bytes > MOST_BYTES {
            return None;
        }
        own.sort_by(|a, b| b.1.cmp(&a.1));
        merges.extend(own.into_iter().map(|(merge, _)| (merge, score)));
    }
    let length = |piece: &str| piece.chars().count();
    merges.sort_by(|((a_left, a_right), a), ((b_left, b_right), b)| {
        b.total_cmp(a)
            .then_with(|| length(b_left).cmp(&length(a_left)))
            .then_with(|| length(b_right).cmp(&length(a_right)))
    });
    Some(merges.into_iter().map(|(merge, _)| merge).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_merge_first_and_both_parts_must_be_pieces() {
        let pieces = [("a", -9.0), ("b", -9.0), ("ab", -2.0), ("aab", -1.0), ("xb", 0.0)];
        let ids = pieces.iter().zip(0..).map(|(piece, id)| (piece.0, id)).collect();
        assert_eq!(implied(&pieces, &ids).unwrap(), [("a", "ab"), ("a", "b")]);
    }

    #[test]
    fn merges_are_no_square_of_the_vocabulary() {
        // Every part of `ababab…` is a piece.
        let text = "ab".repeat(512);
        let parts = (1..=1024).flat_map(|len| (0..=1usize).map(move |start| (start, len)));
        let pieces: Vec<(&str, f32)> =
            parts.filter_map(|(start, len)| Some((text.get(start..start + len)?, 0.0))).collect();
        let ids = pieces.iter().zip(0..).map(|(piece, id)| (piece.0, id)).collect();
        assert_eq!(implied(&pieces, &ids), None);
    }
}
