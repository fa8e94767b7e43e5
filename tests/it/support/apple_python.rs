//! A Python that plays Apple's module: it is started as the real one is and speaks as the worker does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anemeter::mil::{Feature, FeatureType};
use serde_json::{Value, json};

use super::damage::put;

const HEAD: &str = r#"#!/usr/bin/env python3
import array, json, os, signal, struct, sys
if not sys.argv[2].startswith('"""Executes Core AI assets'):
    print(json.dumps({"python": "3.12.0", "system": "Linux", "machine": "x86_64", "macos": "", "libc": "", "wheel": "0.0"}))
    sys.exit(0)
def read():
    lengths = sys.stdin.buffer.read(12)
    if len(lengths) < 12: sys.exit(0)
    header, body = struct.unpack("<IQ", lengths)
    return json.loads(sys.stdin.buffer.read(header)), sys.stdin.buffer.read(body)
def write(header, body=b""):
    text = json.dumps(header).encode()
    sys.stdout.buffer.write(struct.pack("<IQ", len(text), len(body)) + text + body)
    sys.stdout.buffer.flush()
def size(port):
    count = {"float16": 2, "float32": 4, "int32": 4, "uint16": 2}[port["dtype"]]
    for dim in port["shape"]: count *= dim
    return count
def zeros(ports): write({"result": {"elapsed_s": 0.1}, "tensors": ports}, bytes(sum(map(size, ports))))
HELLO = {"wheel": "0.0", "platform": "a test", "system_framework": False}
states = {}
"#;

/// Writes the program of a Python, which can be started.
fn write_program(folder: &Path, body: &str) -> PathBuf {
    let python = folder.join("python");
    put(&python, format!("{HEAD}{body}").as_bytes());
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    python
}

/// Lets a Python say that it runs on macOS 27.
pub(crate) fn on_macos_27(python: &Path) {
    let program = fs::read_to_string(python).unwrap();
    let linux = r#""system": "Linux", "machine": "x86_64", "macos": """#;
    assert!(program.contains(linux));
    put(
        python,
        program.replace(linux, r#""system": "Darwin", "machine": "arm64", "macos": "27.0""#).as_bytes(),
    );
}

/// One that executes the asset with the input `x`, whose output `y` is twice that and whose state `count` counts
/// predictions; 42 is what it cannot bear.
pub(crate) fn doubling(folder: &Path) -> PathBuf {
    let body = r#"
def port(name): return {"name": name, "dtype": "float32", "shape": [2]}
while True:
    header, body = read()
    do, state = header["do"], states.setdefault(header.get("session"), [0.0, 0.0])
    if do == "hello": write({"result": HELLO})
    elif do == "load": write({"result": {"elapsed_s": 0.5}})
    elif do == "describe":
        write({"result": {"inputs": [port("x")], "outputs": [port("y")], "states": [port("count")], "elapsed_s": 0.25}})
    elif do == "predict":
        state[0] += 1
        y = array.array("f", [2 * v for v in array.array("f", body)])
        if y[0] == 84:
            sys.stderr.write("Fatal error: no answer\n"); sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGABRT)
        write({"result": {"elapsed_s": 0.1}, "tensors": [port("y")]}, y.tobytes())
    elif do == "state": write({"result": {}, "tensors": [port("count")]}, array.array("f", state).tobytes())
    elif do == "set_state": states[header["session"]] = list(array.array("f", body)); write({"result": {}})
    elif do == "echo": zeros(header["gives"])
    elif do == "end_session": states.pop(header["session"]); write({"result": {}})
"#;
    write_program(folder, body)
}

/// One that knows the functions of an asset and gives zeros for every output and state.
pub(crate) fn zeros(folder: &Path, asset: &Path) -> PathBuf {
    let package = anemeter::coreai::describe::open(asset).unwrap();
    let functions = package.model().interfaces().iter().map(|interface| {
        let ports = |features: &[Feature]| features.iter().map(port).collect::<Vec<_>>();
        let described = json!({
            "inputs": ports(&interface.inputs), "outputs": ports(&interface.outputs), "states": ports(&interface.states),
            "elapsed_s": 0.25,
        });
        (interface.function.clone(), described)
    });
    let functions: serde_json::Map<String, Value> = functions.collect();
    let body = format!(
        r#"
functions = json.loads('''{}''')
while True:
    header, body = read()
    do, function = header["do"], functions.get(header.get("function"))
    if do == "hello": write({{"result": HELLO}})
    elif do == "load": write({{"result": {{"elapsed_s": 0.5}}}})
    elif do == "describe": write({{"result": function}})
    elif do == "predict": zeros(function["outputs"])
    elif do == "state": zeros([port for port in function["states"] if port["name"] == header["name"]])
    elif do == "echo": zeros(header["gives"])
    else: write({{"result": {{}}}})
"#,
        Value::Object(functions)
    );
    write_program(folder, &body)
}

fn port(feature: &Feature) -> Value {
    let (FeatureType::Array(array) | FeatureType::State(array)) = &feature.ty else { panic!("no array") };
    let dtype = match array.dtype.to_string().as_str() {
        "fp16" => "float16",
        "fp32" => "float32",
        "int32" => "int32",
        "uint16" => "uint16",
        other => panic!("{other}"),
    };
    json!({"name": feature.name, "dtype": dtype, "shape": array.shape})
}
