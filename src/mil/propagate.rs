//! Types and constants carried through a function, operation by operation.
//!
//! Given the types of the inputs, every value gets the type its operation implies, and values that depend
//! only on constants (and on shapes) are computed. The verifier uses this with declared and enumerated
//! shapes, the CPU runtime with the concrete shapes of a prediction.

use super::agreement::{generalise, is_concrete, refine};
use super::arguments::{Arguments, Source};
use super::op::{
    ArgValue, Bindings, Call, Eval, KnownArguments, KnownValue, Numerics, OpDef, OpError, apply, decode_all,
};
use super::{Block, Function, Literal, Operation, Opset, TensorType, Type, ValueId, ops};
use anemeter_kernels::tensor::{Tensor, shape};

/// What is known of every value of a function.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The inferred type of each value, by its id.
    pub types: Vec<Type>,
    /// What is known of each value before a prediction, by its id.
    pub known: Vec<Option<KnownValue>>,
}

/// Something wrong with one operation of a function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("function `{function}`, {operation}: {message}")]
pub struct Finding {
    /// Name of the function.
    pub function: String,
    /// The operation's kind and first output, or another place in the function.
    pub operation: String,
    /// What is wrong with the operation.
    pub message: String,
}

/// Results of the largest size that are kept of a function, and bytes of them whatever that size is.
const MOST_FOLDED: usize = 64;
const MOST_FOLDED_BYTES: usize = 1 << 30;

/// How a propagation treats what it meets.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Results of constant operations are kept if they are no larger than this.
    pub fold_bytes: usize,
    /// Whether a declared size stands where the type rule cannot tell one.
    pub trust_declared: bool,
    /// The arithmetic of folded operations.
    pub numerics: Numerics,
}

/// Carries types and constants through a function from the types of its inputs.
pub fn propagate(function: &Function, inputs: &[(ValueId, Type)], options: Options) -> (Facts, Vec<Finding>) {
    let nothing = Facts {
        types: function.values.iter().map(|v| v.ty.clone()).collect(),
        known: vec![None; function.values.len()],
    };
    propagate_from(nothing, function, inputs, options)
}

/// The same, keeping the constants that earlier facts of the function already hold.
pub fn propagate_from(
    mut facts: Facts,
    function: &Function,
    inputs: &[(ValueId, Type)],
    options: Options,
) -> (Facts, Vec<Finding>) {
    for (id, ty) in inputs {
        facts.types[id.index()] = ty.clone();
    }
    let budget = 1000 + 64 * function.values.len();
    let foldable = options.fold_bytes.saturating_mul(MOST_FOLDED).min(MOST_FOLDED_BYTES);
    let mut walk = Walk { function, options, facts, findings: Vec::new(), budget, foldable };
    walk.block(&function.body);
    (walk.facts, walk.findings)
}

struct Walk<'f> {
    function: &'f Function,
    options: Options,
    facts: Facts,
    findings: Vec<Finding>,
    /// Operations that may still be visited: nested loops are walked several times each.
    budget: usize,
    /// Bytes of results that may still be kept.
    foldable: usize,
}

