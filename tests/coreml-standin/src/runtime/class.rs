//! Classes: their place in memory, what they inherit, their methods and instance variables.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::iter::successors;
use std::ptr::{self, null, null_mut};
use std::sync::atomic::{AtomicIsize, AtomicPtr, Ordering::SeqCst};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::object::HEADER;
use super::protocol::Protocol;
use super::selector::Sel;

/// What a method is called as; its real type is in its encoding.
pub(super) type Imp = unsafe extern "C-unwind" fn();

/// A class, a metaclass or the class of blocks. Like every object it starts with its class.
#[repr(C)]
pub(crate) struct Class {
    isa: AtomicPtr<Class>,
    superclass: AtomicPtr<Class>,
    pub(super) name: &'static CStr,
    pub(super) kind: Kind,
    pub(super) live: AtomicIsize,
    members: RwLock<Members>,
}

/// What the instances of a class are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Objects that are counted.
    Objects,
    /// Classes, which live for ever.
    Classes,
    /// Blocks, which count themselves.
    Blocks,
}

struct Members {
    instance_size: usize,
    methods: Vec<&'static Method>,
    ivars: Vec<&'static Ivar>,
    protocols: Vec<&'static Protocol>,
}

/// A method of one class.
pub(super) struct Method {
    selector: Sel,
    pub(super) imp: Imp,
    types: CString,
}

/// An instance variable.
pub(super) struct Ivar {
    name: CString,
    offset: isize,
    types: CString,
}

// SAFETY: a selector points to a name that lives for ever and is never written.
unsafe impl Sync for Method {}

static REGISTERED: RwLock<BTreeMap<&'static CStr, &'static Class>> = RwLock::new(BTreeMap::new());

/// Storage for classes whose address objc2 compiles in as `_OBJC_CLASS_` and their name. They come to life when a
/// class of that name is defined.
macro_rules! named_classes {
    ($($name:ident)*) => {
        static NAMED: &[(&Class, &Class)] = &[$({
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            static META: Class = Class::new(NAME, Kind::Classes);
            #[unsafe(export_name = concat!("_OBJC_CLASS_", stringify!($name)))]
            static CLASS: Class = Class::new(NAME, Kind::Objects);
            (&CLASS, &META)
        }),*];
    };
}

named_classes! {
    NSObject
    NSArray NSData NSDictionary NSEnumerator NSError NSNumber NSProcessInfo NSSet NSString NSURL NSValue NSThread
    MLCPUComputeDevice MLComputePlan MLComputePlanCost MLComputePlanDeviceUsage MLDictionaryFeatureProvider
    MLFeatureDescription MLFeatureValue MLGPUComputeDevice MLModel MLModelConfiguration MLModelDescription
    MLModelStructure MLModelStructureProgram MLModelStructureProgramBlock MLModelStructureProgramFunction
    MLModelStructureProgramNamedValueType MLModelStructureProgramOperation MLMultiArray MLMultiArrayConstraint
    MLMultiArrayShapeConstraint MLNeuralEngineComputeDevice MLOptimizationHints MLPredictionOptions MLState
    MLStateConstraint
}

impl Class {
    pub(super) const fn new(name: &'static CStr, kind: Kind) -> Class {
        Class {
            isa: AtomicPtr::new(null_mut()),
            superclass: AtomicPtr::new(null_mut()),
            name,
            kind,
            live: AtomicIsize::new(0),
            members: RwLock::new(Members {
                instance_size: HEADER,
                methods: Vec::new(),
                ivars: Vec::new(),
                protocols: Vec::new(),
            }),
        }
    }

    pub(super) fn pointer(&self) -> *mut Class {
        ptr::from_ref(self).cast_mut()
    }

    pub(super) fn title(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// The class of the class, where its class methods are.
    pub(super) fn meta(&self) -> Option<&'static Class> {
        // SAFETY: it is null or a class, and classes live for ever.
        unsafe { self.isa.load(SeqCst).as_ref() }
    }

