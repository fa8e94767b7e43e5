//! Models of the Hugging Face Hub by name, found in the cache that huggingface_hub keeps.
//!
//! ```text
//! hub/models--ORG--NAME/
//!   refs/main                      a commit hash
//!   snapshots/<commit>/config.json a link to ../../blobs/<etag>
//! ```

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::{CheckpointError, Result, quoted};
use anemeter_base::advice::Remedy;
use anemeter_base::files;

/// The revision of a name without one.
const DEFAULT_REVISION: &str = "main";

/// `ORG/NAME[@REVISION][:QUANTISATION]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// Organisation or user.
    pub org: String,
    /// The repository's name within it.
    pub name: String,
    /// A branch, a tag or a commit hash.
    pub revision: Option<String>,
    /// Which GGUF file of the repository, as llama.cpp names them: `Q4_K_M`.
    pub quantization: Option<String>,
}

/// The folder that huggingface_hub keeps models in.
#[derive(Debug, Clone)]
pub struct HubCache {
    folder: PathBuf,
}

/// Where a name led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The snapshot's folder, or the GGUF file in it.
    pub path: PathBuf,
    /// The commit that it is a snapshot of.
    pub commit: String,
}

impl FromStr for ModelName {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<ModelName> {
        let wrong = || {
            CheckpointError::new(format!("{} is no model's name", quoted(text)))
                .with_help("names are written as ORG/NAME, ORG/NAME@REVISION or ORG/NAME:Q4_K_M")
        };
        let (rest, quantization) = match text.rsplit_once(':') {
            Some((rest, quantization)) => (rest, Some(quantization)),
            None => (text, None),
        };
        let (repository, revision) = match rest.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (rest, None),
        };
        let (org, name) = repository.split_once('/').ok_or_else(wrong)?;
        let is_word = |word: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !word.is_empty() && !word.starts_with('.') && !word.contains("--") && word.chars().all(allowed)
        };
        // Branches may have slashes (`refs/pr/1`), which become folders.
        let is_revision = |text: &str| text.split('/').all(is_word);
        if !is_word(org)
            || !is_word(name)
            || !revision.is_none_or(is_revision)
            || !quantization.is_none_or(is_word)
        {
            return Err(wrong());
        }
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Ok(ModelName {
            org: org.to_owned(),
            name: name.to_owned(),
            revision: owned(revision),
            quantization: owned(quantization),
        })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.org, self.name)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        if let Some(quantization) = &self.quantization {
            write!(f, ":{quantization}")?;
        }
        Ok(())
    }
}

impl HubCache {
    /// The cache of this user, as huggingface_hub finds it; nothing if no variable says where it is.
    pub fn of_user() -> Option<HubCache> {
        let folder = folder_by(|name| env::var_os(name).filter(|value| !value.is_empty()))?;
        Some(HubCache { folder })
    }

    /// The cache in a folder.
    pub fn at(folder: impl Into<PathBuf>) -> HubCache {
        HubCache { folder: folder.into() }
    }

    /// Finds the snapshot of a model.
    pub fn find(&self, model: &ModelName) -> Result<Snapshot> {
        let repository = self.folder.join(format!("models--{}--{}", model.org, model.name));
        if !repository.is_dir() {
            return Err(self.missing(model, "is no path here, and not in the Hugging Face cache"));
        }
        let revision = model.revision.as_deref().unwrap_or(DEFAULT_REVISION);
        let commit = commit_of(&repository, revision)?.ok_or_else(|| {
            self.missing(model, &format!("is in the Hugging Face cache without revision `{revision}`"))
        })?;
        let folder = repository.join("snapshots").join(&commit);
        if !folder.is_dir() {
            return Err(
                self.missing(model, &format!("has no snapshot of commit {commit} in the Hugging Face cache"))
            );
        }
        let path = match &model.quantization {
            Some(quantization) => gguf_file(&folder, quantization)?,
            None => folder,
        };
        Ok(Snapshot { path, commit })
    }

