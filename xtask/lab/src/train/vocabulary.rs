//! A byte-level vocabulary, learnt from the text.

use anyhow::{Result, anyhow};
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, DecoderWrapper, PreTokenizerWrapper, Tokenizer, TokenizerBuilder};

/// Ends a text, and is id 0.
pub(super) const END: &str = "<|end|>";

type Trainable = tokenizers::TokenizerImpl<
    BPE,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// The most frequent pairs of the text, merged until there are `size` tokens.
pub(super) fn learn(text: &str, size: usize) -> Result<Tokenizer> {
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(size)
        .special_tokens(vec![AddedToken::from(END, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let bytes = ByteLevel::default().add_prefix_space(false);
    let mut tokenizer: Trainable = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(None)
        .with_pre_tokenizer(Some(PreTokenizerWrapper::from(bytes)))
        .with_post_processor(None)
        .with_decoder(Some(DecoderWrapper::from(bytes)))
        .build()
        .map_err(|error| anyhow!("{error}"))?;
    tokenizer.train(&mut trainer, text.lines()).map_err(|error| anyhow!("{error}"))?;
    let json = tokenizer.to_string(true).map_err(|error| anyhow!("{error}"))?;
    json.parse().map_err(|error| anyhow!("{error}"))
}

pub(super) fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    Ok(tokenizer.encode(text, false).map_err(|error| anyhow!("{error}"))?.get_ids().to_vec())
}
