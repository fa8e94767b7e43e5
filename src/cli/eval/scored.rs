//! A text through a bundle, and what is known of the bundle already.

use xxhash_rust::xxh3::xxh3_128;

use crate::bundle::{Bundle, digest_text};
use crate::cli::Result;
use crate::cli::verbosity::Steps;
use crate::eval::{score_text, text_tokens};
use crate::generate::Generator;
use crate::harness::records;
use crate::report::{Perplexity, Quality, Record};
use crate::vocabulary::RuntimeName;

/// What was recorded about the same packages, or that nothing is known yet: an evaluation of cases keeps what is
/// known of a text, and the other way round.
pub(super) fn before(
    bundle: &Bundle,
    generator: &Generator,
    package_digests: Vec<String>,
    (runtime, max_tokens): (RuntimeName, usize),
) -> Quality {
    let recorded = records::read_any::<Quality>(bundle).ok().flatten();
    let recorded = recorded.filter(|quality| quality.package_digests == package_digests);
    let nothing = Quality {
        schema: Quality::SCHEMA.to_owned(),
        tool_version: String::new(),
        package_digests,
        cases_digest: String::new(),
        cases: 0,
        runtime: runtime.to_string(),
        max_tokens,
        kv: generator.driver().form(),
        per_seq_len: Vec::new(),
        f1_drift: None,
        ttfa_p50: None,
        ttfa_p95: None,
        perplexity: None,
    };
    Quality { tool_version: env!("CARGO_PKG_VERSION").to_owned(), ..recorded.unwrap_or(nothing) }
}

/// Scores a text at the longest of some lengths.
pub(super) fn text(
    model: &mut Generator,
    text: &str,
    seq_lens: &[usize],
    runtime: RuntimeName,
) -> Result<Perplexity> {
    let ids = text_tokens(model, text)?;
    let window = seq_lens.iter().max().copied().unwrap_or_else(|| model.driver().longest());
    let mut progress = Steps::new("scored", "tokens");
    let driver = model.driver_mut();
    let found = score_text(driver, &ids, window, &mut |done, total| progress.show(done, total));
    progress.finish();
    let found = found?;
    Ok(Perplexity {
        text_digest: digest_text(xxh3_128(text.as_bytes())),
        runtime: runtime.to_string(),
        kv: driver.form(),
        window,
        tokens: found.tokens,
        nats_per_token: found.nats_per_token(),
        perplexity: found.perplexity(),
    })
}