impl Walk<'_> {
    fn block(&mut self, block: &Block) {
        for op in &block.operations {
            let result = match self.budget.checked_sub(1) {
                Some(left) => {
                    self.budget = left;
                    self.operation(op)
                }
                None => Err(vec!["loops are nested too deeply to be typed".to_owned()]),
            };
            if let Err(messages) = result {
                let operation = place(self.function, op);
                self.findings.extend(messages.into_iter().map(|message| Finding {
                    function: self.function.name.clone(),
                    operation: operation.clone(),
                    message,
                }));
            }
        }
    }

    fn operation(&mut self, op: &Operation) -> Result<(), Vec<String>> {
        if !op.outputs.is_empty() && op.outputs.iter().all(|id| self.facts.known[id.index()].is_some()) {
            return Ok(());
        }
        if op.kind == "const" {
            return self.constant(op).map_err(|message| vec![message]);
        }
        let opset = self.function.opset;
        let def = ops::find(&op.kind, opset).ok_or_else(|| vec![unknown_operation(&op.kind, opset)])?;
        let (arguments, problems) = Arguments::resolve(op, def);
        if !problems.is_empty() {
            return Err(problems);
        }
        let blocks = self.nested(op, def, &arguments);
        let (types, known) = self.results(op, def, &arguments, &blocks).map_err(|e| vec![e.to_string()])?;
        let folded = known.iter().flatten().map(|value| match value {
            KnownValue::Tensor(tensor) => tensor.bytes().len(),
            KnownValue::Packed(_) => 0,
        });
        self.foldable = self.foldable.saturating_sub(folded.sum());
        for ((&id, ty), value) in op.outputs.iter().zip(types).zip(known) {
            let refined = refine(&ty, &self.function.value(id).ty);
            let trusted = self.options.trust_declared || !is_concrete(&refined);
            self.facts.types[id.index()] = if trusted { refined } else { ty };
            self.facts.known[id.index()] = value;
        }
        Ok(())
    }

    fn constant(&mut self, op: &Operation) -> Result<(), String> {
        let literal = op.attribute("val").ok_or("a constant without `val`")?;
        let [output] = op.outputs[..] else {
            return Err(format!("a constant defines one value, not {}", op.outputs.len()));
        };
        self.facts.types[output.index()] = literal.ty.clone();
        self.facts.known[output.index()] = literal.tensor().map(KnownValue::Tensor);
        Ok(())
    }

    /// Walks nested blocks and returns the types each yields.
    fn nested(&mut self, op: &Operation, def: &OpDef, arguments: &Arguments<'_>) -> Vec<Vec<Type>> {
        match &op.blocks[..] {
            [condition, body] if op.kind == "while_loop" => {
                self.loop_to_fixed_point(condition, body, def, arguments);
            }
            blocks => blocks.iter().for_each(|block| self.block(block)),
        }
        let yielded =
            |block: &Block| block.outputs.iter().map(|id| self.facts.types[id.index()].clone()).collect();
        op.blocks.iter().map(yielded).collect()
    }

    /// Generalises the types of loop variables until the body keeps them.
    fn loop_to_fixed_point(
        &mut self,
        condition: &Block,
        body: &Block,
        def: &OpDef,
        arguments: &Arguments<'_>,
    ) {
        let Some(param) = def.params.iter().position(|p| p.name == "loop_vars") else { return };
        let mut types: Vec<Type> = arguments.of(param).iter().map(|s| self.type_of(s)).collect();
        let findings_before = self.findings.len();
        loop {
            for block in [condition, body] {
                for (id, ty) in block.inputs.iter().zip(&types) {
                    self.facts.types[id.index()] = ty.clone();
                }
            }
            self.findings.truncate(findings_before);
            self.forget(condition);
            self.forget(body);
            self.block(body);
            let merged: Vec<Type> = types
                .iter()
                .zip(&body.outputs)
                .map(|(ty, id)| generalise(ty, &self.facts.types[id.index()]))
                .collect();
            if merged == types || self.budget == 0 {
                return self.block(condition);
            }
            types = merged;
        }
    }

    /// Drops constants that were derived from the types of an earlier round.
    fn forget(&mut self, block: &Block) {
        for op in &block.operations {
            op.outputs.iter().for_each(|id| self.facts.known[id.index()] = None);
            op.blocks.iter().for_each(|block| self.forget(block));
        }
    }

    fn type_of(&self, source: &Source<'_>) -> Type {
        match source {
            Source::Value(id) => self.facts.types[id.index()].clone(),
            Source::Literal(literal) => literal.ty.clone(),
        }
    }

    fn results(
        &self,
        op: &Operation,
        def: &'static OpDef,
        arguments: &Arguments<'_>,
        blocks: &[Vec<Type>],
    ) -> Result<(Vec<Type>, Vec<Option<KnownValue>>), OpError> {
        let view = FactBindings::new(arguments, &self.facts, blocks);
        let call = Call::new(def, self.function.opset, op.outputs.len(), &view);
        check_types(def, &view)?;
        let types = (def.infer)(&call)?;
        if types.len() != op.outputs.len() {
            refuse!("gives {} values, {} are declared", types.len(), op.outputs.len());
        }
        let known = match def.eval {
            _ if def.name == "shape" => vec![shape_constant(call.ty("x")?, &types)?],
            Eval::Constexpr(decoder) if view.all_known() => {
                decoder(&call)?.into_iter().map(|weight| Some(KnownValue::Packed(weight))).collect()
            }
            Eval::Kernel(_) if view.all_known() && self.is_small(&types) => {
                self.fold(def, &view, types.len())?.into_iter().map(|t| Some(KnownValue::Tensor(t))).collect()
            }
            _ => vec![None; types.len()],
        };
        Ok((types, known))
    }

    fn is_small(&self, types: &[Type]) -> bool {
        types.iter().all(|ty| {
            ty.tensor()
                .and_then(byte_len)
                .is_some_and(|bytes| bytes <= self.options.fold_bytes.min(self.foldable))
        })
    }

    fn fold(
        &self,
        def: &'static OpDef,
        view: &FactBindings<'_>,
        outputs: usize,
    ) -> Result<Vec<Tensor>, OpError> {
        let mut arguments = KnownArguments::new(def);
        for (param, spec) in def.params.iter().enumerate() {
            for index in 0..view.count(param) {
                match view.value(param, index) {
                    Some(ArgValue::Packed(weight)) if spec.packed => arguments.bind(param, weight.clone()),
                    Some(ArgValue::Packed(weight)) => arguments.bind(param, decode_all(&**weight)?),
                    Some(ArgValue::Shared(tensor)) => arguments.bind(param, tensor.clone()),
                    Some(ArgValue::View(view)) => arguments.bind(param, view.to_tensor()),
                    None => refuse!("`{}` is not known", spec.name),
                }
            }
        }
        apply(def, self.function.opset, self.options.numerics, &arguments, outputs)
    }
}

