//! Assets that Apple's tools made, read and written; and hostile bytes.

use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anemeter_base::atomic::write_file;
use anemeter_kernels::tensor::Bytes;
use anemeter_mil::Payload;
use anemeter_mil::package::WriteOptions;

use super::*;
use crate::bytecode::{Encoded, decode, encode};
use crate::{
    Attribute, Dim, ErrorKind, Graph, Op, Port, Program, Region, Resource, ResourceData, Scalar, Type,
    ValueId, verify,
};

/// The assets that came with the format's description.
fn samples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 17);
    paths
}

fn whole(encoded: &Encoded) -> Vec<u8> {
    let mut out = encoded.head.clone();
    for entry in &encoded.resources {
        out.extend_from_slice(&entry.header);
        out.extend_from_slice(&content(&entry.resource));
    }
    out.extend_from_slice(&encoded.tail);
    assert_eq!(out.len() as u64, encoded.byte_len());
    out
}

fn content(resource: &Resource) -> Vec<u8> {
    match &*resource.0 {
        ResourceData::Bytes(bytes) => bytes.to_vec(),
        ResourceData::Stream(payload) => {
            let mut out = Vec::new();
            payload.write_to(&mut out).unwrap();
            out
        }
    }
}

/// The contents of all resources, in the order in which a program refers to them.
fn contents(program: &Program) -> Vec<Vec<u8>> {
    fn of_region(region: &Region, out: &mut Vec<Vec<u8>>) {
        for op in &region.ops {
            for property in op.properties.iter().flatten() {
                if let Attribute::DenseResource(resource) = property {
                    out.push(content(resource));
                }
            }
            op.regions.iter().for_each(|region| of_region(region, out));
        }
    }
    let mut out = Vec::new();
    program.graphs.iter().for_each(|graph| of_region(&graph.body, &mut out));
    out
}

/// Whether programs are the same, with resources compared by content.
fn assert_same(a: &Program, b: &Program) {
    /// A copy whose resources are told apart by nothing.
    fn without_resources(program: &Program) -> Program {
        fn strip(region: &mut Region) {
            for op in &mut region.ops {
                for property in op.properties.iter_mut().flatten() {
                    if let Attribute::DenseResource(resource) = property {
                        *property =
                            Attribute::Integer { width: 64, is_unsigned: true, bits: resource.byte_len() };
                    }
                }
                op.regions.iter_mut().for_each(strip);
            }
        }
        let mut copy = program.clone();
        copy.graphs.iter_mut().for_each(|graph| strip(&mut graph.body));
        copy
    }
    assert_eq!(without_resources(a), without_resources(b));
    assert!(contents(a) == contents(b));
}

#[test]
fn all_samples_are_read_verified_and_written_to_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for sample in samples() {
        let asset = Asset::open(&sample).unwrap();
        asset.check_hash().unwrap();
        verify(asset.program()).unwrap_or_else(|e| panic!("{}: {e}", sample.display()));
        assert_eq!(asset.metadata().producer, "coreai-core 1.0.0b3");
        let copy = folder.path().join(sample.file_name().unwrap());
        let summary = write(asset.program(), asset.metadata(), &copy).unwrap();
        assert_eq!(summary.resources, asset.resources().len());
        let read = Asset::open(&copy).unwrap();
        read.check_hash().unwrap();
        assert_eq!(read.recorded_sha256(), Some(summary.sha256));
        assert_eq!(read.metadata(), asset.metadata());
        assert_same(asset.program(), read.program());
        let again = whole(&encode(read.program()).unwrap());
        assert!(again == fs::read(copy.join(PROGRAM)).unwrap(), "{}", sample.display());
        let files: u64 = fs::read_dir(&copy).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(files, summary.bytes);
    }
}

#[test]
fn what_a_sample_says_is_read() {
    let sample = |name: &str| samples().into_iter().find(|path| path.ends_with(name)).unwrap();
    let state = Asset::open(sample("t_state_fp16_slice_update.aimodel")).unwrap();
    let program = state.program();
    assert_eq!((program.version, program.graphs.len()), (20_250_922, 1));
    let main = &program.graphs[0];
    let cache =
        Type::Tensor { dims: [1, 2, 8, 4].map(Dim::Fixed).to_vec(), element: Scalar::F16, constraints: None };
    assert_eq!(main.inputs[2], Port { name: "k".to_owned(), ty: Type::Handle(Box::new(cache)) });
    assert_eq!(main.outputs[1], Port { name: "tok".to_owned(), ty: Type::Token });
    let text = program.to_string();
    assert!(
        text.contains("%7 = primitive.constant_v1() {value = dense<[1, 2]>} : tensor<2xsint32>"),
        "{text}"
    );
    assert!(
        text.contains("%16 = primitive.slice_update_v1(%11, %14, %15, %3, %0) : tensor<1x2x8x4xfloat16>")
    );
    let ios = Asset::open(sample("qwen_ios_none_float16.aimodel")).unwrap();
    assert_eq!(ios.dropped().iter().collect::<Vec<_>>(), ["MutableBuffers.buffer_mutation"]);
    assert!(ios.program().to_string().contains("alignments [1, 1, 32, 1] interleave [1, 1, 1] IOSurface>"));
    let dynamic = Asset::open(sample("t_dynamic_5.aimodel")).unwrap();
    assert!(dynamic.program().to_string().contains('?'));
}

