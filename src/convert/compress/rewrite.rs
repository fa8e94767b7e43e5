//! The pass over a model: constants that are weights become operations that give them back.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::Result;
use super::encoder::{WeightEncoder, scheme};
use super::encoding::operations;
use super::layout::Layout;
use super::log::{Log, TensorLog};
use super::plan::{Candidate, Plan};
use super::precision::Precision;
use super::solution::Solutions;
use super::stored::StoredWeight;
use super::weight::{Identity, Weight};
use anemeter_mil::op::WeightAxes;
use anemeter_mil::{
    Binding, Block, Function, Literal, LiteralData, Model, Operation, Opset, Payload, TensorType, Type,
    ValueId, ops,
};

/// What is being compressed; the work is done while the model is written.
#[derive(Default)]
pub struct Compression {
    entries: Vec<Entry>,
    /// The pieces of each encoding, which several constants may share.
    encoders: BTreeMap<Key, Vec<Arc<dyn Payload>>>,
    unmatched: Vec<String>,
    raised: Option<Raised>,
}

/// A program whose opset was too old for compressed weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// Its opset before.
    pub from: Opset,
    /// Its opset now.
    pub to: Opset,
}

/// The first opset with operations that give compressed weights back.
const FIRST: Opset = Opset::Ios16;

/// A weight in the log.
enum Entry {
    Compressed(Arc<WeightEncoder>),
    Kept(Weight),
    Stored(StoredWeight),
}

/// What weights have in common that are encoded alike.
type Key = (Identity, String, [usize; 2], Option<usize>, bool);

/// Replaces the weights of a model by what the plan says. Weights that several functions or operations share
/// are encoded once and stay shared. A program of ios15 is raised to ios16 if it gets compressed weights, as coremltools does.
pub fn apply(model: Model, plan: &Plan) -> Result<(Model, Compression)> {
    apply_solved(model, plan, &Solutions::default())
}

/// The same; weights whose codes were chosen by data get those.
pub fn apply_solved(mut model: Model, plan: &Plan, solutions: &Solutions) -> Result<(Model, Compression)> {
    let mut compression = Compression::default();
    let uses: Vec<Uses> = model.program.functions.iter().map(Uses::of).collect();
    let mut looked_up = BTreeSet::new();
    for (function, uses) in model.program.functions.iter().zip(&uses) {
        collect_looked_up(function, &function.body, uses, &mut looked_up);
    }
    let (seen, stored, matched) = Default::default();
    let mut pass = Pass { plan, solutions, looked_up, compression: &mut compression, seen, stored, matched };
    for (function, uses) in model.program.functions.iter_mut().zip(&uses) {
        let mut body = std::mem::take(&mut function.body);
        pass.stored.clear();
        pass.block(function, &mut body, uses)?;
        function.body = body;
    }
    let matched = pass.matched;
    if let Some(Raised { to, .. }) = compression.raised {
        model.spec_version = model.spec_version.max(to.spec_version());
    }
    let is_unmatched = |(index, _): &(usize, &super::Rule)| !matched.contains(index);
    compression.unmatched =
        plan.rules.iter().enumerate().filter(is_unmatched).map(|(_, rule)| rule.pattern.clone()).collect();
    Ok((model, compression))
}

impl Compression {
    /// Patterns of rules that decided on no weight.
    pub fn unmatched_rules(&self) -> &[String] {
        &self.unmatched
    }

    /// How the opset was raised, if it had to be.
    pub fn raised(&self) -> Option<Raised> {
        self.raised
    }

    /// What was done. Weights that have not been written yet are encoded for it.
    pub fn log(&self) -> io::Result<Log> {
        let mut log = Log::default();
        for entry in &self.entries {
            match entry {
                Entry::Kept(weight) => {
                    let bytes = weight.byte_len();
                    log.push(tensor_log(weight, weight.dtype.to_string(), bytes, None, 1.0), false);
                }
                Entry::Stored(weight) => log.push(weight.log(), false),
                Entry::Compressed(encoder) => {
                    let loss = encoder.tables()?.loss;
                    let precision = encoder.form();
                    let after = encoder.byte_len();
                    let log_entry = tensor_log(&encoder.weight, precision, after, loss.snr(), loss.cosine());
                    let weighted = encoder.scheme.is_solved();
                    log.push(TensorLog { weighted, ..log_entry }, true);
                }
            }
        }
        Ok(log)
    }
}

