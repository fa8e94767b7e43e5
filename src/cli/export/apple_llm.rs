//! `anemeter export --layout apple-llm`: a folder for Apple's programs.

use super::progress::Bar;
use super::{Args, compression, phases};
use crate::cli::units::Bytes;
use crate::cli::{Output, Result, Status};
use crate::export::{self, AppleLlmBundle, Request};

pub(super) fn run(request: &Request, args: &Args, output: &mut Output) -> Result<Status> {
    let bar = Bar::new();
    let result = export::export_apple_llm(request, &bar);
    bar.finish();
    let bundle = result?;
    if args.json {
        output.json(&bundle)?;
    } else {
        print(&bundle, args.profile, output)?;
    }
    Ok(Status::Good)
}

fn print(bundle: &AppleLlmBundle, profile: bool, output: &mut Output) -> Result<()> {
    let AppleLlmBundle { name, functions, bytes, max_context_length, .. } = bundle;
    output.line(format_args!(
        "{name}.aimodel: {}, {} functions, contexts of up to {max_context_length} tokens",
        Bytes(*bytes),
        functions.len()
    ))?;
    output.line(format_args!("  {}", functions.join(" ")))?;
    if let Some(log) = &bundle.compression {
        output.text(compression(log))?;
    }
    for warning in &bundle.warnings {
        output.line(format_args!("warning: {warning}"))?;
    }
    if profile {
        output.text(phases(&bundle.profile))?;
    }
    output.line(format_args!("wrote {}", bundle.folder.display()))
}
