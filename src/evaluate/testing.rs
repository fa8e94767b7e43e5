//! Workers that take the time they are given, for tests of comparisons and reruns.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::atomic::write_file;
use crate::bundle::Bundle;
use crate::generate::ManualClock;
use crate::harness::{
    BenchConfig, Child, Incoming, Job, LaunchError, Launcher, Message, PromptConfig, PromptSource,
    WorkerExit, testing::null_manifest,
};
use crate::mil::verify::verify;
use crate::mil::{Builder, Model, Opset, TensorType};
use crate::package::{WriteOptions, write};
use crate::report::{Load, Memory, Request, testing};
use crate::tensor::DType;

/// Workers of two bundles, in folders `a` and `b`.
pub(super) struct Workers {
    pub(super) clock: ManualClock,
    pub(super) random: fastrand::Rng,
    /// How much longer requests of `b` take.
    pub(super) factor: f64,
    /// How much launches differ.
    pub(super) noise: f64,
    pub(super) launched: Rc<RefCell<String>>,
}

impl Workers {
    fn requests(&mut self, job: &Job) -> Vec<Message> {
        let Job::Measure { model, slots } = job else { return Vec::new() };
        let second = model.bundle.ends_with("b");
        self.launched.borrow_mut().push(if second { 'B' } else { 'A' });
        self.clock.advance(Duration::from_secs(10));
        let around_one = |random: &mut fastrand::Rng, size: f64| 1.0 + size * (2.0 * random.f64() - 1.0);
        let launch = around_one(&mut self.random, self.noise) * if second { self.factor } else { 1.0 };
        let (compile_ms, compiled_before, first_prediction_ms) = (None, None, None);
        let load = Load { open_ms: 1.0, compile_ms, compiled_before, load_ms: 20.0, first_prediction_ms };
        let start = [
            Message::Canary { ms: 1.5 },
            Message::Loaded { load, resident_bytes: Some(1 << 20), weight_bytes_per_token: Some(1 << 20) },
        ];
        let requests = slots.iter().map(|slot| {
            let scale = launch * around_one(&mut self.random, 0.005) * slot.seq_len as f64 / 64.0;
            let request = Request { generated_tokens: 5, ..testing::request(slot.slot, slot.seq_len, scale) };
            if slot.warm_up { Message::WarmedUp } else { Message::Request(request) }
        });
        start.into_iter().chain(requests).collect()
    }
}

impl Launcher for Workers {
    fn launch(&mut self, job: &Job) -> Result<Box<dyn Child>, LaunchError> {
        let memory =
            Memory { at_load_bytes: Some(1 << 20), peak_bytes: Some(2 << 20), available_bytes: None };
        let end = Message::Finished { memory: Some(memory), energy_joules_per_token: None };
        let messages = self.requests(job).into_iter().chain([end]);
        Ok(Box::new(Lines(messages.map(|message| serde_json::to_vec(&message).unwrap()).collect())))
    }
}

struct Lines(VecDeque<Vec<u8>>);

impl Child for Lines {
    fn next(&mut self, _: Duration) -> Incoming {
        self.0.pop_front().map_or(Incoming::Closed, Incoming::Line)
    }

    fn end(&mut self) -> WorkerExit {
        WorkerExit { status: "exit status: 0".to_owned(), success: true, stderr: String::new() }
    }
}

/// A bundle with a package of one operation, which the workers do not run.
pub(super) fn bundle(folder: &Path, seq_lens: &[usize], batch: usize) -> Bundle {
    std::fs::create_dir_all(folder).unwrap();
    let manifest = null_manifest(seq_lens, batch);
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F16, &[1, 4]));
    let y = main.op("relu").arg("x", x).named("y").push().unwrap();
    let model = verify(Model::single(main.finish(&[y]))).unwrap();
    write(&model, folder.join("null.mlpackage"), WriteOptions::default()).unwrap();
    write_file(&folder.join("export.json"), &serde_json::to_vec(&manifest).unwrap()).unwrap();
    Bundle::open(folder).unwrap()
}

/// A short workload.
pub(super) fn config() -> BenchConfig {
    BenchConfig {
        requests_per_seq_len: 5,
        warm_up_rounds: 1,
        generated_tokens: 5,
        cool_down_s: 0.0,
        prompts: PromptConfig { source: PromptSource::Tokens, file: None },
        ..BenchConfig::built_in().unwrap()
    }
}