    fn missing(&self, model: &ModelName, what: &str) -> CheckpointError {
        CheckpointError::new(format!("{model} {what} ({})", self.folder.display()))
            .with_help(Remedy::FetchModel(model.to_string()))
    }
}

/// The name of the model whose snapshot a path is or lies in, without its organisation: snapshots are named by commits,
/// and blobs by digests.
pub(super) fn model_of(path: &Path) -> Option<String> {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    let snapshots = parts.iter().rposition(|part| part == "snapshots")?;
    let (_, name) = parts.get(snapshots.checked_sub(1)?)?.strip_prefix("models--")?.split_once("--")?;
    let file = parts.get(snapshots + 2).map(|file| file.trim_end_matches(".gguf"));
    Some(file.unwrap_or(name).to_owned())
}

/// `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else in the user's cache folder.
fn folder_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name: &str| variable(name).map(PathBuf::from);
    given("HF_HUB_CACHE").or_else(|| given("HUGGINGFACE_HUB_CACHE")).or_else(|| {
        let home = given("HF_HOME").or_else(|| {
            let cache = given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")))?;
            Some(cache.join("huggingface"))
        })?;
        Some(home.join("hub"))
    })
}

/// The commit that a revision stands for: a file of `refs`, or a hash.
fn commit_of(repository: &Path, revision: &str) -> Result<Option<String>> {
    let reference = repository.join("refs").join(revision);
    let is_hash = |text: &str| text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !reference.is_file() {
        return Ok(is_hash(revision).then(|| revision.to_owned()));
    }
    let text = files::read_text(&reference, files::SETTINGS)
        .map_err(|e| CheckpointError::io(&reference, "read", &e))?;
    let commit = text.trim();
    if !is_hash(commit) {
        return Err(CheckpointError::new("holds no commit hash").in_file(&reference));
    }
    Ok(Some(commit.to_owned()))
}