/// Whatever the bytes, there is a program or an error.
#[test]
fn changed_and_cut_samples_never_panic() {
    for sample in samples() {
        let bytes = fs::read(sample.join(PROGRAM)).unwrap();
        // All places of small files, some of large ones: a step without a common divisor with what the format aligns to.
        let step = if bytes.len() < 4096 { 1 } else { (bytes.len() / 150) | 1 };
        for at in (0..bytes.len()).step_by(step) {
            let cut = Bytes::from(bytes[..at].to_vec());
            assert!(decode(&cut).is_err(), "{} cut at {at}", sample.display());
            for flip in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                match decode(&Bytes::from(changed)) {
                    Ok(decoded) => drop(verify(&decoded.program)),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}

fn tensor(dims: &[u64], element: Scalar) -> Type {
    Type::Tensor { dims: dims.iter().map(|&dim| Dim::Fixed(dim)).collect(), element, constraints: None }
}

fn op(name: &'static str, operands: &[u32], results: &[Type]) -> Op {
    Op {
        name: name.into(),
        properties: Vec::new(),
        operands: operands.iter().map(|&id| ValueId(id)).collect(),
        results: results.to_vec(),
        regions: Vec::new(),
    }
}

fn constant(resource: &Resource, ty: Type) -> Op {
    Op {
        properties: vec![Some(Attribute::DenseResource(resource.clone()))],
        ..op("primitive.constant_v1", &[], &[ty])
    }
}

fn bytes(content: Vec<u8>) -> Resource {
    Resource(Arc::new(ResourceData::Bytes(Bytes::from(content))))
}

/// A program that adds weights to its input one after the other.
fn adding(weights: &[Resource]) -> Program {
    let ty = tensor(&[weights[0].byte_len() / 2], Scalar::F16);
    let mut ops: Vec<Op> = weights.iter().map(|weight| constant(weight, ty.clone())).collect();
    let mut last = 0;
    for index in 0..weights.len() as u32 {
        ops.push(op("primitive.add_v1", &[last, index + 1], std::slice::from_ref(&ty)));
        last = weights.len() as u32 + 1 + index;
    }
    ops.push(op("dataflow.output_v1", &[last], &[]));
    let port = |name: &str| Port { name: name.to_owned(), ty: ty.clone() };
    let graph = Graph {
        name: "main".to_owned(),
        inputs: vec![port("x")],
        outputs: vec![port("y")],
        is_private: false,
        no_inline: false,
        externalize: false,
        composite: None,
        params: Attribute::Array(Vec::new()),
        body: Region { arguments: vec![ty.clone()], ops },
    };
    Program { version: 20_260_409, graphs: vec![graph] }
}

struct Counting {
    len: u64,
    given: u64,
}

impl Payload for Counting {
    fn byte_len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        (0..self.given).try_for_each(|i| out.write_all(&[(i % 251) as u8]))
    }
}

fn stream(len: u64, given: u64) -> Resource {
    Resource(Arc::new(ResourceData::Stream(Arc::new(Counting { len, given }))))
}

#[test]
fn streams_are_written_aligned_and_equal_resources_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.aimodel");
    let large = stream(300_000, 300_000);
    let same_bytes = bytes((0..300_000u64).map(|i| (i % 251) as u8).collect());
    let program = adding(&[large.clone(), large.clone(), same_bytes, large]);
    verify(&program).unwrap();
    let summary = write(&program, &AssetMetadata::default(), &path).unwrap();
    // Large ones are told apart by where they are, not by what they hold.
    assert_eq!((summary.resources, summary.deduplicated), (2, 2));
    let asset = Asset::open(&path).unwrap();
    asset.check_hash().unwrap();
    assert_same(asset.program(), &program);
    let file = fs::read(path.join(PROGRAM)).unwrap();
    for (_, resource) in asset.resources() {
        let content = content(resource);
        let at = file.windows(64).position(|window| window == &content[..64]).unwrap();
        assert_eq!(at % 16, 0);
    }
    // Small ones are equal if they hold the same.
    let small = adding(&[bytes(vec![7; 512]), bytes(vec![7; 512]), stream(512, 512), stream(512, 512)]);
    let encoded = encode(&small).unwrap();
    assert_eq!((encoded.resources.len(), encoded.deduplicated), (2, 2));
}

#[test]
fn an_asset_appears_whole_or_not_at_all_and_replaces_only_assets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.aimodel");
    for (given, message) in [(9_999, "gave only 9999"), (10_001, "more bytes than it announced")] {
        // Too large to be compared by content, so that the error comes while the file is written.
        let program = adding(&[stream(100_000, 100_000), stream(100_000, given * 10)]);
        let error = write(&program, &AssetMetadata::default(), &path).unwrap_err();
        let message = message.replace("9999", "99990");
        assert!(error.to_string().contains(&message), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let program = adding(&[bytes(vec![1; 64])]);
    write(&program, &AssetMetadata::default(), &path).unwrap();
    let before = fs::read(path.join(PROGRAM)).unwrap();
    let taken = write(&program, &AssetMetadata::default(), &path).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Exists);
    let overwrite = WriteOptions { overwrite: true, ..WriteOptions::default() };
    write_watched(&program, &AssetMetadata::default(), &path, overwrite, &()).unwrap();
    assert!(before == fs::read(path.join(PROGRAM)).unwrap(), "the same program gives the same bytes");
    write_file(&path.join("notes.txt"), b"mine").unwrap();
    let foreign = write_watched(&program, &AssetMetadata::default(), &path, overwrite, &()).unwrap_err();
    assert!(foreign.to_string().contains("holds `notes.txt`, so it is not replaced"), "{foreign}");
}

/// Its weights are a hole in the file, which takes no space on disk and would take long to read.
#[test]
fn a_large_asset_is_opened_without_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.aimodel");
    let len = 18 << 30;
    let encoded = encode(&adding(&[stream(len, 0)])).unwrap();
    fs::create_dir(&path).unwrap();
    write_file(&path.join(METADATA), &AssetMetadata::default().to_json().unwrap()).unwrap();
    let mut file = fs::File::create_new(path.join(PROGRAM)).unwrap();
    file.write_all(&encoded.head).unwrap();
    file.write_all(&encoded.resources[0].header).unwrap();
    file.seek(SeekFrom::Current(len as i64)).unwrap();
    file.write_all(&encoded.tail).unwrap();
    let asset = Asset::open(&path).unwrap();
    verify(asset.program()).unwrap();
    assert_eq!((asset.weight_len(), asset.file_len()), (len, encoded.byte_len()));
    assert!(asset.program().to_string().contains(&format!("resource<{len} bytes>")));
}

