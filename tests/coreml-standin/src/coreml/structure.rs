//! `MLModelStructure` and all that is in it: functions, blocks, operations.

use std::sync::Arc;

use anemeter::mil::{self, ValueId};
use objc2::rc::Retained;
use objc2::runtime::NSObject;
use objc2::{ClassType, DefinedClass, define_class};
use objc2_core_ml::{
    MLModelStructure, MLModelStructureProgram, MLModelStructureProgramBlock, MLModelStructureProgramFunction,
    MLModelStructureProgramNamedValueType, MLModelStructureProgramOperation,
};
use objc2_foundation::{NSArray, NSDictionary, NSString};

use crate::instance::{behind, make_public};

/// A program as far as its structure tells it.
pub(super) struct Program {
    functions: Vec<(String, Arc<Function>)>,
}

struct Function {
    inputs: Vec<String>,
    block: Arc<Block>,
}

struct Block {
    inputs: Vec<String>,
    outputs: Vec<String>,
    operations: Vec<Arc<Operation>>,
}

/// An operation.
pub(super) struct Operation {
    pub(super) kind: String,
    outputs: Vec<String>,
    blocks: Vec<Arc<Block>>,
    /// Share of the function's cost.
    pub(super) weight: f64,
}

impl Program {
    pub(super) fn new(program: &mil::Program) -> Program {
        let function = |function: &mil::Function| {
            let total = work(&function.body).max(1.0);
            let made = Function {
                inputs: names(function, &function.inputs),
                block: Arc::new(block(function, &function.body, total)),
            };
            (function.name.clone(), Arc::new(made))
        };
        Program { functions: program.functions.iter().map(function).collect() }
    }
}

fn names(function: &mil::Function, values: &[ValueId]) -> Vec<String> {
    values.iter().map(|&value| function.value(value).name.clone()).collect()
}

fn block(function: &mil::Function, source: &mil::Block, total: f64) -> Block {
    let operation = |source: &mil::Operation| {
        Arc::new(Operation {
            kind: source.kind.clone(),
            outputs: names(function, &source.outputs),
            blocks: source.blocks.iter().map(|nested| Arc::new(block(function, nested, total))).collect(),
            weight: effort(&source.kind) / total,
        })
    };
    Block {
        inputs: names(function, &source.inputs),
        outputs: names(function, &source.outputs),
        operations: source.operations.iter().map(operation).collect(),
    }
}

/// Whether an operation is a constant, for which a plan says nothing.
pub(super) fn is_constant(kind: &str) -> bool {
    kind == "const" || kind.starts_with("constexpr_")
}

/// What an operation costs beside others.
fn effort(kind: &str) -> f64 {
    match kind {
        kind if is_constant(kind) => 0.0,
        "conv" | "linear" | "matmul" => 8.0,
        _ => 1.0,
    }
}

fn work(block: &mil::Block) -> f64 {
    let own =
        |operation: &mil::Operation| effort(&operation.kind) + operation.blocks.iter().map(work).sum::<f64>();
    block.operations.iter().map(own).sum()
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructure"]
    #[ivars = Arc<Program>]
    struct StructureObject;

    impl StructureObject {
        #[unsafe(method_id(program))]
        fn program(&self) -> Option<Retained<MLModelStructureProgram>> {
            Some(make_public::<ProgramObject, _>(Arc::clone(self.ivars())))
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgram"]
    #[ivars = Arc<Program>]
    struct ProgramObject;

    impl ProgramObject {
        #[unsafe(method_id(functions))]
        fn functions(&self) -> Retained<NSDictionary<NSString, MLModelStructureProgramFunction>> {
            let functions = &self.ivars().functions;
            let names: Vec<_> = functions.iter().map(|(name, _)| NSString::from_str(name)).collect();
            let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
            let object = |(_, function): &(_, Arc<Function>)| make_public::<FunctionObject, _>(Arc::clone(function));
            NSDictionary::from_retained_objects(&names, &functions.iter().map(object).collect::<Vec<_>>())
        }
    }
);

type Names = NSArray<MLModelStructureProgramNamedValueType>;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramFunction"]
    #[ivars = Arc<Function>]
    struct FunctionObject;

    impl FunctionObject {
        #[unsafe(method_id(inputs))]
        fn inputs(&self) -> Retained<Names> {
            named(&self.ivars().inputs)
        }

        #[unsafe(method_id(block))]
        fn block(&self) -> Retained<MLModelStructureProgramBlock> {
            make_public::<BlockObject, _>(Arc::clone(&self.ivars().block))
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramBlock"]
    #[ivars = Arc<Block>]
    struct BlockObject;

    impl BlockObject {
        #[unsafe(method_id(inputs))]
        fn inputs(&self) -> Retained<Names> {
            named(&self.ivars().inputs)
        }

        #[unsafe(method_id(outputNames))]
        fn outputs(&self) -> Retained<NSArray<NSString>> {
            let names: Vec<_> = self.ivars().outputs.iter().map(|name| NSString::from_str(name)).collect();
            NSArray::from_retained_slice(&names)
        }

        #[unsafe(method_id(operations))]
        fn operations(&self) -> Retained<NSArray<MLModelStructureProgramOperation>> {
            let object = |operation: &Arc<Operation>| make_public::<OperationObject, _>(Arc::clone(operation));
            NSArray::from_retained_slice(&self.ivars().operations.iter().map(object).collect::<Vec<_>>())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramOperation"]
    #[ivars = Arc<Operation>]
    struct OperationObject;

    impl OperationObject {
        /// With the opset in front, as Core ML names operators.
        #[unsafe(method_id(operatorName))]
        fn operator(&self) -> Retained<NSString> {
            NSString::from_str(&format!("ios18.{}", self.ivars().kind))
        }

        #[unsafe(method_id(outputs))]
        fn outputs(&self) -> Retained<Names> {
            named(&self.ivars().outputs)
        }

        #[unsafe(method_id(blocks))]
        fn blocks(&self) -> Retained<NSArray<MLModelStructureProgramBlock>> {
            let object = |block: &Arc<Block>| make_public::<BlockObject, _>(Arc::clone(block));
            NSArray::from_retained_slice(&self.ivars().blocks.iter().map(object).collect::<Vec<_>>())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramNamedValueType"]
    #[ivars = String]
    struct NameObject;

    impl NameObject {
        #[unsafe(method_id(name))]
        fn name(&self) -> Retained<NSString> {
            NSString::from_str(self.ivars())
        }
    }
);

fn named(names: &[String]) -> Retained<Names> {
    let objects: Vec<_> = names.iter().map(|name| make_public::<NameObject, _>(name.clone())).collect();
    NSArray::from_retained_slice(&objects)
}

/// The structure of a program.
pub(super) fn of(program: &Arc<Program>) -> Retained<MLModelStructure> {
    make_public::<StructureObject, _>(Arc::clone(program))
}

/// The operation behind an object of a structure.
pub(super) fn operation(object: &MLModelStructureProgramOperation) -> &Operation {
    behind::<OperationObject>(object).ivars()
}

pub(super) fn register() {
    StructureObject::class();
    ProgramObject::class();
    FunctionObject::class();
    BlockObject::class();
    OperationObject::class();
    NameObject::class();
}