/// Arguments seen through the facts so far.
pub(super) struct FactBindings<'a> {
    arguments: &'a Arguments<'a>,
    facts: &'a Facts,
    literals: Vec<Vec<Option<Tensor>>>,
    blocks: &'a [Vec<Type>],
}

impl<'a> FactBindings<'a> {
    pub(super) fn new(
        arguments: &'a Arguments<'a>,
        facts: &'a Facts,
        blocks: &'a [Vec<Type>],
    ) -> FactBindings<'a> {
        let tensor = |source: &Source<'_>| match source {
            Source::Literal(literal) => literal.tensor(),
            Source::Value(_) => None,
        };
        let literals = arguments.iter().map(|(_, sources)| sources.iter().map(tensor).collect()).collect();
        FactBindings { arguments, facts, literals, blocks }
    }

    fn all_known(&self) -> bool {
        self.arguments
            .iter()
            .all(|(param, sources)| (0..sources.len()).all(|i| self.value(param, i).is_some()))
    }
}

impl Bindings for FactBindings<'_> {
    fn count(&self, param: usize) -> usize {
        self.arguments.of(param).len()
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        match &self.arguments.of(param)[index] {
            Source::Value(id) => &self.facts.types[id.index()],
            Source::Literal(literal) => &literal.ty,
        }
    }

    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
        match &self.arguments.of(param)[index] {
            Source::Value(id) => match self.facts.known[id.index()].as_ref()? {
                KnownValue::Tensor(tensor) => Some(ArgValue::Shared(tensor)),
                KnownValue::Packed(weight) => Some(ArgValue::Packed(weight)),
            },
            Source::Literal(_) => self.literals[param][index].as_ref().map(ArgValue::Shared),
        }
    }

    fn block_outputs(&self, block: usize) -> Option<Vec<Type>> {
        self.blocks.get(block).cloned()
    }
}

