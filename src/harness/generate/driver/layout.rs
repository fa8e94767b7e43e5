//! What a driver has to know of a bundle, checked.

use smallvec::SmallVec;

use crate::generate::error::{GenerateError, Result};
use anemeter_base::advice::Remedy;
use anemeter_base::function_name::function_name;
use anemeter_base::vocabulary::{FunctionRole, KvForm, ShapesAs};
use anemeter_convert::bundle::contract::Contract;
use anemeter_convert::bundle::{Architecture, Exported, MANIFEST, Manifest, Settings};

/// Longest sequence, widest vector and largest vocabulary that are taken for real.
const MAX_LENGTH: usize = 1 << 15;
const MAX_WIDTH: usize = 1 << 20;
const MAX_TOKENS: usize = 1 << 26;

/// Sizes of a bundle in one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) form: KvForm,
    pub(super) batch: usize,
    pub(super) hidden: usize,
    /// Numbers that are looked up for the layers besides, if any.
    pub(super) per_layer: usize,
    pub(super) vocabulary: usize,
    /// Sequence or cache lengths, shortest first.
    pub(super) buckets: Vec<usize>,
    /// Tokens per prediction of a prompt with states.
    pub(super) query: usize,
    /// How functions take lengths.
    pub(super) shapes_as: ShapesAs,
}

impl Layout {
    /// Sizes in a form, or in the bundle's first.
    pub(super) fn of(manifest: &Manifest, form: Option<KvForm>) -> Result<Layout> {
        let not_exported = || {
            let problem = "nothing says how the packages are driven as a language model";
            GenerateError::request(problem).with_help(Remedy::GiveContract)
        };
        let Exported { architecture, settings, .. } = manifest.exported().ok_or_else(not_exported)?;
        let form = chosen(settings, form)?;
        let lengths = if form == KvForm::State { &settings.contexts } else { &settings.seq_lens };
        let mut buckets = lengths.clone();
        buckets.sort_unstable();
        buckets.dedup();
        let &Architecture { hidden, vocabulary, per_layer, .. } = architecture;
        let per_layer = per_layer.map_or(0, |lookup| lookup.width);
        let (Some(&shortest), Some(&longest)) = (buckets.first(), buckets.last()) else {
            return Err(GenerateError::file(MANIFEST, "`lengths` is empty"));
        };
        let query = if form == KvForm::State { settings.query } else { 1 };
        let bounds = [
            ("lengths", shortest, 1, MAX_LENGTH),
            ("lengths", longest, 1, MAX_LENGTH),
            ("hidden", hidden, 1, MAX_WIDTH),
            ("per_layer.width", per_layer, 0, MAX_WIDTH),
            ("vocabulary", vocabulary, 1, MAX_TOKENS),
            ("batch", settings.batch, 1, 4),
            ("query", query, 1, shortest),
        ];
        check_bounds(&bounds)?;
        let (batch, shapes_as) = (settings.batch, settings.shapes_as);
        Ok(Layout { form, batch, hidden, per_layer, vocabulary, buckets, query, shapes_as })
    }

    /// Sizes of packages of others, which are driven in the one form that their contract says.
    pub(super) fn of_contract(contract: &Contract, form: Option<KvForm>) -> Result<Layout> {
        let own = contract.kv();
        if let Some(wanted) = form.filter(|&form| form != own) {
            let problem = format!("the packages have no cache form `{wanted}`");
            return Err(GenerateError::request(problem).with_help(format!("they are driven with `{own}`")));
        }
        let buckets = contract.lengths();
        let bounds = [
            ("contract.context_length", contract.context_length, 1, MAX_LENGTH),
            ("contract.lengths", *buckets.first().unwrap_or(&0), 1, MAX_LENGTH),
            ("contract.lengths", *buckets.last().unwrap_or(&0), 1, MAX_LENGTH),
            ("contract.vocabulary", contract.vocabulary, 1, MAX_TOKENS),
        ];
        check_bounds(&bounds)?;
        let vocabulary = contract.vocabulary;
        let shapes_as = ShapesAs::Enumerated;
        Ok(Layout { form: own, batch: 1, hidden: 0, per_layer: 0, vocabulary, buckets, query: 1, shapes_as })
    }

    /// What a function is called at a length of its own inputs.
    pub(super) fn function(&self, role: FunctionRole, length: usize) -> String {
        function_name(role, length, self.shapes_as)
    }

    pub(super) fn longest(&self) -> usize {
        *self.buckets.last().expect("a layout without lengths is refused")
    }

    /// The shortest length for so many tokens.
    pub(super) fn fit(&self, tokens: usize) -> Option<usize> {
        self.buckets.iter().copied().find(|&length| length >= tokens)
    }

