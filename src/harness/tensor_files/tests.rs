//! Files that numpy wrote (`xtask/python/numpy_arrays.py`), damaged ones, and any bytes.

use std::fs;

use half::f16;
use proptest::prelude::*;

use super::*;
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::DType;

fn testdata(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tensor_files/testdata");
    fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn decode(name: &str, bytes: &[u8]) -> Result<Content> {
    Format::of(Path::new(name)).decode(bytes)
}

fn array(name: &str) -> Tensor {
    match decode(name, &testdata(name)) {
        Ok(Content::Unnamed(tensor)) => tensor,
        other => panic!("{name}: {other:?}"),
    }
}

fn arrays(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>> {
    match decode("x.npz", bytes)? {
        Content::Named(tensors) => Ok(tensors),
        Content::Unnamed(_) => panic!("an .npz file has names"),
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    let mut values = vec![0.0; tensor.view().len()];
    let count = values.len();
    to_f32(&tensor.view(), 0..count, &mut values);
    values
}

fn document<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Document<'a> {
    let tensors = tensors.into_iter().map(|(name, tensor)| (name.to_owned(), tensor.view())).collect();
    Document { tensors, texts: None }
}

/// Types with what numpy calls them.
const TYPES: &[(&str, DType)] = &[
    ("float16", DType::F16),
    ("float32", DType::F32),
    ("float64", DType::F64),
    ("int8", DType::I8),
    ("int16", DType::I16),
    ("int32", DType::I32),
    ("int64", DType::I64),
    ("uint8", DType::U8),
    ("uint16", DType::U16),
    ("uint32", DType::U32),
    ("uint64", DType::U64),
];

#[test]
fn arrays_of_numpy_are_read_and_written_byte_for_byte() {
    let npy = Format::of(Path::new("x.npy"));
    let written = |tensor: &Tensor| npy.encode(&document([("x", tensor)])).unwrap();
    for &(name, dtype) in TYPES {
        let file = format!("{name}.npy");
        let tensor = array(&file);
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, &[2, 3][..]), "{name}");
        // Integers of other widths than 32 have no conversion here; their bytes are compared below.
        if dtype.is_float() || dtype == DType::I32 {
            assert_eq!(values(&tensor), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{name}");
        }
        assert_eq!(written(&tensor), testdata(&file), "{name}");
    }
    let shapes: [(&str, DType, &[usize]); 5] = [
        ("bool.npy", DType::Bool, &[2, 3]),
        ("scalar.npy", DType::F32, &[]),
        ("vector.npy", DType::I64, &[3]),
        ("empty.npy", DType::F32, &[0, 4]),
        ("column.npy", DType::F16, &[4, 1]),
    ];
    for (name, dtype, shape) in shapes {
        let tensor = array(name);
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, shape), "{name}");
        assert_eq!(written(&tensor), testdata(name), "{name}");
    }
    assert_eq!(array("bool.npy").bytes()[..], [0, 1, 0, 1, 1, 0]);
    assert_eq!(array("fortran.npy"), array("float32.npy"), "column by column in the file");
    for version in ["version-2.npy", "version-3.npy"] {
        assert_eq!(array(version), array("float32.npy"));
    }
}

#[test]
fn archives_of_numpy_are_read_stored_and_deflated() {
    let stored = arrays(&testdata("stored.npz")).unwrap();
    assert_eq!(stored.keys().collect::<Vec<_>>(), ["größe", "x"]);
    assert_eq!(stored["x"], array("float32.npy"));
    assert_eq!(stored["größe"].shape(), [4, 64]);
    assert_eq!(values(&stored["größe"])[..6], [0.0, 1.0, 2.0, 3.0, 0.0, 1.0]);
    assert_eq!(arrays(&testdata("deflated.npz")).unwrap(), stored);
    assert!(testdata("deflated.npz").len() < testdata("stored.npz").len());
    assert_eq!(arrays(&testdata("none.npz")).unwrap(), BTreeMap::new());
}

#[test]
fn what_no_model_takes_is_refused_with_a_way_on() {
    let cases = [
        ("big-endian.npy", "is in big-endian order (`>f4`)", "newbyteorder('<')"),
        ("objects.npy", "holds Python objects, which are not loaded (`|O`)", "astype('float32')"),
        ("strings.npy", "holds strings (`<U2`)", "astype"),
        ("bytes.npy", "holds strings (`|S2`)", "astype"),
        ("complex.npy", "holds complex numbers (`<c8`)", "astype"),
        ("records.npy", "holds records: `descr` is a list of fields", "each field"),
        ("longdouble.npy", "holds floats of a width that no tensor has (`<f16`)", "astype"),
        ("dates.npy", "holds dates (`<M8[D]`)", "astype"),
    ];
    for (name, expected, help) in cases {
        let error = decode(name, &testdata(name)).unwrap_err();
        assert!(error.to_string().contains(expected), "{name}: {error}");
        assert!(error.help.is_some_and(|found| found.contains(help)), "{name}: {:?}", error.help);
    }
}