    fn superclass(&self) -> Option<&'static Class> {
        // SAFETY: as above.
        unsafe { self.superclass.load(SeqCst).as_ref() }
    }

    /// The class and all that it inherits from, itself first.
    pub(super) fn lineage(&'static self) -> impl Iterator<Item = &'static Class> {
        successors(Some(self), |class| class.superclass())
    }

    pub(super) fn method(&'static self, selector: Sel) -> Option<&'static Method> {
        self.lineage()
            .find_map(|class| class.read().methods.iter().copied().find(|method| method.selector == selector))
    }

    pub(super) fn conforms_to(&'static self, protocol: *const Protocol) -> bool {
        self.lineage().any(|class| class.read().protocols.iter().any(|known| ptr::eq(*known, protocol)))
    }

    pub(super) fn instance_size(&self) -> usize {
        self.read().instance_size
    }

    pub(super) fn add_method(&self, selector: Sel, imp: Imp, types: &CStr) -> bool {
        let mut members = self.write();
        let is_new = members.methods.iter().all(|method| method.selector != selector);
        if is_new {
            members.methods.push(Box::leak(Box::new(Method { selector, imp, types: types.to_owned() })));
        }
        is_new
    }

    fn read(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The class that every class inherits from, and its metaclass.
pub(super) fn root() -> (&'static Class, &'static Class) {
    NAMED[0]
}

/// Gives a class its metaclass and its place below another. The root metaclass inherits from the root class, so
/// that classes answer what every object answers.
pub(super) fn place(class: &'static Class, meta: &'static Class, above: Option<&'static Class>) {
    class.isa.store(meta.pointer(), SeqCst);
    meta.isa.store(root().1.pointer(), SeqCst);
    class.superclass.store(above.map_or(null_mut(), Class::pointer), SeqCst);
    let meta_above = above.and_then(Class::meta).unwrap_or(root().0);
    meta.superclass.store(meta_above.pointer(), SeqCst);
    if let Some(above) = above {
        let size = above.instance_size();
        class.write().instance_size = size;
    }
}

/// Makes a class known by its name.
pub(super) fn register(class: &'static Class) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).insert(class.name, class);
}

/// Every class that is known, by name.
pub(super) fn registered() -> Vec<&'static Class> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
}

fn find(name: &CStr) -> Option<&'static Class> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
}

fn address<T>(found: Option<&'static T>) -> *const T {
    found.map_or(null(), ptr::from_ref)
}

/// A C string of the caller.
fn text<'a>(pointer: *const c_char) -> &'a CStr {
    // SAFETY: every caller of the functions below passes C strings that outlive the call.
    unsafe { CStr::from_ptr(pointer) }
}

#[unsafe(no_mangle)]
extern "C" fn objc_allocateClassPair(
    above: Option<&'static Class>,
    name: *const c_char,
    _: usize,
) -> *mut Class {
    let name = text(name);
    if find(name).is_some() {
        return null_mut();
    }
    let (class, meta) = NAMED.iter().copied().find(|(class, _)| class.name == name).unwrap_or_else(|| {
        let name: &'static CStr = Box::leak(name.into());
        let new = |kind| &*Box::leak(Box::new(Class::new(name, kind)));
        (new(Kind::Objects), new(Kind::Classes))
    });
    place(class, meta, above);
    class.pointer()
}

#[unsafe(no_mangle)]
extern "C" fn objc_registerClassPair(class: &'static Class) {
    register(class);
}

#[unsafe(no_mangle)]
extern "C" fn objc_disposeClassPair(class: &'static Class) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).remove(class.name);
}

#[unsafe(no_mangle)]
extern "C" fn objc_getClass(name: *const c_char) -> *const Class {
    address(find(text(name)))
}

#[unsafe(no_mangle)]
extern "C" fn objc_lookUpClass(name: *const c_char) -> *const Class {
    address(find(text(name)))
}

#[unsafe(no_mangle)]
extern "C" fn class_getName(class: Option<&Class>) -> *const c_char {
    class.map_or(c"nil", |class| class.name).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn class_getSuperclass(class: Option<&Class>) -> *const Class {
    address(class.and_then(Class::superclass))
}

#[unsafe(no_mangle)]
extern "C" fn class_isMetaClass(class: Option<&Class>) -> u8 {
    u8::from(class.is_some_and(|class| class.kind == Kind::Classes))
}

#[unsafe(no_mangle)]
extern "C" fn class_getInstanceSize(class: &Class) -> usize {
    class.instance_size()
}

#[unsafe(no_mangle)]
extern "C" fn class_addIvar(
    class: &Class,
    name: *const c_char,
    size: usize,
    log2_alignment: u8,
    types: *const c_char,
) -> u8 {
    assert!(log2_alignment <= 4, "instances are aligned to 16 bytes");
    let mut members = class.write();
    let offset = members.instance_size.next_multiple_of(1 << log2_alignment);
    members.instance_size = offset + size;
    let ivar = Ivar { name: text(name).to_owned(), offset: offset as isize, types: text(types).to_owned() };
    members.ivars.push(Box::leak(Box::new(ivar)));
    1
}

#[unsafe(no_mangle)]
extern "C" fn class_getInstanceVariable(class: &'static Class, name: *const c_char) -> *const Ivar {
    let name = text(name);
    let own = |class: &Class| class.read().ivars.iter().copied().find(|ivar| ivar.name.as_c_str() == name);
    address(class.lineage().find_map(own))
}

#[unsafe(no_mangle)]
extern "C" fn ivar_getName(ivar: &Ivar) -> *const c_char {
    ivar.name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ivar_getOffset(ivar: &Ivar) -> isize {
    ivar.offset
}

#[unsafe(no_mangle)]
extern "C" fn ivar_getTypeEncoding(ivar: &Ivar) -> *const c_char {
    ivar.types.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn class_addMethod(class: &Class, selector: Sel, imp: Imp, types: *const c_char) -> u8 {
    u8::from(class.add_method(selector, imp, text(types)))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn class_getInstanceMethod(class: Option<&'static Class>, selector: Sel) -> *const Method {
    address(class.and_then(|class| class.method(selector)))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn class_getClassMethod(class: &'static Class, selector: Sel) -> *const Method {
    address(class.meta().and_then(|meta| meta.method(selector)))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn class_respondsToSelector(class: Option<&'static Class>, selector: Sel) -> u8 {
    u8::from(class.is_some_and(|class| class.method(selector).is_some()))
}

#[unsafe(no_mangle)]
extern "C" fn method_getName(method: &Method) -> Sel {
    method.selector
}

#[unsafe(no_mangle)]
extern "C" fn method_getTypeEncoding(method: &Method) -> *const c_char {
    method.types.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn method_getImplementation(method: &Method) -> Imp {
    method.imp
}

#[unsafe(no_mangle)]
extern "C" fn class_addProtocol(class: &'static Class, protocol: &'static Protocol) -> u8 {
    let is_new = !class.conforms_to(protocol);
    if is_new {
        class.write().protocols.push(protocol);
    }
    u8::from(is_new)
}

#[unsafe(no_mangle)]
extern "C" fn class_conformsToProtocol(class: &'static Class, protocol: *const Protocol) -> u8 {
    u8::from(class.conforms_to(protocol))
}
