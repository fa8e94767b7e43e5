//! The digest of a package that is on disk: the one its writer gave.

use xxhash_rust::xxh3::Xxh3;

use super::error::{PackageError, Result};
use super::read::Package;
use super::weights::{self, UNIT};
use super::{WeightFile, manifest};
use crate::tensor::Bytes;

/// What is hashed before its pages are handed back.
const CHUNK: usize = 8 << 20;

impl Package {
    /// Tells packages with other content apart: reads all of the model and of the weights it refers to.
    pub fn digest(&self) -> Result<u128> {
        let model = map(self.model_path())?;
        let mut digest = Xxh3::new();
        for file in self.weight_files() {
            if file.name != weights::FILE {
                digest.update(file.name.as_bytes());
            }
            hash_blobs(file, &mut digest)?;
        }
        Ok(manifest::content_digest(&model, digest.digest128()))
    }
}

fn hash_blobs(file: &WeightFile, digest: &mut Xxh3) -> Result<()> {
    let bytes = map(&file.path)?;
    for blob in &file.blobs {
        let start = blob.offset as usize + UNIT;
        let mut hash = Xxh3::new();
        for from in (start..start + blob.bytes as usize).step_by(CHUNK) {
            let chunk = from..(from + CHUNK).min(start + blob.bytes as usize);
            hash.update(&bytes[chunk.clone()]);
            bytes.release(chunk);
        }
        digest.update(&hash.digest128().to_le_bytes());
    }
    Ok(())
}

fn map(path: &std::path::Path) -> Result<Bytes> {
    let file = std::fs::File::open(path).map_err(|e| PackageError::io(path, "open", &e))?;
    Bytes::map(&file).map_err(|e| PackageError::io(path, "map", &e))
}

#[cfg(test)]
mod tests {
    use super::super::{WriteOptions, write};
    use super::*;
    use crate::mil::verify::verify;
    use crate::mil::{Builder, Literal, Model, Opset, TensorType};
    use crate::tensor::{DType, Tensor};

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
}