fn tensor_log(weight: &Weight, precision: String, bytes: u64, snr_db: Option<f64>, cosine: f64) -> TensorLog {
    let elements = weight.layout.elements().max(1);
    TensorLog {
        name: weight.name.clone(),
        shape: weight.layout.shape.to_vec(),
        precision,
        bits: bytes as f64 * 8.0 / elements as f64,
        bytes_before: weight.byte_len(),
        bytes_after: bytes,
        snr_db,
        cosine,
        weighted: false,
    }
}

/// Whether a weight has channels of one input each, and a window over it.
fn is_depthwise(layout: &Layout) -> bool {
    let window: usize = layout.shape.iter().skip(2).product();
    layout.shape.len() > 2 && layout.shape[layout.input] == 1 && window > 1
}

/// How a constant is used as a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    channel: usize,
    input: usize,
    is_look_up: bool,
}

/// How the values of a function are used; nothing for one that is used other than as a weight.
struct Uses(BTreeMap<ValueId, Option<Use>>);

type Constants<'f> = BTreeMap<ValueId, &'f Literal>;

impl Uses {
    fn of(function: &Function) -> Uses {
        let mut uses = Uses(BTreeMap::new());
        uses.block(function, &function.body, &mut Constants::new());
        uses
    }

    fn block<'f>(&mut self, function: &Function, block: &'f Block, constants: &mut Constants<'f>) {
        for op in &block.operations {
            if let (true, [id], Some(literal)) = (op.kind == "const", &op.outputs[..], op.attribute("val")) {
                constants.insert(*id, literal);
            }
            for argument in &op.inputs {
                for binding in &argument.bindings {
                    if let Binding::Value(id) = binding {
                        let found = weight_use(function, op, &argument.parameter, *id, constants);
                        self.add(*id, found);
                    }
                }
            }
            op.blocks.iter().for_each(|block| self.block(function, block, constants));
        }
        block.outputs.iter().for_each(|&id| self.add(id, None));
    }

    /// The first use as a weight decides on the axes; any other use makes it none.
    fn add(&mut self, id: ValueId, found: Option<Use>) {
        let known = self.0.entry(id).or_insert(found);
        match (known.as_mut(), found) {
            (Some(known), Some(found)) => known.is_look_up |= found.is_look_up,
            _ => *known = None,
        }
    }
}

/// How an argument is used, if as a weight.
fn weight_use(
    function: &Function,
    op: &Operation,
    parameter: &str,
    id: ValueId,
    constants: &BTreeMap<ValueId, &Literal>,
) -> Option<Use> {
    let rank = match &function.value(id).ty {
        Type::Tensor(ty) => ty.rank().filter(|&rank| rank >= 2)?,
        _ => return None,
    };
    let is_set = |parameter: &str| {
        let [Binding::Value(id)] = op.input(parameter)?.bindings[..] else { return None };
        let tensor = constants.get(&id)?.tensor()?;
        tensor.bytes().first().map(|&flag| flag != 0)
    };
    let def = ops::find(&op.kind, function.opset)?;
    let axes = def.params.iter().find(|param| param.name == parameter)?.weight?;
    let (channel, input) = axes.output_input(rank, |parameter| is_set(parameter).unwrap_or(false))?;
    Some(Use { channel, input, is_look_up: axes == WeightAxes::Table })
}

/// The constant of an operation as a weight, and how it is used.
fn weight_of(function: &Function, op: &Operation, uses: &Uses) -> Option<(Weight, Use)> {
    let ([id], "const") = (&op.outputs[..], op.kind.as_str()) else { return None };
    let literal = op.attribute("val")?;
    let shape = literal.ty.tensor()?.concrete()?;
    let found = uses.0.get(id).copied().flatten()?;
    let layout = Layout { shape, channel: found.channel, input: found.input };
    let weight = Weight::of(&function.value(*id).name, literal, layout)?;
    (weight.layout.elements() > 0).then_some((weight, found))
}

fn collect_looked_up(function: &Function, block: &Block, uses: &Uses, out: &mut BTreeSet<Identity>) {
    for op in &block.operations {
        if let Some((weight, Use { is_look_up: true, .. })) = weight_of(function, op, uses) {
            out.insert(weight.identity());
        }
        op.blocks.iter().for_each(|block| collect_looked_up(function, block, uses, out));
    }
}

struct Pass<'p> {
    plan: &'p Plan,
    solutions: &'p Solutions,
    /// Weights of which rows are looked up somewhere.
    looked_up: BTreeSet<Identity>,
    compression: &'p mut Compression,
    /// Weights that are in the log.
    seen: BTreeSet<Identity>,
    /// Entries of the log for values of the current function that came compressed.
    stored: BTreeMap<ValueId, usize>,
    matched: BTreeSet<usize>,
}

