//! A report of any bytes, in every form that it is shown in.
#![no_main]

use anemeter::render::{self, chart};
use anemeter::report::Report;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(report) = Report::parse(bytes) else { return };
    let reports = [report.clone(), report];
    let _ = render::html(&reports);
    let _ = render::markdown(&reports);
    let _ = render::csv(&reports);
    let _ = render::llama_bench(&reports);
    let text: String = render::tables(&reports[0]).iter().map(ToString::to_string).collect();
    assert!(!text.contains(|c| anemeter::text::is_unseen(c) && c != '\n'));
    let _ = chart::charts(&reports[0], chart::Theme::File);
    let _ = chart::comparisons(&reports, chart::Theme::Page);
});
