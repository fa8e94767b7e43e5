//! Makes a bundle ready to run, with the time of each phase.

use std::sync::Arc;

use super::protocol::ModelUse;
use crate::bundle::{Bundle, KvForm};
use crate::cost;
use crate::generate::{Clock, Driver, Generator, Text};
use crate::mil::Model;
use crate::package::Package;
use crate::report::Load;
use crate::runtime::{self, LoadOptions};
use crate::view::Graph;

/// A model that is ready to run.
pub(super) struct Ready {
    pub(super) generator: Generator,
    /// What it took; the first prediction is still to come.
    pub(super) load: Load,
    pub(super) weight_bytes_per_token: Option<u64>,
}

/// Opens and loads a bundle.
pub(super) fn open(model: &ModelUse, clock: &Arc<dyn Clock>) -> Result<Ready, String> {
    let began = clock.now();
    let bundle = Bundle::open(&model.bundle).map_err(|e| e.to_string())?;
    let chunks = &bundle.manifest().chunks;
    let packages = chunks.iter().map(|chunk| Package::open(bundle.path(&chunk.file.name)));
    let packages: Vec<Package> = packages.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let opened = clock.now();

    let runtime = runtime::choose(&model.runtime).map_err(|e| e.to_string())?;
    let options = LoadOptions { numerics: model.numerics.into(), threads: model.threads, ..LoadOptions::default() };
    let loaded = packages.iter().map(|package| runtime.load(package, &options));
    let loaded: Vec<_> = loaded.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let sessions = loaded.into_iter().map(runtime::Loaded::session).collect();
    let driver =
        Driver::new(&bundle, sessions, Some(model.kv), Arc::clone(clock)).map_err(|e| e.to_string())?;
    let ready = clock.now();

    let shortest = driver.lengths().first().copied().unwrap_or(0);
    let bytes = packages.iter().map(|package| weight_bytes(package.model(), driver.form(), shortest));
    let weight_bytes_per_token = bytes.sum::<Option<u64>>();
    let text = Text::open(&bundle, None).map_err(|e| e.to_string())?.map(Arc::new);
    let ms = |from: std::time::Duration, to: std::time::Duration| to.saturating_sub(from).as_secs_f64() * 1e3;
    let load = Load {
        open_ms: ms(began, opened),
        compile_ms: None,
        load_ms: ms(opened, ready),
        first_prediction_ms: None,
    };
    Ok(Ready { generator: Generator::new(driver, text, Arc::clone(clock)), load, weight_bytes_per_token })
}

/// Bytes of weights that a prediction of one token reads, as they are stored; `None` if no function makes one.
fn weight_bytes(model: &Model, form: KvForm, shape: usize) -> Option<u64> {
    let name = match form {
        KvForm::Io => "decode".to_owned(),
        KvForm::State => format!("decode_c{shape}"),
        KvForm::None => "main".to_owned(),
    };
    let function = model.program.function(&name)?;
    let graph = Graph::new(function, model.interface(&name), 0);
    Some(cost::of(&graph).total.weight_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mil::{Builder, Literal, Opset, TensorType};
    use crate::tensor::{DType, Tensor};

    #[test]
    fn a_token_reads_every_weight_but_only_a_row_of_a_table() {
        let blob = |shape: &[usize]| {
            let values = vec![0.5f32; shape.iter().product()];
            Literal::blob(&Tensor::from_slice(shape, &values).unwrap())
        };
        let mut decode = Builder::new("decode", Opset::Ios18);
        let ids = decode.input("ids", TensorType::fixed(DType::I32, &[1]));
        let table = decode.constant("table", blob(&[64, 32]));
        let weight = decode.constant("weight", blob(&[48, 32]));
        let row = decode.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
        let y = decode.op("linear").arg("x", row).arg("weight", weight).push().unwrap();
        let model = Model::multi(vec![decode.finish(&[y])]);
        assert_eq!(weight_bytes(&model, KvForm::Io, 0), Some(4 * (48 * 32 + 32)));
        assert_eq!(weight_bytes(&model, KvForm::State, 512), None);
    }
}