/// The GGUF file of a quantisation: the one whose name has it as a word, whatever its case.
fn gguf_file(folder: &Path, quantization: &str) -> Result<PathBuf> {
    let io = |e: &std::io::Error| CheckpointError::io(folder, "read", e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| io(&e))? {
        names.push(entry.map_err(|e| io(&e))?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name.to_ascii_lowercase().ends_with(".gguf"));
    names.sort();
    let wanted = quantization.to_ascii_lowercase();
    let has_word = |name: &&String| {
        let name = name.to_ascii_lowercase();
        let stem = name.trim_end_matches(".gguf");
        stem == wanted || stem.split(['-', '.']).any(|word| word == wanted)
    };
    let matching: Vec<&String> = names.iter().filter(has_word).collect();
    match (&matching[..], &names[..]) {
        ([name], _) => Ok(folder.join(name)),
        ([], []) => Err(CheckpointError::new("holds no GGUF file").in_file(folder)),
        ([], _) => Err(CheckpointError::new(format!(
            "holds no GGUF file of {quantization}, only {}",
            names.join(", ")
        ))
        .in_file(folder)),
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
            Err(CheckpointError::new(format!("{quantization} is several GGUF files: {}", names.join(", ")))
                .in_file(folder)
                .with_help("join the parts with llama-gguf-split --merge, and give the file"))
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files that tests read")]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// A cache with one model, as huggingface_hub lays it out.
    fn cache() -> (tempfile::TempDir, HubCache) {
        let folder = tempfile::tempdir().unwrap();
        let repository = folder.path().join("models--org--tiny");
        let snapshot = repository.join("snapshots").join(COMMIT);
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(repository.join("refs/refs/pr")).unwrap();
        fs::write(repository.join("refs/main"), COMMIT).unwrap();
        fs::write(repository.join("refs/refs/pr/1"), format!("{COMMIT}\n")).unwrap();
        for name in [
            "tiny-Q4_K_M.gguf",
            "tiny-Q8_0.gguf",
            "big-F16-00001-of-00002.gguf",
            "big-F16-00002-of-00002.gguf",
        ] {
            fs::write(snapshot.join(name), "").unwrap();
        }
        let cache = HubCache::at(folder.path());
        (folder, cache)
    }

    #[test]
    fn names_have_an_organisation_and_perhaps_a_revision_or_a_quantisation() {
        let name: ModelName = "HuggingFaceTB/SmolLM2-135M@refs/pr/1:Q4_K_M".parse().unwrap();
        assert_eq!((name.org.as_str(), name.name.as_str()), ("HuggingFaceTB", "SmolLM2-135M"));
        assert_eq!(
            (name.revision.as_deref(), name.quantization.as_deref()),
            (Some("refs/pr/1"), Some("Q4_K_M"))
        );
        assert_eq!(name.to_string(), "HuggingFaceTB/SmolLM2-135M@refs/pr/1:Q4_K_M");
        for wrong in [
            "", "gpt2", "a/b/c", "../x", "a/..", "/a", "a/", "a/b@", "a/b:", "a/b@../x", "a/b@x/", "a--b/c",
            "a/b c",
        ] {
            assert!(wrong.parse::<ModelName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<(String, OsString)> =
                set.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
            folder_by(|name| set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(with(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/h")]), Some("/c".into()));
        assert_eq!(with(&[("HF_HOME", "/h"), ("HOME", "/u")]), Some("/h/hub".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/u")]), Some("/x/huggingface/hub".into()));
        assert_eq!(with(&[("HOME", "/u")]), Some("/u/.cache/huggingface/hub".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn revisions_lead_to_snapshots() {
        let (folder, cache) = cache();
        let expected = folder.path().join("models--org--tiny/snapshots").join(COMMIT);
        for name in ["org/tiny".to_owned(), "org/tiny@refs/pr/1".to_owned(), format!("org/tiny@{COMMIT}")] {
            let found = cache.find(&name.parse().unwrap()).unwrap();
            assert_eq!(found, Snapshot { path: expected.clone(), commit: COMMIT.to_owned() }, "{name}");
        }
    }

    #[test]
    fn a_snapshot_has_the_name_of_its_model() {
        let name = |path: &str| model_of(Path::new(path));
        assert_eq!(name("/c/models--org--tiny/snapshots/0123").as_deref(), Some("tiny"));
        assert_eq!(name("/c/models--org--tiny/snapshots/0123/tiny-Q8_0.gguf").as_deref(), Some("tiny-Q8_0"));
        assert_eq!(name("/c/datasets--org--tiny/snapshots/0123"), None);
        assert_eq!(name("snapshots/tiny"), None);
    }

    #[test]
    fn a_quantisation_names_one_file() {
        let (_folder, cache) = cache();
        let find = |name: &str| cache.find(&name.parse().unwrap());
        assert!(find("org/tiny:q4_k_m").unwrap().path.ends_with("tiny-Q4_K_M.gguf"));
        assert!(find("org/tiny:Q4_0").unwrap_err().to_string().contains("only big-F16-00001"));
        assert!(find("org/tiny:F16").unwrap_err().to_string().contains("several GGUF files"));
    }

    #[test]
    fn what_is_not_there_is_named_with_what_fetches_it() {
        use anemeter_base::advice::Advice as _;
        let (folder, cache) = cache();
        let other = cache.find(&"org/other".parse().unwrap()).unwrap_err();
        assert!(
            other.to_string().starts_with("org/other is no path here, and not in the Hugging Face cache"),
            "{other}"
        );
        assert_eq!(other.remedy(), Some(Remedy::FetchModel("org/other".to_owned())));
        let branch = cache.find(&"org/tiny@dev".parse().unwrap()).unwrap_err();
        assert!(branch.to_string().contains("without revision `dev`"), "{branch}");
        fs::write(folder.path().join("models--org--tiny/refs/main"), "../../x").unwrap();
        assert!(cache.find(&"org/tiny".parse().unwrap()).unwrap_err().to_string().contains("no commit hash"));
    }
}