/// Data types against the parameters' domains and groups. Constants of another float type than their group are
/// converted by Core ML, and coremltools writes such.
pub(super) fn check_types(def: &OpDef, bindings: &dyn Bindings) -> Result<(), OpError> {
    let mut groups: Vec<(char, &str, anemeter_kernels::tensor::DType)> = Vec::new();
    for (index, param) in def.params.iter().enumerate() {
        for i in 0..bindings.count(index) {
            let Some(ty) = bindings.ty(index, i).tensor() else { continue };
            if !param.dtypes.contains(&ty.dtype) {
                let allowed: Vec<_> = param.dtypes.iter().map(|d| d.name()).collect();
                refuse!(
                    "`{}` is {}, which {} since {} does not take; it takes {}",
                    param.name,
                    ty.dtype,
                    def.name,
                    def.since,
                    allowed.join(", ")
                );
            }
            let Some(group) = param.group else { continue };
            let is_converted = param.constant && ty.dtype.is_float();
            match groups.iter().find(|g| g.0 == group) {
                Some(&(_, other, dtype)) if dtype != ty.dtype && !(is_converted && dtype.is_float()) => {
                    refuse!(
                        "`{}` is {} and `{other}` is {dtype}; they must be the same",
                        param.name,
                        ty.dtype
                    );
                }
                Some(_) => {}
                None => groups.push((group, param.name, ty.dtype)),
            }
        }
    }
    Ok(())
}

/// The result of `shape` on a tensor whose sizes are known, whatever its elements.
fn shape_constant(x: &TensorType, types: &[Type]) -> Result<Option<KnownValue>, OpError> {
    let (Some(dims), Some(ty)) = (x.concrete(), types.first().and_then(Type::tensor)) else {
        return Ok(None);
    };
    let sizes: Vec<f32> = dims.iter().map(|&d| d as f32).collect();
    let exact = dims.iter().all(|&d| d < 1 << 24);
    let tensor = anemeter_kernels::convert::from_f32(ty.dtype, &[dims.len()], &sizes)?;
    Ok(exact.then_some(KnownValue::Tensor(tensor)))
}

/// Where an operation is, for people: its kind and the first value it defines.
pub fn place(function: &Function, op: &Operation) -> String {
    match op.outputs.first() {
        Some(&id) => format!("`{}` = {}", function.value(id).name, op.kind),
        None => op.kind.clone(),
    }
}

fn unknown_operation(kind: &str, opset: Opset) -> String {
    let since = ops::all().filter(|def| def.name == kind).map(|def| def.since).min();
    match since {
        Some(since) => format!("operation {kind} exists since {since}, the function is {opset}"),
        None => format!("unknown operation {kind}"),
    }
}

fn byte_len(ty: &TensorType) -> Option<usize> {
    ty.dtype.byte_len(shape::element_count(&ty.concrete()?)?)
}

/// A constant's bytes against its type.
pub(super) fn literal_fits(literal: &Literal) -> bool {
    use super::LiteralData::{Blob, Entries, Immediate, Items, Stream, Strings};
    let elements = |ty: &TensorType| shape::element_count(&ty.concrete()?);
    match (&literal.data, &literal.ty) {
        (Immediate(bytes) | Blob(bytes), Type::Tensor(ty)) => byte_len(ty) == Some(bytes.len()),
        (Stream(payload), Type::Tensor(ty)) => byte_len(ty).is_some_and(|n| n as u64 == payload.byte_len()),
        (Strings(strings), Type::Tensor(ty)) => elements(ty) == Some(strings.len()),
        (Items(_), Type::List(..) | Type::Tuple(_)) | (Entries(_), Type::Dictionary(..)) => true,
        _ => false,
    }
}
