//! The merges that a SentencePiece vocabulary implies: pieces are joined in the order of their scores.

use std::collections::HashMap;

/// A merge of two pieces.
pub(super) type Merge<'a> = (&'a str, &'a str);

/// All merges of pieces into pieces of `joined`, first to last; `ids` has every piece that may take part.
pub(super) fn implied<'a>(joined: &[(&'a str, f32)], ids: &HashMap<&str, u32>) -> Vec<Merge<'a>> {
    let mut merges: Vec<(Merge<'a>, f32)> = Vec::new();
    for &(piece, score) in joined {
        let cuts = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
        let mut own: Vec<_> = cuts
            .filter_map(|(left, right)| Some(((left, right), (ids.get(left)?, ids.get(right)?))))
            .collect();
        own.sort_by(|a, b| b.1.cmp(&a.1));
        merges.extend(own.into_iter().map(|(merge, _)| (merge, score)));
    }
    let length = |piece: &str| piece.chars().count();
    merges.sort_by(|((a_left, a_right), a), ((b_left, b_right), b)| {
        b.total_cmp(a)
            .then_with(|| length(b_left).cmp(&length(a_left)))
            .then_with(|| length(b_right).cmp(&length(a_right)))
    });
    merges.into_iter().map(|(merge, _)| merge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_merge_first_and_both_parts_must_be_pieces() {
        let pieces = [("a", -9.0), ("b", -9.0), ("ab", -2.0), ("aab", -1.0), ("xb", 0.0)];
        let ids = pieces.iter().zip(0..).map(|(piece, id)| (piece.0, id)).collect();
        assert_eq!(implied(&pieces, &ids), [("a", "ab"), ("a", "b")]);
    }
}
