//! `NSURL`, of files only.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_foundation::{NSString, NSURL};

use crate::instance::make;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSURL"]
    #[ivars = PathBuf]
    struct Url;

    impl Url {
        #[unsafe(method_id(initFileURLWithFileSystemRepresentation:isDirectory:relativeToURL:))]
        fn init(
            this: Allocated<Self>,
            path: NonNull<c_char>,
            _is_directory: bool,
            base: Option<&NSURL>,
        ) -> Retained<Self> {
            assert!(base.is_none(), "URLs here are absolute");
            // SAFETY: the caller passes a C string.
            let path = unsafe { CStr::from_ptr(path.as_ptr()) };
            let this = this.set_ivars(absolute(Path::new(OsStr::from_bytes(path.to_bytes()))));
            // SAFETY: `init` of the root class takes nothing and returns the object.
            unsafe { msg_send![super(this), init] }
        }

        #[unsafe(method_id(fileURLWithPath:))]
        fn of_path(path: &NSString) -> Retained<Self> {
            make(absolute(Path::new(&path.to_string())))
        }

        #[unsafe(method_id(fileURLWithPath:isDirectory:))]
        fn of_path_or_folder(path: &NSString, _is_directory: bool) -> Retained<Self> {
            make(absolute(Path::new(&path.to_string())))
        }

        #[unsafe(method_id(path))]
        fn path(&self) -> Option<Retained<NSString>> {
            self.ivars().to_str().map(NSString::from_str)
        }

        #[unsafe(method_id(absoluteString))]
        fn text(&self) -> Option<Retained<NSString>> {
            Some(NSString::from_str(&format!("file://{}", self.ivars().display())))
        }

        #[unsafe(method(isFileURL))]
        fn is_file(&self) -> bool {
            true
        }

        #[unsafe(method(getFileSystemRepresentation:maxLength:))]
        fn copy_to(&self, out: NonNull<c_char>, room: usize) -> bool {
            let path = CString::new(self.ivars().clone().into_os_string().into_vec()).unwrap_or_default();
            let bytes = path.as_bytes_with_nul();
            let fits = bytes.len() <= room;
            if fits {
                // SAFETY: the caller has that much room.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), out.as_ptr().cast(), bytes.len()) };
            }
            fits
        }

        #[unsafe(method(isEqual:))]
        fn equals(&self, other: Option<&AnyObject>) -> bool {
            other.and_then(|other| other.downcast_ref::<Url>()).is_some_and(|url| self.ivars() == url.ivars())
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

pub(super) fn register() {
    Url::class();
}
