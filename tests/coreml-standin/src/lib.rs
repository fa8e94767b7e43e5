//! A stand-in for macOS: an Objective-C runtime, Foundation and Core ML in Rust, so that anemeter's Core ML module,
//! the very same code, is executed on Linux.
//!
//! Link this crate and the classes are there before `main`. [`census`] tells what lives and what went wrong;
//! [`fault`] makes Core ML fail on demand; [`witness`] tells what it was asked for. What this proves and what it does not is in `docs/coreml-testing.md`.

mod core_video;
mod coreml;
pub mod fault;
mod foundation;
mod instance;
mod runtime;
pub mod witness;

pub use runtime::census;

/// Makes the classes known. They must be there for the first message, so this comes before `main`.
extern "C" fn start() {
    runtime::register_root();
    runtime::declare_protocol(
        c"MLFeatureProvider",
        &[(c"featureNames", c"@16@0:8"), (c"featureValueForName:", c"@24@0:8@16")],
    );
    runtime::declare_protocol(c"MLComputeDeviceProtocol", &[]);
    runtime::declare_protocol(c"NSObject", &[]);
    foundation::register();
    core_video::register();
    coreml::register();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
