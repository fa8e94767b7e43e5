//! Classes of hostile input. Each makes files in a folder of its own by a seed, and the command that is given them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use fastrand::Rng;
use serde_json::{Value, json};

use super::scene::{Scene, copy, link, put, read_json};
use super::{mutate, programs, templates};

/// Makes a case: its command, or nothing where no such case can be made.
pub(super) type Make = fn(&Scene, &Path, &mut Rng) -> Result<Option<Command>>;

/// A class, its share of the cases, and how one is made.
pub(super) const CLASSES: &[(&str, usize, Make)] = &[
    ("config.json", 3, config),
    ("safetensors", 3, safetensors),
    ("numbers of weights", 1, numbers),
    ("pickles", 2, pickles),
    ("GGUF", 2, gguf),
    ("tokenizer.json", 3, tokenizer),
    ("chat templates", 3, template),
    ("export.json", 2, manifest),
    ("packages", 4, package),
    ("programs", 3, program),
    ("assets", 3, asset),
    ("reports", 3, report),
    ("configuration files", 3, configuration),
    ("special files", 1, special),
    ("names", 1, names),
    ("limits", 1, limits),
];

fn anemeter(scene: &Scene, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(&scene.program);
    command.current_dir(folder).args(arguments).env_remove("GITHUB_ACTIONS");
    command
}

fn pick<'a>(random: &mut Rng, lines: &[&'a str]) -> Vec<&'a str> {
    lines[random.usize(..lines.len())].split(' ').collect()
}

/// How a damaged checkpoint is exported.
fn export(scene: &Scene, folder: &Path, random: &mut Rng) -> Option<Command> {
    let export = ["export ck -o out --shapes 16", "export ck -o out --shapes 16 --precision int8 --kv state"];
    Some(anemeter(scene, folder, &pick(random, &export)))
}

fn config(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    link(&scene.checkpoint, &folder.join("ck"))?;
    let file = folder.join("ck/config.json");
    let damaged = mutate::json(&read_json(&file)?, random);
    put(&file, damaged.to_string().as_bytes())?;
    Ok(export(scene, folder, random))
}

fn safetensors(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    link(&scene.checkpoint, &folder.join("ck"))?;
    let file = folder.join("ck/model.safetensors");
    put(&file, &mutate::bytes(&fs::read(&file)?, random))?;
    Ok(export(scene, folder, random))
}

/// A few numbers that are infinite, not a number, or too large for fp16, anywhere.
fn numbers(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    link(&scene.checkpoint, &folder.join("ck"))?;
    let file = folder.join("ck/model.safetensors");
    let mut bytes = fs::read(&file)?;
    let header = 8 + bytes[..8].iter().rev().fold(0usize, |n, &byte| n << 8 | usize::from(byte));
    for _ in 0..random.usize(1..4) {
        let at = random.usize(header / 2..bytes.len() / 2) * 2;
        let half = [0x7e00u16, 0x7c00, 0xfc00, 0x7f80, 0xff80, 0x4780][random.usize(..6)];
        bytes[at..at + 2].copy_from_slice(&half.to_le_bytes());
    }
    put(&file, &bytes)?;
    Ok(export(scene, folder, random))
}

/// A state dict whose pickle is noise of operations that there are.
fn pickles(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    const OPERATIONS: &[u8] = b".(01NGJKMXUqrhjcRb]})ltaesuQ\x80\x85\x86\x87\x88\x89\x8a\x8c\x8d\x93\x94\x95";
    let count = [10, 1000, 3_000_000][random.usize(..3)];
    let one = OPERATIONS[random.usize(..OPERATIONS.len())];
    let alone = random.bool();
    let noise = |_| if alone { one } else { OPERATIONS[random.usize(..OPERATIONS.len())] };
    let pickle: Vec<u8> = b"\x80\x02}".iter().copied().chain((0..count).map(noise)).collect();
    fs::create_dir(folder.join("ck"))?;
    fs::copy(scene.checkpoint.join("config.json"), folder.join("ck/config.json"))?;
    fs::write(folder.join("ck/pytorch_model.bin"), stored_zip("archive/data.pkl", &pickle))?;
    Ok(export(scene, folder, random))
}