impl Pass<'_> {
    fn block(&mut self, function: &mut Function, block: &mut Block, uses: &Uses) -> Result<()> {
        let mut replaced = Vec::with_capacity(block.operations.len());
        for mut op in std::mem::take(&mut block.operations) {
            let mut nested = std::mem::take(&mut op.blocks);
            nested.iter_mut().try_for_each(|block| self.block(function, block, uses))?;
            op.blocks = nested;
            match weight_of(function, &op, uses) {
                Some((weight, _)) => replaced.extend(self.constant(function, op, weight)?),
                None => {
                    self.keep(function, &op);
                    self.keep_stored(function, &op);
                    replaced.push(op);
                }
            }
        }
        block.operations = replaced;
        Ok(())
    }

    /// Notes a constant of the weight file that is no weight of any operation.
    fn keep(&mut self, function: &Function, op: &Operation) {
        let (Some(literal), [id], "const") = (op.attribute("val"), &op.outputs[..], op.kind.as_str()) else {
            return;
        };
        let is_in_file = matches!(literal.data, LiteralData::Blob(_) | LiteralData::Stream(_));
        let shape = literal
            .ty
            .tensor()
            .and_then(TensorType::concrete)
            .filter(|shape| is_in_file && !shape.is_empty());
        let Some(shape) = shape else { return };
        let layout = Layout::rows_first(&shape);
        if let Some(weight) = Weight::of(&function.value(*id).name, literal, layout) {
            self.note(weight.identity(), Entry::Kept(weight));
        }
    }

    /// Notes a weight that came compressed; several operations may decompress it one after the other.
    fn keep_stored(&mut self, function: &Function, op: &Operation) {
        let (Some((identity, weight)), [id, ..]) = (StoredWeight::of(function, op), &op.outputs[..]) else {
            return;
        };
        let mut bindings = op.inputs.iter().flat_map(|argument| &argument.bindings);
        let inner = bindings.find_map(|binding| match binding {
            Binding::Value(id) => self.stored.get(id).copied(),
            Binding::Literal(_) => None,
        });
        if let Some(entry) = inner {
            if let Entry::Stored(inner) = &mut self.compression.entries[entry] {
                inner.becomes(weight);
            }
            self.stored.insert(*id, entry);
        } else if !self.seen.contains(&identity) {
            self.stored.insert(*id, self.compression.entries.len());
            self.note(identity, Entry::Stored(weight));
        }
    }

    /// Puts a weight into the log, unless it is there.
    fn note(&mut self, identity: Identity, entry: Entry) {
        if self.seen.insert(identity) {
            self.compression.entries.push(entry);
        }
    }

    fn constant(&mut self, into: &mut Function, op: Operation, weight: Weight) -> Result<Vec<Operation>> {
        let identity = weight.identity();
        let is_looked_up = self.looked_up.contains(&identity);
        self.matched.extend(self.plan.rule(&weight.name));
        let opset = into.opset.max(FIRST);
        let precision = self.plan.precision(&Candidate {
            name: &weight.name,
            elements: weight.layout.elements(),
            channels: weight.layout.channels(),
            opset,
            is_looked_up,
            is_depthwise: is_depthwise(&weight.layout),
        });
        let (Some(scheme), &[id]) = (scheme(precision, &weight, opset)?, &op.outputs[..]) else {
            self.keep(into, &op);
            return Ok(vec![op]);
        };
        let scheme = self.solutions.scheme(&weight, precision, scheme)?;
        if into.opset < opset {
            self.compression.raised = Some(Raised { from: into.opset, to: opset });
            into.opset = opset;
        }
        let (steps, types) = (scheme.steps(), scheme.pieces());
        let key = key(&weight, precision, into);
        if !self.compression.encoders.contains_key(&key) {
            let encoder = Arc::new(WeightEncoder::new(weight, precision, scheme));
            self.note(identity, Entry::Compressed(encoder.clone()));
            self.compression.encoders.insert(key.clone(), encoder.parts());
        }
        let parts = &self.compression.encoders[&key];
        let literal = |(ty, part): (TensorType, &Arc<dyn Payload>)| Literal {
            ty: ty.into(),
            data: LiteralData::Stream(part.clone()),
        };
        let pieces: Vec<Literal> = types.into_iter().zip(parts).map(literal).collect();
        Ok(operations(into, id, &steps, &pieces))
    }
}

