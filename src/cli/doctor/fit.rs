//! Which shapes of a bundle fit into memory.

use serde::Serialize;

use crate::bundle::{Bundle, KvForm, Manifest};
use crate::cli::table::Table;
use crate::cli::units::Bytes;

/// A bundle and its shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BundleFit {
    name: String,
    shapes: Vec<ShapeFit>,
}

/// What one shape takes, as far as it can be known before it runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ShapeFit {
    kv: KvForm,
    shape: usize,
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
        let settings = &manifest.settings;
        let mut shapes = Vec::new();
        for &kv in &settings.kv {
            let lengths = if kv == KvForm::State { &settings.contexts } else { &settings.shapes };
            shapes.extend(lengths.iter().map(|&shape| ShapeFit::of(manifest, kv, shape, safe_bytes)));
        }
        BundleFit { name: manifest.name.clone(), shapes }
    }

    pub(super) fn table(&self) -> String {
        let mut table =
            Table::new(&["kv", ">shape", ">weights", ">KV cache", ">scores", ">total", "fits"]).indented(2);
        for shape in &self.shapes {
            let bytes = |value: u64| Bytes(value).to_string();
            let fits = shape.fits.map_or("unknown", |fits| if fits { "yes" } else { "no" });
            table.row([
                shape.kv.to_string(),
                shape.shape.to_string(),
                bytes(shape.weights_bytes),
                bytes(shape.kv_bytes),
                bytes(shape.scores_bytes),
                bytes(shape.total_bytes),
                fits.to_owned(),
            ]);
        }
        format!("bundle {}\n{table}", self.name.escape_debug())
    }
}

impl ShapeFit {
    fn of(manifest: &Manifest, kv: KvForm, shape: usize, safe_bytes: Option<u64>) -> ShapeFit {
        let (architecture, settings) = (&manifest.architecture, &manifest.settings);
        let batch = settings.batch as u64;
        let weights_bytes = manifest.chunks.iter().map(|chunk| chunk.file.bytes).fold(0, u64::saturating_add);
        let kv_bytes = if kv == KvForm::None { 0 } else { manifest.kv_bytes(shape).saturating_mul(batch) };
        let queries = if kv == KvForm::State { settings.query } else { shape };
        let scores = [architecture.heads as u64, queries as u64, shape as u64, batch, 2];
        let scores_bytes = scores.into_iter().fold(1, u64::saturating_mul);
        let total_bytes = [weights_bytes, kv_bytes, scores_bytes].into_iter().fold(0, u64::saturating_add);
        let fits = safe_bytes.map(|safe| total_bytes <= safe);
        ShapeFit { kv, shape, weights_bytes, kv_bytes, scores_bytes, total_bytes, fits }
    }
}
