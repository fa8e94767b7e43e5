//! Memory of this process, as the kernel of macOS accounts for it. An unsafe island: one call of the kernel.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};

use super::ProcessMemory;

const TASK_VM_INFO: c_uint = 22;
/// More words than any version of `task_vm_info` has; the kernel fills in what it knows.
const WORDS: usize = 128;

unsafe extern "C" {
    static mach_task_self_: c_uint;

    fn task_info(task: c_uint, flavor: c_uint, info: *mut c_uint, count: *mut c_uint) -> c_int;
}

/// Memory of this process; `None` if the kernel does not tell.
pub(super) fn process_memory() -> Option<ProcessMemory> {
    let mut info = [0 as c_uint; WORDS];
    let mut count = WORDS as c_uint;
    // SAFETY: the kernel writes at most `count` words into `info`, which has so many, and says how many it wrote; the task is
    // this process, whose port the system keeps in `mach_task_self_`.
    let status = unsafe { task_info(mach_task_self_, TASK_VM_INFO, info.as_mut_ptr(), &raw mut count) };
    ProcessMemory::of_task_vm_info(info.get(..count as usize).filter(|_| status == 0)?)
}
