//! Stop texts: what an answer ends before. Text that may yet become one is held back.

/// Looks for stop texts in a text that comes piece by piece.
#[derive(Debug)]
pub(crate) struct StopText {
    stops: Vec<String>,
    held: String,
}

impl StopText {
    pub(crate) fn new(stops: Vec<String>) -> StopText {
        StopText { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    /// Takes a piece; gives the text that is certain, and whether a stop text was reached.
    pub(crate) fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            let mut certain = std::mem::take(&mut self.held);
            certain.truncate(at);
            return (certain, true);
        }
        let rest = self.held.split_off(self.held.len() - self.open());
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Gives what was held back, once nothing more comes.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end that begin a stop text.
    fn open(&self) -> usize {
        let begins = |stop: &String| {
            let most = (stop.len() - 1).min(self.held.len());
            (1..=most).rev().find(|&n| stop.is_char_boundary(n) && self.held.ends_with(&stop[..n]))
        };
        self.stops.iter().filter_map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut stop = StopText::new(stops.iter().map(|&s| s.to_owned()).collect());
        let mut out = Vec::new();
        for piece in pieces {
            let (text, reached) = stop.push(piece);
            out.push(text);
            if reached {
                return (out, true);
            }
        }
        out.push(stop.finish());
        (out, false)
    }

    #[test]
    fn text_before_a_stop_is_given_and_what_may_become_one_is_held() {
        assert_eq!(run(&["\n\n"], &["a\n", "b\n", "\nc"]).0, ["a", "\nb", ""]);
        assert_eq!(run(&["END"], &["xE", "N", "X"]).0, ["x", "", "ENX", ""]);
        assert_eq!(run(&["END"], &["xE"]).0, ["x", "E"]);
        assert_eq!(run(&["bc", "b"], &["abc"]), (vec!["a".to_owned()], true));
        assert_eq!(run(&["é!"], &["caf", "é", "?"]).0, ["caf", "", "é?", ""]);
        assert_eq!(run(&[""], &["a"]).0, ["a", ""]);
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(text in "[ab]{0,20}", stop in "[ab]{1,4}", cut in 0usize..20) {
            let cut = cut.min(text.len());
            let (pieces, reached) = run(&[&stop], &[&text[..cut], &text[cut..]]);
            let expected = text.find(&stop).map_or(text.as_str(), |at| &text[..at]);
            prop_assert_eq!(pieces.concat(), expected);
            prop_assert_eq!(reached, text.contains(&stop));
        }
    }
}
