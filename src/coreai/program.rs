//! aicode programs: graphs of operations over values, as an `.aimodel` holds them.
//!
//! On disk attributes and types are numbered and shared (MLIR bytecode). Here they are trees; whoever writes a program
//! gives equal ones the same number. Weights are [`Resource`]s, whose bytes may be produced while they are written.

use std::borrow::Cow;
use std::sync::Arc;

use anemeter_kernels::tensor::Bytes;
use anemeter_mil::Payload;

/// The content of `main.mlirb`.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The dialect version that its operations need, as a date: 20260409.
    pub version: u32,
    /// All graphs: public ones are functions, private ones are called by `dataflow.invoke_v1`.
    pub graphs: Vec<Graph>,
}

/// `dataflow.graph_v1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// What it is called by.
    pub name: String,
    /// Its arguments; states are [`Type::Handle`]s.
    pub inputs: Vec<Port>,
    /// Its results; a state's is the last [`Type::Token`] of its handle, by the state's name.
    pub outputs: Vec<Port>,
    /// Whether only other graphs may call it.
    pub is_private: bool,
    /// Whether Apple's tools keep calls of it as calls.
    pub no_inline: bool,
    /// Whether Apple's tools keep it as a program of its own.
    pub externalize: bool,
    /// What a composite operation is called and which attributes it has.
    pub composite: Option<Attribute>,
    /// Declarations of symbolic parameters; empty in everything that was seen.
    pub params: Attribute,
    /// Arguments, operations, and last `dataflow.output_v1`.
    pub body: Region,
}

/// A named argument or result of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// Its name; empty for one without.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// One block of operations. Values are numbered: arguments first, then results in the order of operations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Region {
    /// The types of its arguments.
    pub arguments: Vec<Type>,
    /// Its operations, each after those whose results it uses.
    pub ops: Vec<Op>,
}

/// A value of a region, which sees no values of regions around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// An operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// Without the dialect: `primitive.add_v1`.
    pub name: Cow<'static, str>,
    /// In the alphabetical order of their names, as on disk. Optional ones may be missing.
    pub properties: Vec<Option<Attribute>>,
    /// The values that it takes.
    pub operands: Vec<ValueId>,
    /// The types of the values that it gives.
    pub results: Vec<Type>,
    /// The decomposition of an operation that is no primitive, or what a reduction combines by.
    pub regions: Vec<Region>,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// An array of numbers.
    Tensor {
        /// Its shape.
        dims: Vec<Dim>,
        /// The type of its elements.
        element: Scalar,
        /// How it lies in memory, if that is fixed.
        constraints: Option<HwConstraints>,
    },
    /// An array of which only some elements are stored, and a bit mask of where they belong; the others are zero
    /// (`sparse_tensor_encoding`).
    Sparse {
        /// Its shape.
        dims: Vec<Dim>,
        /// The type of its elements.
        element: Scalar,
        /// How many elements are stored.
        stored: u64,
    },
    /// A state, which is read and written in an order that tokens give.
    Handle(Box<Type>),
    /// A moment in the order of reads and writes.
    Token,
    /// A number that is no tensor.
    Scalar(Scalar),
    /// The type of a graph.
    Function {
        /// The types of its arguments.
        inputs: Vec<Type>,
        /// The types of its results.
        outputs: Vec<Type>,
    },
    /// The type of a reference to a graph.
    ParamSymbol,
    /// The type of a type.
    ParamType,
}

/// A dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Known when the program is written.
    Fixed(u64),
    /// Known when it runs.
    Dynamic,
}

/// How a tensor lies in memory, where the compiler must keep to it (`ax.hw_constraints`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HwConstraints {
    /// Bytes that the stride of each dimension is a multiple of.
    pub alignments: Vec<i64>,
    /// Elements of each dimension that lie together.
    pub interleave: Vec<i64>,
    /// 1 is an IOSurface, 2 a Metal buffer, 3 the heap.
    pub allocation: u64,
}

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the type of the same name")]
pub enum Scalar {
    Bool,
    F64,
    F32,
    F16,
    Bf16,
    F8E5M2,
    F8E4M3Fn,
    F8E8M0Fn,
    F4E2M1Fn,
    I64,
    I32,
    I16,
    I8,
    I4,
    I2,
    U64,
    U32,
    U16,
    U8,
    U6,
    U4,
    U3,
    U2,
    U1,
}

/// A property of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// Text.
    String(String),
    /// An integer of up to 64 bits.
    Integer {
        /// Its width in bits.
        width: u32,
        /// Whether it is unsigned.
        is_unsigned: bool,
        /// Its low `width` bits; the others are zero.
        bits: u64,
    },
    /// A float of up to 64 bits.
    Float {
        /// Its width in bits.
        width: u32,
        /// Its bits; those beyond `width` are zero.
        bits: u64,
    },
    /// A type.
    Type(Type),
    /// A list.
    Array(Vec<Attribute>),
    /// Elements in the program itself: whole bytes each, also of narrower types (but `ui1`, which is packed).
    DenseElements {
        /// Whether all elements are the one that is given.
        is_splat: bool,
        /// The elements, in little-endian order of bytes.
        bytes: Vec<u8>,
    },
    /// Elements in the weight section: narrow types are packed, the first in the low bits.
    DenseResource(Resource),
    /// A name with values.
    Opaque {
        /// The name.
        name: String,
        /// Its values.
        items: Vec<Attribute>,
    },
    /// The name of a graph, from the outermost namespace on.
    SymbolRef(Vec<String>),
    /// A value that stands for a parameter: the callee of `dataflow.invoke_v1`.
    ParamConstant {
        /// The value.
        value: Box<Attribute>,
        /// Its type.
        ty: Type,
    },
    /// How `primitive.gelu_v1` approximates.
    Approximate(u64),
    /// How `primitive.scatter_along_axis_v1` combines.
    ScatterMode(u64),
    /// Named values, each of them [`Attribute::Opaque`].
    Dictionary(Vec<Attribute>),
    /// Nothing but its presence.
    Unit,
}

/// A blob of the weight section. Operations that hold clones of one share its bytes in the file.
#[derive(Debug, Clone)]
pub struct Resource(pub Arc<ResourceData>);

/// Where the bytes of a resource are.
#[derive(Debug)]
pub enum ResourceData {
    /// In memory, or mapped from a file.
    Bytes(Bytes),
    /// Produced while the file is written, more than once if asked.
    Stream(Arc<dyn Payload>),
}

impl Resource {
    /// Its length in the file.
    pub fn byte_len(&self) -> u64 {
        match &*self.0 {
            ResourceData::Bytes(bytes) => bytes.len() as u64,
            ResourceData::Stream(payload) => payload.byte_len(),
        }
    }
}

/// Whether both are the same, not whether they hold the same.
impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
