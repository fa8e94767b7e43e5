//! A text through a bundle, and what is known of the bundle already.

use xxhash_rust::xxh3::xxh3_128;

use crate::bundle::{Bundle, Perplexity, Quality, Record, digest_text};
use crate::cli::Failure;
use crate::cli::voice::Steps;
use crate::eval::{foretell, text_tokens};
use crate::generate::Generator;

/// What was recorded about the same packages, or that nothing is known yet: an evaluation of cases keeps what is
/// known of a text, and the other way round.
pub(super) fn before(
    bundle: &Bundle,
    generator: &Generator,
    package_digests: Vec<String>,
    (runtime, max_tokens): (&str, usize),
) -> Quality {
    let recorded = bundle.any_record::<Quality>().ok().flatten();
    let recorded = recorded.filter(|quality| quality.package_digests == package_digests);
    let nothing = Quality {
        schema: Quality::SCHEMA.to_owned(),
        tool_version: String::new(),
        package_digests,
        cases_digest: String::new(),
        cases: 0,
        runtime: runtime.to_owned(),
        max_tokens,
        kv: generator.driver().form(),
        shapes: Vec::new(),
        f1_drift: None,
        ttfa_p50: None,
        ttfa_p95: None,
        perplexity: None,
    };
    Quality { tool_version: env!("CARGO_PKG_VERSION").to_owned(), ..recorded.unwrap_or(nothing) }
}

/// Scores a text at the longest of some lengths.
pub(super) fn text(
    generator: &mut Generator,
    text: &str,
    shapes: &[usize],
    runtime: &str,
) -> Result<Perplexity, Failure> {
    let ids = text_tokens(generator, text)?;
    let window = shapes.iter().max().copied().unwrap_or_else(|| generator.driver().longest());
    let mut progress = Steps::new("scored", "tokens");
    let driver = generator.driver_mut();
    let found = foretell(driver, &ids, window, &mut |done, total| progress.show(done, total));
    progress.finish();
    let found = found?;
    Ok(Perplexity {
        text_digest: digest_text(xxh3_128(text.as_bytes())),
        runtime: runtime.to_owned(),
        kv: driver.form(),
        window,
        tokens: found.tokens,
        nats_per_token: found.nats_per_token(),
        perplexity: found.perplexity(),
    })
}
