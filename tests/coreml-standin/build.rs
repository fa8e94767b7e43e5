//! objc2 asks the linker for `-lobjc` and `-lgnustep-base`. This crate is both, so two empty archives satisfy it.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for library in ["objc", "gnustep-base"] {
        fs::write(out.join(format!("lib{library}.a")), "!<arch>\n").expect("write an empty archive");
    }
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rerun-if-changed=build.rs");
}