#[test]
fn arrays_in_fortran_order_of_any_shape_are_read_by_rows() {
    let shapes: [(&[usize], &str); 5] =
        [(&[2, 3, 4], "2, 3, 4"), (&[3, 1, 2], "3, 1, 2"), (&[5], "5,"), (&[], ""), (&[7, 0, 3], "7, 0, 3")];
    for (shape, written) in shapes {
        // An element is the sum of its indices times powers of ten, so that its place is its value.
        let place = |index: &[usize]| index.iter().fold(0, |place, i| place * 10 + i) as u8;
        let count: usize = shape.iter().product();
        let by =
            |order: &dyn Fn(usize) -> Vec<usize>| (0..count).map(|i| place(&order(i))).collect::<Vec<u8>>();
        let columns = by(&|mut i| shape.iter().map(|size| (i % size, i /= size).0).collect());
        let rows = by(&|mut i| {
            let mut index: Vec<usize> = shape.iter().rev().map(|size| (i % size, i /= size).0).collect();
            index.reverse();
            index
        });
        let header = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': ({written}), }}");
        let read = decode("x.npy", &with_header(&header, &columns)).unwrap();
        assert_eq!(read, Content::Unnamed(Tensor::from_slice(shape, &rows).unwrap()), "{shape:?}");
    }
    let huge = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': ({0}, {0}, 0), }}", usize::MAX);
    let _ = decode("x.npy", &with_header(&huge, &[]));
}

/// An `.npy` file with a header of one's own.
fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

#[test]
fn headers_are_read_strictly() {
    let good = "{'shape': (2,), 'fortran_order': False, \"descr\": '|u1'}  \n";
    let read = decode("x.npy", &with_header(good, &[7, 8])).unwrap();
    assert_eq!(read, Content::Unnamed(Tensor::from_slice(&[2], &[7u8, 8]).unwrap()));
    let one_order = "{'descr': '|u1', 'fortran_order': True, 'shape': (2,), }";
    assert!(decode("x.npy", &with_header(one_order, &[7, 8])).is_ok(), "a vector has one order");
    let cases = [
        ("", "has `` where `{` is expected"),
        ("{'descr': '|u1', 'fortran_order': False}", "has no `shape`"),
        ("{'descr': '|u1', 'descr': '|u1'}", "has `descr` twice"),
        ("{'descr': '|u1', 'size': 3}", "has the unknown key `size`"),
        ("{'descr': '|u1', 'fortran_order': 0, 'shape': (2,)}", "where True or False is expected"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (2)}", "where `,` is expected"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}", "where a size is expected"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (2L,)}", "where `,` is expected"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': 2}", "where `(` is expected"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} x", "where nothing more is expected"),
        ("{'descr': '|u\\x31', 'fortran_order': False, 'shape': (2,)}", "where a string is expected"),
        ("{'descr': '<q4', 'fortran_order': False, 'shape': (2,)}", "has the type `<q4`, which is unknown"),
        ("{'descr': '', 'fortran_order': False, 'shape': (2,)}", "has the type ``, which is unknown"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", "takes 3 bytes, the file has 2"),
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
            "takes more than memory holds bytes",
        ),
        ("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "element 0 is 7, which is no bool"),
    ];
    for (header, expected) in cases {
        let error = decode("x.npy", &with_header(header, &[7, 8])).unwrap_err().to_string();
        assert!(error.contains(expected), "{header}: {error}");
    }
    let later = decode("x.npy", b"\x93NUMPY\x04\x00\x00\x00").unwrap_err().to_string();
    assert_eq!(later, "has format version 4.0; 1.0 to 3.0 are read");
}

