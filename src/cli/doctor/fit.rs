//! Which sequence lengths of a bundle fit into memory.

use serde::Serialize;

use crate::bundle::{Bundle, Exported, Manifest};
use crate::cli::units::Bytes;
use crate::render::Table;
use crate::vocabulary::KvForm;

/// A bundle and its sequence lengths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BundleFit {
    name: String,
    package_bytes: u64,
    per_seq_len: Vec<MemoryFit>,
}

/// What one sequence length takes, as far as it can be known before it runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct MemoryFit {
    kv: KvForm,
    seq_len: usize,
    weights_bytes: u64,
    kv_bytes: u64,
    /// Attention scores of the largest prediction.
    scores_bytes: u64,
    total_bytes: u64,
    /// Absent if the machine's memory is unknown.
    fits: Option<bool>,
}

impl BundleFit {
    pub(super) fn of(bundle: &Bundle, safe_bytes: Option<u64>) -> BundleFit {
        let manifest = bundle.manifest();
        let mut per_seq_len = Vec::new();
        if let Some(exported) = manifest.exported() {
            let settings = exported.settings;
            for &kv in &settings.kv {
                let lengths = if kv == KvForm::State { &settings.contexts } else { &settings.seq_lens };
                let fits = lengths
                    .iter()
                    .map(|&seq_len| MemoryFit::of(manifest, &exported, kv, seq_len, safe_bytes));
                per_seq_len.extend(fits);
            }
        }
        BundleFit { name: manifest.name.clone(), package_bytes: package_bytes(manifest), per_seq_len }
    }

    pub(super) fn table(&self) -> String {
        if self.per_seq_len.is_empty() {
            let (name, size) = (self.name.escape_debug(), Bytes(self.package_bytes));
            return format!("bundle {name}\n  {size} of packages that others made\n");
        }
        let mut table =
            Table::new(&["kv", ">seq_len", ">weights", ">KV cache", ">scores", ">total", "fits"]).indented(2);
        for fit in &self.per_seq_len {
            let bytes = |value: u64| Bytes(value).to_string();
            let fits = fit.fits.map_or("unknown", |fits| if fits { "yes" } else { "no" });
            table.row([
                fit.kv.to_string(),
                fit.seq_len.to_string(),
                bytes(fit.weights_bytes),
                bytes(fit.kv_bytes),
                bytes(fit.scores_bytes),
                bytes(fit.total_bytes),
                fits.to_owned(),
            ]);
        }
        format!("bundle {}\n{table}", self.name.escape_debug())
    }
}

/// Bytes of all packages.
fn package_bytes(manifest: &Manifest) -> u64 {
    manifest.chunks.iter().map(|chunk| chunk.file.bytes).fold(0, u64::saturating_add)
}

impl MemoryFit {
    fn of(
        manifest: &Manifest,
        Exported { architecture, settings, .. }: &Exported<'_>,
        kv: KvForm,
        seq_len: usize,
        safe_bytes: Option<u64>,
    ) -> MemoryFit {
        let batch = settings.batch as u64;
        let weights_bytes = package_bytes(manifest);
        let kv_bytes = if kv == KvForm::None { 0 } else { manifest.kv_bytes(seq_len).saturating_mul(batch) };
        let queries = if kv == KvForm::State { settings.query } else { seq_len };
        let scores = [architecture.heads as u64, queries as u64, seq_len as u64, batch, 2];
        let scores_bytes = scores.into_iter().fold(1, u64::saturating_mul);
        let total_bytes = [weights_bytes, kv_bytes, scores_bytes].into_iter().fold(0, u64::saturating_add);
        let fits = safe_bytes.map(|safe| total_bytes <= safe);
        MemoryFit { kv, seq_len, weights_bytes, kv_bytes, scores_bytes, total_bytes, fits }
    }
}