/// Weights of the same key have the same pieces, up to their shapes.
fn key(weight: &Weight, precision: Precision, function: &Function) -> Key {
    let layout = &weight.layout;
    let sizes = [layout.channels(), layout.row()];
    let how = format!("{precision} {}", function.opset);
    (weight.identity(), how, sizes, layout.input_stride(), layout.is_by_rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::normal;
    use anemeter_kernels::tensor::{DType, Tensor};
    use anemeter_mil::Builder;
    use anemeter_mil::verify::verify;
    use half::f16;

    fn literal(shape: &[usize], seed: u32) -> Literal {
        let values: Vec<f16> = normal(shape.iter().product(), seed).into_iter().map(f16::from_f32).collect();
        Literal::blob(&Tensor::from_slice(shape, &values).unwrap())
    }

    /// A function that looks up rows of a table and multiplies with it again, as tied embeddings do.
    fn tied(name: &str, table: &Literal, projection: &Literal) -> Function {
        let mut main = Builder::new(name, Opset::Ios18);
        let ids = main.input("ids", TensorType::fixed(DType::I32, &[1, 3]));
        let table = main.constant("embedding_weight", table.clone());
        let x = main.op("gather").arg("x", table).arg("indices", ids).named("x").push().unwrap();
        let projection = main.constant("layers_0_mlp_weight", projection.clone());
        let h = main.op("matmul").arg("x", x).arg("y", projection).named("h").push().unwrap();
        let y =
            main.op("matmul").arg("x", h).arg("y", table).arg("transpose_y", true).named("y").push().unwrap();
        main.finish(&[y])
    }

    fn two_functions() -> Model {
        let (table, projection) = (literal(&[96, 64], 1), literal(&[64, 64], 2));
        Model::multi(vec![tied("prefill", &table, &projection), tied("decode", &table, &projection)])
    }

    fn plan(text: &str) -> Plan {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn functions_share_what_they_shared() {
        let (model, compression) = apply(two_functions(), &plan("lut4:group=16")).unwrap();
        let model = verify(model).unwrap().into_model();
        let pieces = |name: &str| -> Vec<Literal> {
            let operations = &model.program.function(name).unwrap().body.operations;
            let bindings = operations
                .iter()
                .filter(|op| op.kind.starts_with("constexpr_"))
                .flat_map(|op| &op.inputs)
                .flat_map(|argument| &argument.bindings);
            bindings
                .filter_map(|b| if let Binding::Literal(l) = b { Some(l.clone()) } else { None })
                .collect()
        };
        assert_eq!(pieces("prefill").len(), 4, "two weights of two pieces each");
        assert_eq!(pieces("prefill"), pieces("decode"));
        let log = compression.log().unwrap();
        let precisions: Vec<_> =
            log.tensors.iter().map(|t| (t.name.as_str(), t.precision.as_str())).collect();
        let expected = [("embedding_weight", "int8:channel"), ("layers_0_mlp_weight", "lut4:group=16")];
        assert_eq!(precisions, expected);
        assert_eq!(log.totals.bytes_before, (96 * 64 + 64 * 64) * 2);
        assert_eq!(log.totals.bytes_after, 96 * 64 + 96 * 2 + 64 * 64 / 2 + 4 * 16 * 2);
        assert_eq!(log.worst(1)[0].name, "layers_0_mlp_weight");
        assert!(log.tensors[0].snr_db.unwrap() > 40.0 && log.tensors[1].snr_db.unwrap() > 15.0);
    }

    #[test]
    fn a_constant_that_is_also_something_else_stays() {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F16, &[1, 64]));
        let w = main.constant("w", literal(&[64, 64], 1));
        let y = main.op("matmul").arg("x", x).arg("y", w).named("y").push().unwrap();
        let z = main.op("add").arg("x", y).arg("y", w).named("z").push().unwrap();
        let model = Model::single(main.finish(&[z]));
        let (after, compression) = apply(model.clone(), &plan("int8")).unwrap();
        assert_eq!(after, model);
        let log = compression.log().unwrap();
        assert_eq!((log.totals.kept, log.totals.compressed), (1, 0));
        assert_eq!(log.tensors[0].precision, "fp16");
    }

    #[test]
    fn rules_that_match_nothing_are_told() {
        let rules =
            "{default: fp16, rules: [{match: '*mlp*', precision: int8}, {match: q_proj, precision: int4}]}";
        let (_, compression) = apply(two_functions(), &plan(rules)).unwrap();
        assert_eq!(compression.unmatched_rules(), ["q_proj"]);
        assert_eq!(compression.log().unwrap().totals.compressed, 1);
    }

    #[test]
    fn a_group_that_does_not_divide_is_an_error() {
        let error = apply(two_functions(), &plan("lut4:group=24")).err().unwrap();
        assert_eq!(
            error.to_string(),
            "weight `layers_0_mlp_weight` has 64 output channels, which cannot be divided into groups of 24"
        );
    }
}