    /// The length a prompt starts at: the shortest that it fits, or the one asked for.
    pub(super) fn start(&self, tokens: usize, asked: Option<usize>) -> Result<usize> {
        let (word, list) = (self.word(), list(&self.buckets));
        if let Some(length) = asked {
            if !self.buckets.contains(&length) {
                return Err(GenerateError::request(format!("{word} {length} is not in the bundle"))
                    .with_help(format!("it has {list}")));
            }
            if length < tokens {
                return Err(GenerateError::request(format!(
                    "{word} {length} is too short for {tokens} tokens"
                )));
            }
            return Ok(length);
        }
        self.fit(tokens).ok_or_else(|| {
            let problem =
                format!("the prompt has {tokens} tokens, the bundle takes at most {}", self.longest());
            let help = format!("shorten it, or export with a longer {word}; this bundle has {list}");
            GenerateError::request(problem).with_help(help)
        })
    }

    /// A sequence that takes no more.
    pub(super) fn full(&self) -> GenerateError {
        GenerateError::request(format!("the sequence is full: the bundle takes {} tokens", self.longest()))
            .with_help("export with a longer sequence length or context")
    }

    /// Refuses tokens that the bundle cannot take.
    pub(super) fn check_prompts(&self, prompts: &[&[u32]]) -> Result<()> {
        let batch = self.batch;
        if prompts.len() != batch {
            let count = prompts.len();
            return Err(GenerateError::request(format!("{count} sequences for a bundle of batch {batch}")));
        }
        for prompt in prompts {
            if prompt.is_empty() {
                return Err(GenerateError::request("the prompt has no tokens"));
            }
            if let Some(id) = prompt.iter().find(|&&id| id as usize >= self.vocabulary) {
                let problem = format!("token {id} is not among the {} of the model", self.vocabulary);
                return Err(GenerateError::request(problem));
            }
        }
        let lengths: SmallVec<[usize; 4]> = prompts.iter().map(|prompt| prompt.len()).collect();
        if self.form == KvForm::State && lengths.iter().any(|&length| length != lengths[0]) {
            let problem = format!("prompts of {lengths:?} tokens cannot share a state");
            return Err(GenerateError::request(problem)
                .with_help("give prompts of one length, or use the form `io` or `none`"));
        }
        Ok(())
    }

    fn word(&self) -> &'static str {
        if self.form == KvForm::State { "context" } else { "seq_len" }
    }
}

fn chosen(settings: &Settings, form: Option<KvForm>) -> Result<KvForm> {
    match form {
        Some(form) if settings.kv.contains(&form) => Ok(form),
        Some(form) => {
            let remedy = Remedy::ExportKvForm { wanted: form, has: settings.kv.clone() };
            Err(GenerateError::request(format!("the bundle has no cache form `{form}`")).with_help(remedy))
        }
        None => {
            let none = || GenerateError::file(MANIFEST, "`kv` names no form of the KV cache");
            settings.kv.first().copied().ok_or_else(none)
        }
    }
}

/// Refuses numbers of the description that are not within their bounds.
fn check_bounds(bounds: &[(&str, usize, usize, usize)]) -> Result<()> {
    match bounds.iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
        Some((key, value, low, high)) => {
            let problem = format!("`{key}` is {value}, should be {low} to {high}");
            Err(GenerateError::file(MANIFEST, problem))
        }
        None => Ok(()),
    }
}

fn list(lengths: &[usize]) -> String {
    let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
    lengths.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_base::advice::Advice;

    fn layout() -> Layout {
        let buckets = vec![8, 12, 16];
        let (shapes_as, per_layer) = (ShapesAs::Enumerated, 0);
        Layout {
            form: KvForm::Io,
            batch: 1,
            hidden: 4,
            per_layer,
            vocabulary: 9,
            buckets,
            query: 1,
            shapes_as,
        }
    }

    #[test]
    fn the_shortest_length_that_fits_is_taken() {
        let found = [0, 1, 8, 9, 12, 16, 17].map(|tokens| layout().fit(tokens));
        let expected = [Some(8), Some(8), Some(8), Some(12), Some(12), Some(16), None];
        assert_eq!(found, expected);
    }

    #[test]
    fn prompts_that_do_not_fit_are_told_what_does() {
        let error = |tokens: usize, asked: Option<usize>| {
            let error = layout().start(tokens, asked).unwrap_err();
            format!("{error} / {}", error.remedy().map(|remedy| remedy.to_string()).unwrap_or_default())
        };
        assert_eq!(layout().start(9, Some(16)).unwrap(), 16);
        insta::assert_snapshot!(error(17, None), @"the prompt has 17 tokens, the bundle takes at most 16 / shorten it, or export with a longer seq_len; this bundle has 8, 12, 16");
        insta::assert_snapshot!(error(3, Some(9)), @"seq_len 9 is not in the bundle / it has 8, 12, 16");
        insta::assert_snapshot!(error(9, Some(8)), @"seq_len 8 is too short for 9 tokens /");
    }
}