/// A zip archive with one entry, stored as it is.
fn stored_zip(name: &str, content: &[u8]) -> Vec<u8> {
    let (length, len) = (content.len() as u32, name.len() as u16);
    let common = |out: &mut Vec<u8>| {
        out.extend([20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend(length.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(len.to_le_bytes());
    };
    let mut out = b"PK\x03\x04".to_vec();
    common(&mut out);
    out.extend([0, 0]);
    out.extend(name.as_bytes());
    out.extend(content);
    let directory = out.len() as u32;
    out.extend(b"PK\x01\x02\x14\x00");
    common(&mut out);
    out.extend([0; 16]);
    out.extend(name.as_bytes());
    let size = out.len() as u32 - directory;
    out.extend(b"PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00");
    out.extend(size.to_le_bytes());
    out.extend(directory.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// A GGUF file of a vocabulary only, damaged or with pieces that are made of each other.
fn gguf(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    fn array(out: &mut Vec<u8>, key: &str, kind: u32, count: usize) {
        text(out, key);
        out.extend(9u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((count as u64).to_le_bytes());
    }
    let longest = [3, 40, 900][random.usize(..3)];
    let letters = ["a", "ab", "abc"][random.usize(..3)];
    let pieces: Vec<String> =
        (1..=longest).map(|length| letters.chars().cycle().take(length).collect()).collect();
    let mut out = b"GGUF\x03\x00\x00\x00".to_vec();
    out.extend(0u64.to_le_bytes());
    out.extend(4u64.to_le_bytes());
    for (key, value) in [("general.architecture", "llama"), ("tokenizer.ggml.model", "llama")] {
        text(&mut out, key);
        out.extend(8u32.to_le_bytes());
        text(&mut out, value);
    }
    array(&mut out, "tokenizer.ggml.tokens", 8, pieces.len());
    pieces.iter().for_each(|piece| text(&mut out, piece));
    array(&mut out, "tokenizer.ggml.scores", 6, pieces.len());
    pieces.iter().for_each(|_| out.extend(1f32.to_le_bytes()));
    let out = if random.bool() { mutate::bytes(&out, random) } else { out };
    fs::write(folder.join("model.gguf"), out)?;
    let export = ["export", "model.gguf", "-o", "out", "--shapes", "16"];
    Ok(Some(anemeter(scene, folder, &export)))
}

fn generate(scene: &Scene, folder: &Path, random: &mut Rng) -> Option<Command> {
    let (mut command, words) = (
        anemeter(scene, folder, &["generate", "bundle", "--max-tokens", "1", "--prompt"]),
        ["Once", "é😀 \u{301}x\ta  b\u{fdfa}", "<|end|> a b c d", "1 2 3 4 5 6 7 8 9"],
    );
    command.arg(words[random.usize(..words.len())]);
    Some(command)
}

fn tokenizer(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    link(&scene.bundle, &folder.join("bundle"))?;
    let file = folder.join("bundle/tokenizer.json");
    let good = read_json(&file)?;
    let mut damaged = good.clone();
    let parts = ["normalizer", "pre_tokenizer", "post_processor", "decoder"];
    let part = parts[random.usize(..parts.len())];
    let steps = [
        json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"}),
        json!({"type": "Replace", "pattern": {"Regex": ".*?"}, "content": "x".repeat(random.usize(1..3000))}),
        json!({"type": "Prepend", "prepend": "y".repeat(random.usize(1..3000))}),
        json!({"type": "Precompiled", "precompiled_charsmap": "AAQAAAAA/wAAAAAAAP//"}),
        json!({"type": "FixedLength", "length": 0}),
        json!({"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated", "invert": false}),
        json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}], "pair": [],
            "special_tokens": {}}),
        json!({"type": "Strip", "content": "a", "start": u64::MAX, "stop": u64::MAX}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}),
    ];
    let step = steps[random.usize(..steps.len())].clone();
    let nested = (0..random.usize(0..30)).fold(step, |step, _| {
        json!({"type": "Sequence", "normalizers": [step], "pretokenizers": [step], "decoders": [step],
            "processors": [step]})
    });
    let replaced = random.bool();
    if replaced {
        damaged[part] = nested;
    }
    if random.u8(..4) == 0 {
        damaged["model"]["continuing_subword_prefix"] = json!("é".repeat(random.usize(1..9)));
    }
    if random.u8(..4) == 0 {
        damaged["added_tokens"] = json!([{"id": 1, "content": "z".repeat(random.usize(1..3_000_000)), "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": random.bool()}]);
    }
    let damaged = if replaced && random.bool() { damaged } else { mutate::json(&damaged, random) };
    put(&file, damaged.to_string().as_bytes())?;
    Ok(generate(scene, folder, random))
}

fn template(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    link(&scene.bundle, &folder.join("bundle"))?;
    let file = folder.join("bundle/export.json");
    let mut manifest = read_json(&file)?;
    manifest["tokenizer"]["chat_template"] = json!(templates::made(random));
    put(&file, manifest.to_string().as_bytes())?;
    Ok(generate(scene, folder, random))
}

fn manifest(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    link(&scene.bundle, &folder.join("bundle"))?;
    let file = folder.join("bundle/export.json");
    put(&file, mutate::json(&read_json(&file)?, random).to_string().as_bytes())?;
    let commands = [
        "generate bundle --token-ids 1,2 --max-tokens 2",
        "inspect bundle",
        "doctor bundle",
        "lint bundle",
        "generate bundle --token-ids 1,2 --max-tokens 2 --kv state",
    ];
    Ok(Some(anemeter(scene, folder, &pick(random, &commands))))
}

/// What is done with a package of others.
const OF_PACKAGES: &[&str] = &[
    "inspect p.mlpackage --mil",
    "inspect p.mlpackage --cost --ops --weights",
    "lint p.mlpackage",
    "lint p.mlpackage --format md",
    "run p.mlpackage --outputs out.safetensors",
    "run p.mlpackage --state s.safetensors --time 1",
    "compress p.mlpackage -o out.mlpackage --precision int8",
    "compare p.mlpackage p.mlpackage",
];

fn package(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    let package = folder.join("p.mlpackage");
    link(&scene.package, &package)?;
    let files =
        ["Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"];
    let file = package.join(files[[0, 1, 1, 1, 2][random.usize(..5)]]);
    put(&file, &mutate::bytes(&fs::read(&file)?, random))?;
    Ok(Some(anemeter(scene, folder, &pick(random, OF_PACKAGES))))
}

/// An asset of Apple's tools whose program, metadata or hash is damaged; half of the damaged programs have no hash, which is
/// allowed.
fn asset(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    const ASSETS: &[&str] =
        &["qwen_macos_4bit_float16", "t_state_fp16_slice_update", "t_lut4_group4", "t_multifunc_f1"];
    const LINES: &[&str] = &[
        "inspect a.aimodel --ops --weights",
        "inspect a.aimodel --mil",
        "inspect a.aimodel --json",
        "lint a.aimodel",
        "compare a.aimodel a.aimodel",
        "compare a.aimodel good.aimodel",
        "adopt a.aimodel -o adopted",
    ];
    let good = scene.assets.join(ASSETS[random.usize(..ASSETS.len())]).with_extension("aimodel");
    let asset = folder.join("a.aimodel");
    copy(&good, &asset)?;
    copy(&good, &folder.join("good.aimodel"))?;
    let (program, hash, metadata) =
        (asset.join("main.mlirb"), asset.join("main.hash"), asset.join("metadata.json"));
    match random.u8(..8) {
        0 => put(&hash, &mutate::bytes(&fs::read(&hash)?, random))?,
        1 => put(&metadata, &mutate::bytes(&fs::read(&metadata)?, random))?,
        2 => put(&metadata, mutate::json(&read_json(&metadata)?, random).to_string().as_bytes())?,
        _ => {
            let damaged = mutate::bytes(&fs::read(&program)?, random);
            put(&program, &damaged)?;
            if random.bool() {
                fs::remove_file(&hash)?;
            }
        }
    }
    Ok(Some(anemeter(scene, folder, &pick(random, LINES))))
}

fn program(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    for _ in 0..50 {
        if programs::write_one(&folder.join("p.mlpackage"), random)? {
            return Ok(Some(anemeter(scene, folder, &pick(random, OF_PACKAGES))));
        }
    }
    Ok(None)
}

fn report(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    let damaged: Value = mutate::json(&read_json(&scene.report)?, random);
    fs::write(folder.join("report.json"), damaged.to_string())?;
    let commands = [
        "report report.json",
        "report report.json --format html -o page.html",
        "report report.json report.json --format svg -o charts",
        "report report.json --format md",
        "report report.json --format csv -o rows.csv",
        "report report.json --format llama-bench -o lines",
        "report report.json --baseline report.json --format html -o page.html",
        "gate report.json --baselines none",
        "bless report.json --baselines b --scratch",
        "compare report.json report.json",
    ];
    Ok(Some(anemeter(scene, folder, &pick(random, &commands))))
}

fn configuration(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    let bundle = scene.bundle.to_string_lossy();
    let report = scene.report.to_string_lossy();
    let ck = scene.checkpoint.to_string_lossy();
    let cases = [
        ("bench.yaml", format!("bench {bundle} --runtime cpu -o out --workload c.yaml")),
        ("gates.yaml", format!("gate {report} --baselines none --gates c.yaml")),
        ("hardware_profiles.yaml", format!("gate {report} --baselines none --profiles c.yaml")),
        ("convert_coreml.yaml", format!("export {ck} -o out --config c.yaml")),
        ("sweep.yaml", "bench --sweep c.yaml -o out".to_owned()),
        ("verify.yaml", format!("verify {bundle} --checkpoint {ck} --config c.yaml")),
    ];
    let (file, line) = &cases[random.usize(..cases.len())];
    // The workload of the scene is over soon.
    let good = if *file == "bench.yaml" { scene.workload.clone() } else { scene.configs.join(file) };
    fs::write(folder.join("c.yaml"), mutate::lines(&fs::read_to_string(good)?, random))?;
    let words: Vec<&str> = line.split(' ').collect();
    Ok(Some(anemeter(scene, folder, &words)))
}

/// A pipe, a device, a folder or a link to nothing in the place of a file.
fn special(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    let path = folder.join("x");
    match random.u8(..6) {
        0 => xtask::process::succeed(Command::new("mkfifo").arg(&path))?,
        1 => std::os::unix::fs::symlink("/dev/zero", &path)?,
        2 => std::os::unix::fs::symlink("/dev/urandom", &path)?,
        3 => std::os::unix::fs::symlink("nowhere", &path)?,
        4 => std::os::unix::fs::symlink("x", &path)?,
        _ => fs::create_dir(&path)?,
    }
    let bundle = scene.bundle.to_string_lossy();
    let report = scene.report.to_string_lossy();
    let (ck, package) = (scene.checkpoint.to_string_lossy(), scene.package.to_string_lossy());
    let lines = [
        format!("export {ck} -o out --config x"),
        format!("export {ck} -o out --shapes 16 --precision int8 --calibration x"),
        format!("bench {bundle} -o out --workload x"),
        format!("generate {bundle} --max-tokens 1 --prompt-file x"),
        format!("eval {bundle} --cases x"),
        format!("eval {bundle} --text x"),
        format!("verify {bundle} --checkpoint {ck} --prompts x"),
        format!("gate {report} --gates x"),
        format!("lint {package} --waivers x"),
        format!("run {package} --inputs x"),
        format!("run {package} --state x"),
        "report x --format html -o page.html".to_owned(),
        "report --import x".to_owned(),
        "inspect x".to_owned(),
        "lint x".to_owned(),
        "export x -o out".to_owned(),
        "compare x x".to_owned(),
        "baselines verify --baselines x".to_owned(),
    ];
    let words: Vec<&str> = lines[random.usize(..lines.len())].split(' ').collect();
    Ok(Some(anemeter(scene, folder, &words)))
}

/// Names that are long, or that mean something to a terminal.
fn names(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    let long = "n".repeat(random.usize(200..256));
    let name = [mutate::NAME, &long, "x.history", "..", "a b", "é"][random.usize(..6)].replace('\u{0}', "");
    let mut command = anemeter(scene, folder, &["export"]);
    command.arg(&scene.checkpoint).args(["--shapes", "16", "--name", &name, "-o"]).arg(match random.bool() {
        true => "out".to_owned(),
        false => name.replace('/', "-"),
    });
    Ok(Some(command))
}

/// Threads without end, little memory, small files.
fn limits(scene: &Scene, folder: &Path, random: &mut Rng) -> Result<Option<Command>> {
    let program = scene.program.to_string_lossy();
    let (bundle, ck) = (scene.bundle.to_string_lossy(), scene.checkpoint.to_string_lossy());
    let threads = ["0", "1", "1024", "4096", "100000", "-1", "x"][random.usize(..7)];
    let lines = [
        format!("RAYON_NUM_THREADS={threads} {program} export {ck} -o out --shapes 16"),
        format!("{program} generate {bundle} --token-ids 1 --max-tokens 1 --threads {threads}"),
        format!("ulimit -f {}; {program} export {ck} -o out --shapes 16", random.usize(1..2000)),
        format!("ulimit -n {}; {program} export {ck} -o out --shapes 16", random.usize(8..40)),
    ];
    let mut command = Command::new("sh");
    command.current_dir(folder).arg("-c").arg(&lines[random.usize(..lines.len())]);
    Ok(Some(command))
}
