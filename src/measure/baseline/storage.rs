//! Where documents are kept: named bytes that are created or replaced whole, each only if nobody was faster.

/// Which content a document had when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The tag of an object store, or a digest of the content.
    pub tag: Option<String>,
    /// The version of an object store that keeps several.
    pub version: Option<String>,
}

/// A document as it was read.
#[derive(Debug, Clone)]
pub struct StoredObject {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Which content that is.
    pub version: Version,
}

/// Why something could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct StorageError {
    /// The file or object.
    pub at: String,
    /// What happened.
    pub problem: String,
}

/// A place for documents. Names are relative, plain and separated by `/`.
pub trait Storage: Send + Sync {
    /// A document's place in full, for messages.
    fn place(&self, name: &str) -> String;

    /// Reads a document; none if there is none of that name.
    fn read(&self, name: &str) -> Result<Option<StoredObject>, StorageError>;

    /// Creates a document. False if there is one of that name already, which stays as it is.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, StorageError>;

    /// Replaces a document. False if its content is not `version` any more; then it stays as it is.
    fn replace(&self, name: &str, bytes: &[u8], version: &Version) -> Result<bool, StorageError>;

    /// All names that end with `.json`, in order.
    fn names(&self) -> Result<Vec<String>, StorageError>;
}
