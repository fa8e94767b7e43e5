//! Documents in an object store: S3, Google Cloud Storage, Azure, or what speaks their language.
//!
//! Writes are conditional: a document is created only where there is none, and replaced only if it is still the one
//! that was read. Credentials come from the environment, in the variables that each cloud's own tools read.

mod crypto;

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig, UpdateVersion};
use tokio::runtime::Runtime;

use super::storage::{Storage, StorageError, StoredObject, Version};
use crypto::Graviola;

/// A document is never longer than this.
const LONGEST: u64 = 1 << 30;

/// An object store, and where in it documents are.
struct Remote {
    objects: Arc<dyn ObjectStore>,
    /// The URL without a closing slash.
    url: String,
    prefix: Path,
    runtime: Runtime,
}

/// Opens an object store by the parts of its URL.
pub(super) fn open(scheme: &str, rest: &str) -> Result<Box<dyn Storage>, String> {
    let rest = rest.trim_end_matches('/');
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(format!("names no bucket, such as {scheme}://bucket/baselines"));
    }
    // Another part of the program may have installed one already, which then is used.
    let _ = rustls_graviola::default_provider().install_default();
    let url = format!("{scheme}://{bucket}");
    let objects = connect(scheme, &url).map_err(|e| e.to_string())?;
    Ok(Box::new(Remote::over(objects, format!("{scheme}://{rest}"), prefix)?))
}

fn connect(scheme: &str, url: &str) -> Result<Arc<dyn ObjectStore>, Error> {
    let crypto = Arc::new(Graviola);
    let retry =
        RetryConfig { max_retries: 5, retry_timeout: Duration::from_secs(60), ..RetryConfig::default() };
    Ok(match scheme {
        "s3" => {
            let builder = AmazonS3Builder::from_env().with_url(url);
            Arc::new(builder.with_crypto_provider(crypto).with_retry(retry).build()?)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url);
            Arc::new(builder.with_crypto_provider(crypto).with_retry(retry).build()?)
        }
        _ => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url);
            Arc::new(builder.with_crypto_provider(crypto).with_retry(retry).build()?)
        }
    })
}

impl Remote {
    fn over(objects: Arc<dyn ObjectStore>, url: String, prefix: &str) -> Result<Remote, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("cannot start: {e}"))?;
        let prefix = Path::parse(prefix).map_err(|e| e.to_string())?;
        Ok(Remote { objects, url, prefix, runtime })
    }

    /// A name as it is: what joins parts would write some letters otherwise.
    fn path(&self, name: &str) -> Result<Path, StorageError> {
        let full = format!("{}/{name}", self.prefix);
        let wrong =
            |e: object_store::path::Error| StorageError { at: self.place(name), problem: e.to_string() };
        Path::parse(full.trim_start_matches('/')).map_err(wrong)
    }

    fn failed(&self, name: &str, error: &Error) -> StorageError {
        StorageError { at: self.place(name), problem: error.to_string() }
    }

    /// Writes a document whole; false if the condition does not hold.
    fn put(&self, name: &str, bytes: &[u8], mode: PutMode) -> Result<bool, StorageError> {
        let options = PutOptions { mode, ..PutOptions::default() };
        let (path, payload) = (self.path(name)?, bytes.to_vec().into());
        match self.runtime.block_on(self.objects.put_opts(&path, payload, options)) {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. }) => {
                Ok(false)
            }
            Err(error) => Err(self.failed(name, &error)),
        }
    }
}

impl Storage for Remote {
    fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    fn read(&self, name: &str) -> Result<Option<StoredObject>, StorageError> {
        let path = self.path(name)?;
        let got = self.runtime.block_on(async {
            let got = self.objects.get(&path).await?;
            let meta = got.meta.clone();
            if meta.size > LONGEST {
                return Ok((meta, None));
            }
            Ok((meta, Some(got.bytes().await?)))
        });
        match got {
            Ok((meta, Some(bytes))) => {
                let version = Version { tag: meta.e_tag, version: meta.version };
                Ok(Some(StoredObject { bytes: bytes.to_vec(), version }))
            }
            Ok((meta, None)) => {
                let problem = format!("has {} bytes, a baseline at most {LONGEST}", meta.size);
                Err(StorageError { at: self.place(name), problem })
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, StorageError> {
        self.put(name, bytes, PutMode::Create)
    }

    fn replace(&self, name: &str, bytes: &[u8], version: &Version) -> Result<bool, StorageError> {
        let Version { tag, version } = version.clone();
        self.put(name, bytes, PutMode::Update(UpdateVersion { e_tag: tag, version }))
    }

    fn names(&self) -> Result<Vec<String>, StorageError> {
        let found = self.runtime.block_on(self.objects.list(Some(&self.prefix)).try_collect::<Vec<_>>());
        let found = found.map_err(|e| self.failed("", &e))?;
        let names = found.into_iter().filter_map(|meta| {
            let parts = meta.location.prefix_match(&self.prefix)?;
            Some(parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"))
        });
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
