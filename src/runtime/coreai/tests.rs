//! Workers that play every fault, by the Python that is in the search path, without Apple's module.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::process::{Question, Worker};
use super::*;
use anemeter_coreai::asset::{AssetMetadata, write};
use anemeter_coreai::convert::from_mil;
use anemeter_mil::verify::verify;
use anemeter_mil::{Builder, Opset, TensorType, Type};

/// The messages of a worker that is not Apple's.
const FRAME: &str = r#"
import json, os, signal, struct, sys
def read():
    lengths = sys.stdin.buffer.read(12)
    if len(lengths) < 12: sys.exit(0)
    header, body = struct.unpack("<IQ", lengths)
    return json.loads(sys.stdin.buffer.read(header)), sys.stdin.buffer.read(body)
def write(header, body=b""):
    text = json.dumps(header).encode()
    sys.stdout.buffer.write(struct.pack("<IQ", len(text), len(body)) + text + body)
    sys.stdout.buffer.flush()
"#;

fn python(script: &str) -> Command {
    let mut command = Interpreter::find(None).command();
    command.args(["-c", &format!("{FRAME}{script}")]);
    command
}

/// The error of one question to a worker that does what a script says with it.
fn fault_within(script: &str, limit: Duration) -> RuntimeError {
    let mut worker = Worker::start(python(script)).unwrap();
    let header = json!({"do": "predict"});
    let question = Question { doing: "run the function `decode`", header: &header, tensors: &[], limit };
    let first = worker.ask::<Value>(&question, &mut Vec::new()).unwrap_err();
    if matches!(first, RuntimeError::WorkerEnded { .. }) {
        assert_eq!(worker.ask::<Value>(&question, &mut Vec::new()).unwrap_err(), first, "it stays so");
    }
    first
}

fn fault(script: &str) -> String {
    fault_within(script, Duration::from_secs(60)).to_string()
}