#[test]
fn damage_is_found_wherever_it_is() {
    for name in ["float32.npy", "stored.npz", "deflated.npz"] {
        let whole = testdata(name);
        for end in 0..whole.len() {
            assert!(decode(name, &whole[..end]).is_err(), "{name} cut off at {end}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x5a;
            let _ = decode(name, &damaged);
        }
    }
    // Data of an archive have a checksum.
    let whole = testdata("stored.npz");
    let data = array("float32.npy");
    let at = whole.windows(data.bytes().len()).position(|window| window == &data.bytes()[..]).unwrap();
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    let error = arrays(&damaged).unwrap_err().to_string();
    assert!(error.starts_with("`x.npy`: is damaged: size or checksum"), "{error}");
}

#[test]
fn archives_that_would_fill_memory_are_refused() {
    let whole = testdata("deflated.npz");
    let entries = anemeter_base::zip::entries(&whole).unwrap();
    // The size of the first entry in the directory: the first one of its kind.
    let directory = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let mut swollen = whole.clone();
    swollen[directory + 24..directory + 28].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    let error = arrays(&swollen).unwrap_err().to_string();
    assert!(error.contains("cannot unpack to 2147483647"), "{error}");
    assert_eq!(entries.len(), 2);
    let twice = {
        let tensor = Tensor::from_slice(&[64], &[1.0f32; 64]).unwrap();
        let npz = Format::of(Path::new("x.npz"));
        let mut bytes = npz.encode(&document([("a", &tensor), ("b", &tensor)])).unwrap();
        // The second entry of the directory takes the first's place, from there to the end of the file.
        let at: Vec<usize> =
            bytes.windows(4).enumerate().filter(|w| w.1 == b"PK\x01\x02").map(|w| w.0).collect();
        for entry in at {
            bytes[entry + 42..entry + 46].copy_from_slice(&0u32.to_le_bytes());
            for size in [20, 24] {
                bytes[entry + size..entry + size + 4].copy_from_slice(&500u32.to_le_bytes());
            }
        }
        bytes
    };
    let error = arrays(&twice).unwrap_err().to_string();
    assert!(error.contains("its zip entries overlap"), "{error}");
    let other = Format::of(Path::new("x.npz")).encode(&document([])).unwrap();
    assert_eq!(arrays(&other).unwrap(), BTreeMap::new());
}

#[test]
fn formats_say_what_they_cannot_hold() {
    let two = [Tensor::scalar(1.0f32), Tensor::scalar(2.0f32)];
    let error = npy::FORMAT.encode(&document([("a", &two[0]), ("b", &two[1])])).unwrap_err();
    assert_eq!(error.to_string(), "an .npy file holds one array, there are 2");
    assert_eq!(error.help, Some("an .npz file holds any number"));
    let wide = Tensor::new(DType::BF16, [1usize][..].into(), vec![0, 0].into()).unwrap();
    let error = npz::FORMAT.encode(&document([("a", &wide)])).unwrap_err();
    assert_eq!(error.to_string(), "`a`: is bf16, which numpy cannot hold");
    assert!(safetensors::FORMAT.encode(&document([("a", &wide)])).is_ok());
}

#[test]
fn endings_choose_the_format() {
    for (path, ending) in [
        ("a.npz", "npz"),
        ("b.NPY", "npy"),
        ("c.safetensors", "safetensors"),
        ("d", "safetensors"),
        ("e.bin", "safetensors"),
    ] {
        assert_eq!(Format::of(Path::new(path)).ending, ending, "{path}");
    }
}

/// A tensor of any type that numpy has.
fn tensors() -> impl Strategy<Value = Tensor> {
    let shapes = proptest::collection::vec(0usize..5, 0..4);
    (shapes, 0..TYPES.len(), any::<u64>()).prop_map(|(shape, at, seed)| {
        let dtype = TYPES[at].1;
        let count: usize = shape.iter().product::<usize>() * dtype.bits() as usize / 8;
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..count).map(|_| random.u8(..)).collect();
        Tensor::new(dtype, shape[..].into(), bytes.into()).unwrap()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        tensors in proptest::collection::btree_map("[a-zé/ ]{1,8}", tensors(), 0..4)
    ) {
        let document = document(tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        for format in FORMATS.iter().filter(|format| format.ending != "npy") {
            let bytes = format.encode(&document).unwrap();
            prop_assert_eq!(format.decode(&bytes).unwrap(), Content::Named(tensors.clone()));
        }
        if let Some(tensor) = tensors.values().next() {
            let one = Document { tensors: BTreeMap::from([(String::new(), tensor.view())]), texts: None };
            let bytes = npy::FORMAT.encode(&one).unwrap();
            prop_assert_eq!(npy::FORMAT.decode(&bytes).unwrap(), Content::Unnamed(tensor.clone()));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        start in proptest::sample::select(vec![&b""[..], b"\x93NUMPY\x01\x00", b"PK\x05\x06", b"PK\x03\x04"])
    ) {
        let bytes = [start, &bytes].concat();
        for format in FORMATS {
            if let Err(error) = format.decode(&bytes) {
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }

    #[test]
    fn any_header_is_read_or_refused(header in "[ -~]{0,80}", data in proptest::collection::vec(any::<u8>(), 0..16)) {
        let _ = npy::FORMAT.decode(&with_header(&header, &data));
    }
}

#[test]
fn files_are_read_by_their_ending_and_errors_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = Tensor::from_slice(&[2], &[f16::from_f32(1.5), f16::from_f32(-2.0)]).unwrap();
    for ending in ["npz", "safetensors"] {
        let path = folder.path().join(format!("x.{ending}"));
        write(&path, &document([("y", &tensor)])).unwrap();
        assert_eq!(read(&path).unwrap(), Content::Named(BTreeMap::from([("y".to_owned(), tensor.clone())])));
    }
    let wrong = folder.path().join("wrong.npy");
    write(&wrong, &document([("y", &tensor), ("z", &tensor)])).unwrap_err();
    assert!(!wrong.exists());
    let error = read(&wrong).unwrap_err().to_string();
    assert!(error.contains("wrong.npy: "), "{error}");
}
