//! From a package to a compiled model, through the cache.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use objc2::rc::autoreleasepool;
use objc2_core_ml::MLModel;
use objc2_foundation::NSURL;

use super::error;
use super::wait::CompletionWait;
use crate::RuntimeError;
use crate::compiled::{CompileCache, Key};
use anemeter_base::hardware::os_version;
use anemeter_mil::package::Package;

pub(super) struct CompiledPackage {
    pub(super) path: PathBuf,
    pub(super) elapsed: Duration,
    pub(super) cached: bool,
}

/// The compiled model of a package, compiled now unless this system has done so before.
pub(super) fn compiled(
    package: &Package,
    cache: &CompileCache,
    limit: Duration,
) -> Result<CompiledPackage, RuntimeError> {
    let began = Instant::now();
    let digest = package.digest().map_err(|e| RuntimeError::Environment(e.to_string()))?;
    let key = Key::new(digest, &os_version().build);
    let (path, cached) = cache.get_or_make(&key, || compile(package.path(), limit))?;
    Ok(CompiledPackage { path, elapsed: began.elapsed(), cached })
}

/// Compiles into a folder of Core ML's choice.
fn compile(package: &Path, limit: Duration) -> Result<PathBuf, RuntimeError> {
    let doing = format!("compile {}", package.display());
    let url = file_url(package, &doing)?;
    let waiting =
        CompletionWait { doing: doing.clone(), meanwhile: "Core ML is compiling the package", limit };
    let compiled = waiting.wait(|handler| {
        // SAFETY: the URL is a live file URL, and the handler takes what the method gives: a URL or nil, an error or nil.
        unsafe { MLModel::compileModelAtURL_completionHandler(&url.0, handler) }
    })?;
    autoreleasepool(|_| compiled.to_file_path()).ok_or_else(|| error::gave_nothing(doing))
}

/// A file's URL, and the only owner of it.
pub(super) struct FileUrl(pub(super) objc2::rc::Retained<NSURL>);

pub(super) fn file_url(path: &Path, doing: &str) -> Result<FileUrl, RuntimeError> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let url = autoreleasepool(|_| NSURL::from_file_path(&absolute));
    url.map(FileUrl).ok_or_else(|| {
        RuntimeError::Environment(format!("cannot {doing}: {} is no path for Core ML", absolute.display()))
    })
}
