//! The part of an Objective-C runtime that objc2 (with its feature `gnustep-1-7`) and block2 call.
//!
//! In GNU style a message is looked up and the caller calls what was found, so that no assembly is needed. Beside
//! running the program it keeps a [`census`]: live objects by class, blocks, and what a correct program never does.

pub mod census;

mod block;
mod class;
mod message;
mod object;
mod pool;
mod protocol;
mod root;
mod selector;

pub(crate) use protocol::declare as declare_protocol;
pub(crate) use root::register as register_root;
