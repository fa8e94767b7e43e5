//! The Core ML classes that the module uses, computing with anemeter's CPU runtime. Selectors and argument types are
//! those of Apple's headers, as their bindings have them.

mod array;
mod compile;
mod configuration;
mod description;
mod device;
mod features;
mod handler;
mod image;
mod model;
mod options;
mod plan;
mod program;
mod state;
mod structure;

/// Codes of `MLModelError`.
mod code {
    pub(super) const GENERIC: isize = 0;
    pub(super) const FEATURE_TYPE: isize = 1;
    pub(super) const IO: isize = 3;
}

/// Defines the classes.
pub(crate) fn register() {
    configuration::register();
    array::register();
    features::register();
    image::register();
    description::register();
    options::register();
    state::register();
    model::register();
    device::register();
    structure::register();
    plan::register();
}
