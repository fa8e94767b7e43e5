//! The digest of a package that is on disk: the one its writer gave.

use xxhash_rust::xxh3::Xxh3;

use super::error::{ErrorKind, PackageError, Result};
use super::files::map_file;
use super::read::Package;
use super::{WeightFile, manifest, weights};

/// What is hashed before its pages are handed back.
const CHUNK: usize = 8 << 20;

impl Package {
    /// Tells packages with other content apart: reads all of the model and of the weights it refers to.
    pub fn digest(&self) -> Result<u128> {
        let model = map_file(self.model_path())?;
        let mut digest = Xxh3::new();
        for file in self.weight_files() {
            if file.name != weights::FILE {
                digest.update(file.name.as_bytes());
            }
            hash_blobs(file, &mut digest)?;
        }
        Ok(manifest::content_digest(&model, digest.digest128()) ^ self.rest)
    }
}

fn hash_blobs(file: &WeightFile, digest: &mut Xxh3) -> Result<()> {
    let bytes = map_file(&file.path)?;
    let changed = || PackageError::new(ErrorKind::Weights, "is shorter than it was").in_file(&file.path);
    for blob in &file.blobs {
        let (start, end) = (blob.data as usize, (blob.data + blob.bytes) as usize);
        let mut hash = Xxh3::new();
        for from in (start..end).step_by(CHUNK) {
            let chunk = from..(from + CHUNK).min(end);
            hash.update(bytes.get(chunk.clone()).ok_or_else(changed)?);
            bytes.release(chunk);
        }
        digest.update(&hash.digest128().to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::weights::UNIT;
    use super::super::{WriteOptions, write};
    use super::*;
    use crate::verify::verify;
    use crate::{Builder, Literal, Model, Opset, TensorType};
    use anemeter_base::atomic::write_file;
    use anemeter_kernels::tensor::{DType, Tensor};

    fn write_with(weight: f32, path: &std::path::Path) -> u128 {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F32, &[1, 64]));
        let constant = Tensor::from_slice(&[1, 64], &[weight; 64]).unwrap();
        let w = main.constant("w", Literal::blob(&constant));
        let y = main.op("add").arg("x", x).arg("y", w).named("y").push().unwrap();
        let model = verify(Model::single(main.finish(&[y]))).unwrap();
        write(&model, path, WriteOptions::default()).unwrap().digest
    }

    #[test]
    fn the_writer_and_a_reader_agree_and_weights_count() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.mlpackage"), folder.path().join("b.mlpackage"));
        let (digest_a, digest_b) = (write_with(1.0, &a), write_with(2.0, &b));
        assert_ne!(digest_a, digest_b);
        assert_eq!(Package::open(&a).unwrap().digest().unwrap(), digest_a);
        assert_eq!(Package::open(&b).unwrap().digest().unwrap(), digest_b);
    }

    #[test]
    fn data_counts_wherever_it_is_and_must_still_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mlpackage");
        let digest = write_with(1.0, &path);
        let file = path.join("Data/com.apple.CoreML/weights/weight.bin");
        let mut bytes = std::fs::read(&file).unwrap();
        let data = bytes.split_off(2 * UNIT);
        let start = 100 * UNIT;
        bytes[UNIT + 16..UNIT + 24].copy_from_slice(&(start as u64).to_le_bytes());
        bytes.resize(start, 0);
        write_file(&file, &[&bytes[..], &data].concat()).unwrap();
        let package = Package::open(&path).unwrap();
        assert_eq!(package.digest().unwrap(), digest);
        write_file(&file, &bytes).unwrap();
        let error = package.digest().unwrap_err().to_string();
        assert!(error.ends_with("weight.bin: is shorter than it was"), "{error}");
    }
}