#[test]
fn an_inconsistent_program_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.aimodel");
    let refused = |change: fn(&mut Program)| {
        let mut program = adding(&[bytes(vec![1; 64])]);
        change(&mut program);
        let error = write(&program, &AssetMetadata::default(), &path).unwrap_err();
        assert!(error.kind() == ErrorKind::Program && !path.exists());
        error.to_string().split_once("graph `main`: ").unwrap().1.to_owned()
    };
    let error = refused(|program| program.graphs[0].body.ops[1].operands[1] = ValueId(2));
    assert_eq!(error, "op 1 `primitive.add_v1`: uses %2, and only the 2 values before it are there");
    let error = refused(|program| program.graphs[0].outputs[0].ty = Type::Token);
    assert!(error.starts_with("number 0 of its results is token, and of the operands"), "{error}");
    let error = refused(|program| drop(program.graphs[0].body.ops.pop()));
    assert!(error.contains("expected `dataflow.output_v1` at the end of a region"), "{error}");
    let error = refused(|program| program.graphs[0].body.ops[0].results = vec![tensor(&[33], Scalar::F16)]);
    assert!(error.ends_with("expected 66 bytes of tensor<33xfloat16>, found 64"), "{error}");
    let error = refused(|program| program.graphs[0].body.ops[1].name = "silu_v1".into());
    assert!(error.ends_with("expected one region, its decomposition, found 0"), "{error}");
    let error = refused(|program| program.graphs.push(program.graphs[0].clone()));
    assert_eq!(error, "there are two graphs of this name");
}

#[test]
fn the_hash_is_compared_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.aimodel");
    write(&adding(&[bytes(vec![1; 64])]), &AssetMetadata::default(), &path).unwrap();
    let mut file = fs::read(path.join(PROGRAM)).unwrap();
    let weight = file.windows(64).position(|window| window == [1; 64]).unwrap();
    file[weight] = 2;
    write_file(&path.join(PROGRAM), &file).unwrap();
    let error = Asset::open(&path).unwrap().check_hash().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hash);
    fs::remove_file(path.join(HASH)).unwrap();
    Asset::open(&path).unwrap().check_hash().unwrap();
    write_file(&path.join(HASH), &[0; 31]).unwrap();
    assert!(Asset::open(&path).unwrap_err().to_string().contains("main.hash: expected the 32 bytes"));
    fs::remove_file(path.join(METADATA)).unwrap();
    assert_eq!(Asset::open(&path).unwrap_err().kind(), ErrorKind::Missing);
}
