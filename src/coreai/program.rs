//! aicode programs: graphs of operations over values, as an `.aimodel` holds them.
//!
//! On disk attributes and types are numbered and shared (MLIR bytecode). Here they are trees; whoever writes a program
//! gives equal ones the same number. Weights are [`Resource`]s, whose bytes may be produced while they are written.

use std::borrow::Cow;
use std::sync::Arc;

use anemeter_kernels::tensor::Bytes;
use anemeter_mil::Payload;

/// The content of `main.mlirb`.
#[derive(Debug, Clone)]
pub struct Program {
    /// The dialect version that its operations need, as a date: 20260409.
    pub version: u32,
    /// All graphs: public ones are functions, private ones are called by `dataflow.invoke_v1`.
    pub graphs: Vec<Graph>,
}

/// `dataflow.graph_v1`.
#[derive(Debug, Clone)]
pub struct Graph {
    pub name: String,
    /// Its arguments; states are [`Type::Handle`]s.
    pub inputs: Vec<Port>,
    /// Its results; a state's is the last [`Type::Token`] of its handle, by the state's name.
    pub outputs: Vec<Port>,
    pub is_private: bool,
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
    pub name: String,
    pub ty: Type,
}

/// One block of operations. Values are numbered: arguments first, then results in the order of operations.
#[derive(Debug, Clone, Default)]
pub struct Region {
    pub arguments: Vec<Type>,
    pub ops: Vec<Op>,
}

/// A value of a region, which sees no values of regions around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// An operation.
#[derive(Debug, Clone)]
pub struct Op {
    /// Without the dialect: `primitive.add_v1`.
    pub name: Cow<'static, str>,
    /// In the alphabetical order of their names, as on disk. Optional ones may be missing.
    pub properties: Vec<Option<Attribute>>,
    pub operands: Vec<ValueId>,
    pub results: Vec<Type>,
    /// The decomposition of an operation that is no primitive, or what a reduction combines by.
    pub regions: Vec<Region>,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    Tensor {
        dims: Vec<Dim>,
        element: Scalar,
        constraints: Option<HwConstraints>,
    },
    /// A state, which is read and written in an order that tokens give.
    Handle(Box<Type>),
    Token,
    Scalar(Scalar),
    Function {
        inputs: Vec<Type>,
        outputs: Vec<Type>,
    },
    ParamSymbol,
    ParamType,
}

/// A dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dim {
    Fixed(u64),
    Dynamic,
}

/// How a tensor lies in memory, where the compiler must keep to it (`ax.hw_constraints`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HwConstraints {
    pub alignments: Vec<i64>,
    pub interleave: Vec<i64>,
    /// 1 is an IOSurface, 2 a Metal buffer, 3 the heap.
    pub allocation: u64,
}

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    String(String),
    /// The low `width` bits.
    Integer {
        width: u32,
        is_unsigned: bool,
        bits: u64,
    },
    Float {
        width: u32,
        bits: u64,
    },
    Type(Type),
    Array(Vec<Attribute>),
    /// Elements in the file itself: whole bytes each, also of narrower types (but `ui1`, which is packed).
    DenseElements {
        is_splat: bool,
        bytes: Vec<u8>,
    },
    /// Elements in the weight section: narrow types are packed, the first in the low bits.
    DenseResource(Resource),
    Opaque {
        name: String,
        items: Vec<Attribute>,
    },
    SymbolRef(Vec<String>),
    ParamConstant {
        value: Box<Attribute>,
        ty: Type,
    },
    Approximate(u64),
    ScatterMode(u64),
    Dictionary(Vec<Attribute>),
    Unit,
}

/// A blob of the weight section. Operations that hold clones of one share its bytes in the file.
#[derive(Debug, Clone)]
pub struct Resource(pub Arc<ResourceData>);

/// Where the bytes of a resource are.
#[derive(Debug)]
pub enum ResourceData {
    Bytes(Bytes),
    /// Produced while the file is written, more than once if asked.
    Stream(Arc<dyn Payload>),
}

impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