#[test]
fn an_answer_that_is_no_message_ends_the_worker() {
    insta::assert_snapshot!(fault("read(); os.write(1, struct.pack('<IQ', 5, 0) + b'\\x1b[2J!')"), @"Core AI cannot run the function `decode`: its worker gave a header that is not understood (expected value at line 1 column 1): \\u{1b}[2J!; it printed nothing");
    insta::assert_snapshot!(fault("read(); print('Apple says hello', flush=True); read()"), @"Core AI cannot run the function `decode`: its worker gave a message with a header of 1819308097 bytes and a body of 7503123944362418277, which is too long; it printed nothing");
    insta::assert_snapshot!(fault("read(); os.write(1, struct.pack('<IQ', 2**32 - 1, 2**63)); read()"), @"Core AI cannot run the function `decode`: its worker gave a message with a header of 4294967295 bytes and a body of 9223372036854775808, which is too long; it printed nothing");
    insta::assert_snapshot!(fault("read(); write({'tensors': [{'name': 'y', 'dtype': 'float32', 'shape': [3]}]}, b'12345678')"), @"Core AI cannot run the function `decode`: its worker gave tensors that do not fill a body of 8 bytes; it printed nothing");
    insta::assert_snapshot!(fault("read(); write({'tensors': [{'name': 'y', 'dtype': 'object', 'shape': [1]}]}, b'12345678')"), @r#"Core AI cannot run the function `decode`: its worker gave a tensor of type "object" and shape [1]; it printed nothing"#);
}

#[test]
fn a_worker_that_ends_tells_how_and_what_it_printed() {
    insta::assert_snapshot!(fault("read(); sys.stderr.write('ModuleNotFoundError: no numpy\\n'); sys.exit(3)"), @r"
    Core AI cannot run the function `decode`: its worker ended with exit code 3; it printed last:
      ModuleNotFoundError: no numpy
    ");
    insta::assert_snapshot!(fault("sys.exit(0)"), @"Core AI cannot run the function `decode`: its worker ended with exit code 0; it printed nothing");
    insta::assert_snapshot!(fault("read(); sys.stderr.write('terminate called: \\x1b[31mstd::bad_cast\\n'); sys.stderr.flush(); os.kill(os.getpid(), signal.SIGABRT)"), @r"
    Core AI cannot run the function `decode`: its worker was ended by SIGABRT (Apple's code gave up); it printed last:
      terminate called: \u{1b}[31mstd::bad_cast
    ");
    insta::assert_snapshot!(fault("read(); os.kill(os.getpid(), signal.SIGILL)"), @"Core AI cannot run the function `decode`: its worker was ended by SIGILL (Apple's code met a condition that it does not handle); it printed nothing");
    insta::assert_snapshot!(fault("read(); os.write(1, struct.pack('<IQ', 100, 0) + b'{'); sys.exit(0)"), @"Core AI cannot run the function `decode`: its worker ended with exit code 0; it printed nothing");
}

#[test]
fn a_refusal_leaves_the_worker_as_it_is() {
    let script = "
read(); write({'error': 'ValueError: \\x1b no'})
read(); write({'result': {'answer': 42}})";
    let mut worker = Worker::start(python(script)).unwrap();
    let header = json!({});
    let limit = Duration::from_secs(60);
    let question = Question { doing: "load x", header: &header, tensors: &[], limit };
    let refused = worker.ask::<Value>(&question, &mut Vec::new()).unwrap_err();
    insta::assert_snapshot!(refused, @r"Core AI cannot load x: ValueError: \u{1b} no");
    assert_eq!(worker.ask::<Value>(&question, &mut Vec::new()).unwrap()["answer"], 42);
}

#[test]
fn a_flood_on_standard_error_is_drained_and_only_its_end_is_kept() {
    let script = "
read()
for line in range(200000): sys.stderr.write(f'line {line} ' + 'x' * 80 + '\\n')
sys.stderr.write('y' * 100000 + '\\nthe end\\n'); sys.stderr.flush()
os.kill(os.getpid(), signal.SIGABRT)";
    let RuntimeError::WorkerEnded { printed, ending, .. } = fault_within(script, Duration::from_secs(300))
    else {
        panic!("it did not end")
    };
    assert!(ending.contains("SIGABRT"), "{ending}");
    assert_eq!(printed.last().unwrap(), "the end");
    assert!(printed.len() <= 8 && printed.iter().all(|line| line.chars().count() <= 241), "{printed:?}");
}

#[test]
fn a_worker_that_does_not_answer_is_ended() {
    let ended = fault_within("read(); import time; time.sleep(1000)", Duration::from_millis(300)).to_string();
    assert!(ended.contains("gave no answer within 0 s and was ended"), "{ended}");
    // One that does not even read what it is given.
    let bytes = vec![0u8; 4 << 20];
    let tensor = Tensor::from_slice(&[4 << 20], &bytes).unwrap();
    let mut worker = Worker::start(python("import time; time.sleep(1000)")).unwrap();
    let (header, limit) = (json!({}), Duration::from_millis(300));
    let tensors = [("x", tensor.view())];
    let question = Question { doing: "run `f`", header: &header, tensors: &tensors, limit };
    let ended = worker.ask::<Value>(&question, &mut Vec::new()).unwrap_err().to_string();
    assert!(ended.contains("gave no answer"), "{ended}");
}

#[test]
fn what_cannot_be_started_says_so() {
    let error = Worker::start(Command::new("/no/such/python")).err().unwrap().to_string();
    assert!(error.starts_with("/no/such/python cannot be started: "), "{error}");
    let runtime = CoreAiRuntime::with_python("/no/such/python");
    let Availability::Unavailable(why) = runtime.availability() else { panic!("it is available") };
    assert!(why.ends_with("it takes a Python with coreai-core==1.0.0b3"), "{why}");
}

/// An engine of three lines: `y` is twice `x`, and a state counts predictions.
const DOUBLING: &str = r#"
import array
states = {}
hello = {"wheel": "0.0", "platform": "a test", "system_framework": False}
def port(name): return {"name": name, "dtype": "float32", "shape": [2]}
while True:
    header, body = read()
    do, state = header["do"], states.setdefault(header.get("session"), [0.0, 0.0])
    if do == "hello": write({"result": hello})
    elif do == "load": write({"result": {"functions": ["main"], "elapsed_s": 0.5}})
    elif do == "describe":
        write({"result": {"inputs": [port("x")], "outputs": [port("y")], "states": [port("count")], "elapsed_s": 0.25}})
    elif do == "predict":
        state[0] += 1
        y = array.array("f", [2 * v for v in array.array("f", body)])
        if y[0] == 84: os.kill(os.getpid(), signal.SIGABRT)
        write({"result": {"elapsed_s": 0.1}, "tensors": [port("y")]}, y.tobytes())
    elif do == "state": write({"result": {}, "tensors": [port("count")]}, array.array("f", state).tobytes())
    elif do == "set_state": states[header["session"]] = list(array.array("f", body)); write({"result": {}})
    elif do == "echo": write({"result": {}, "tensors": header["gives"]}, bytes(8 * len(header["gives"])))
    elif do == "end_session": states.pop(header["session"]); write({"result": {}})
"#;

/// An asset with the input `x` of so many elements, the output `y` and the state `count`.
fn asset(path: &Path, width: usize) -> Package {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F32, &[width]));
    main.input("count", Type::State(TensorType::fixed(DType::F32, &[2])));
    let y = main.op("add").arg("x", x).arg("y", x).named("y").push().unwrap();
    let model = verify(Model::single(main.finish(&[y]))).unwrap();
    write(&from_mil(&model).unwrap(), &AssetMetadata::default(), path).unwrap();
    CoreAiRuntime::new().open(path).unwrap()
}

/// One whose worker is that engine.
fn doubling() -> (tempfile::TempDir, Arc<dyn LoadedModel>) {
    let folder = tempfile::tempdir().unwrap();
    let package = asset(&folder.path().join("double.aimodel"), 2);
    let (worker, hello) = greeted(python(DOUBLING)).unwrap();
    let loaded = load_with(worker, &hello, &package, &LoadOptions::default()).unwrap();
    (folder, loaded)
}

#[test]
fn a_worker_that_describes_another_function_than_the_file_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let package = asset(&folder.path().join("wide.aimodel"), 3);
    let (worker, hello) = greeted(python(DOUBLING)).unwrap();
    let loaded = load_with(worker, &hello, &package, &LoadOptions::default()).unwrap();
    insta::assert_snapshot!(loaded.prepare(&["main"]).unwrap_err(), @"Core AI cannot load the function `main`: its inputs are `x` float32 [3] in the file, and `x` float32 [2] by Apple's module");
}

fn pair(a: f32, b: f32) -> Tensor {
    Tensor::from_slice(&[2], &[a, b]).unwrap()
}

#[test]
fn sessions_predict_and_have_states_of_their_own() {
    let (_folder, loaded) = doubling();
    let (mut one, other) = (loaded.clone().session(), loaded.clone().session());
    let x = pair(1.5, -2.0);
    assert!(one.output("y").is_none());
    for _ in 0..3 {
        one.predict("main", &[("x", x.view())]).unwrap();
        assert_eq!(one.output("y").unwrap().slice::<f32>().unwrap(), [3.0, -4.0]);
    }
    let count = |session: &dyn Session| session.state("count").unwrap().slice::<f32>().unwrap()[0];
    assert_eq!((count(&*one), count(&*other)), (3.0, 0.0));
    one.set_state("count", &pair(10.0, 0.0)).unwrap();
    one.predict("main", &[("x", x.view())]).unwrap();
    assert_eq!(count(&*one), 11.0);
    assert_eq!(one.state_names(), ["count"]);
    assert!(one.state("other").is_none() && one.output("other").is_none());
    let wrong = one.set_state("count", &Tensor::from_slice(&[3], &[0f32; 3]).unwrap()).unwrap_err();
    insta::assert_snapshot!(wrong, @"state `count`: is fp32 [2], and fp32 [3] is given");
    let overheads = loaded.call_overheads().unwrap();
    assert_eq!((overheads.len(), overheads[0].function.as_str()), (1, "main"));
    assert!(overheads[0].microseconds > 0.0);
    let loading = loaded.loading();
    assert_eq!(loading.lowering, Some(Duration::from_millis(500)));
    assert_eq!(loading.functions[0].elapsed, Duration::from_millis(250));
    assert_eq!(loading.engine.unwrap().kind, EngineKind::CpuInterpreter);
    insta::assert_snapshot!(loading.remarks.join("\n"), @"executed by Apple's CPU interpreter (coreai-core 0.0): it is for checking results, and its times say nothing about a device");
}

#[test]
fn wrong_inputs_never_reach_the_worker_and_an_abort_ends_only_the_worker() {
    let (_folder, loaded) = doubling();
    let mut session = loaded.clone().session();
    let wrong =
        session.predict("main", &[("x", Tensor::from_slice(&[3], &[0f32; 3]).unwrap().view())]).unwrap_err();
    insta::assert_snapshot!(wrong, @"function `main`: `x` has shape [3], expected [2]");
    insta::assert_snapshot!(session.predict("other", &[]).unwrap_err(), @"no function `other`; the package has main");
    let abort = session.predict("main", &[("x", pair(42.0, 0.0).view())]).unwrap_err();
    insta::assert_snapshot!(abort, @"Core AI cannot run the function `main`: its worker was ended by SIGABRT (Apple's code gave up); it printed nothing");
    assert!(session.output("y").is_none() && session.state("count").is_none());
    assert_eq!(session.predict("main", &[("x", pair(1.0, 0.0).view())]).unwrap_err(), abort);
}

#[test]
fn runtimes_refuse_files_of_the_other_framework() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.aimodel");
    let package = asset(&path, 2);
    let error = crate::cpu().open(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("a.aimodel: is a Core AI asset, and the runtime `cpu` executes Core ML packages"),
        "{error}"
    );
    let error = CoreAiRuntime::new().open(&folder.path().join("a.mlpackage")).unwrap_err().to_string();
    assert!(
        error.ends_with("is no Core AI asset, and the runtime `coreai` executes `.aimodel` assets"),
        "{error}"
    );
    let Err(error) = crate::cpu().load(&package, &LoadOptions::default()) else { panic!("it was loaded") };
    assert!(error.to_string().contains("is a Core AI asset"), "{error}");
}

#[test]
fn both_sides_give_open_states_the_same_places() {
    assert!(WORKER.contains(&format!("\nOPEN_PLACES = {OPEN_PLACES}\n")));
}
