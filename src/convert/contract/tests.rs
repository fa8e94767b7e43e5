//! Which packages are recognised as which contract, and which are not.

use std::path::Path;

use super::*;
use crate::bundle::contract::{ContractName, ContractRole};
use anemeter_base::advice::Advice;
use anemeter_base::vocabulary::KvForm;
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{
    ArrayType, Builder, FeatureType, Flexibility, Literal, Model, Opset, TensorType, Type, ValueId,
};

const VOCABULARY: usize = 12;

/// A function under construction whose outputs are made of nothing in particular.
struct Draft(Builder);

impl Draft {
    fn new(name: &str) -> Draft {
        Draft(Builder::new(name, Opset::Ios18))
    }

    fn input(mut self, name: &str, dtype: DType, shape: &[usize]) -> Draft {
        self.0.input(name, TensorType::fixed(dtype, shape));
        self
    }

    fn state(mut self, name: &str, shape: &[usize]) -> Draft {
        self.0.input(name, Type::State(TensorType::fixed(DType::F16, shape)));
        self
    }

    fn constant(&mut self, dtype: DType, shape: &[usize]) -> ValueId {
        let count: usize = shape.iter().product();
        let tensor = match dtype {
            DType::I32 => Tensor::from_slice(shape, &vec![0i32; count]),
            _ => Tensor::from_slice(shape, &vec![half::f16::ZERO; count]),
        };
        self.0.constant("data", Literal::blob(&tensor.unwrap()))
    }

    /// Outputs of these types; with a table of so many rows that something is looked up in.
    fn outputs(mut self, rows: Option<usize>, outputs: &[(&str, DType, &[usize])]) -> anemeter_mil::Function {
        if let Some(rows) = rows {
            let (table, ids) = (self.constant(DType::F16, &[rows, 2]), self.constant(DType::I32, &[1]));
            self.0.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
        }
        let mut ids = Vec::new();
        for (name, dtype, shape) in outputs {
            let data = self.constant(*dtype, shape);
            ids.push(self.0.op("identity").arg("x", data).named(name).push().unwrap());
        }
        self.0.finish(&ids)
    }
}

fn recognised(packages: &[(&str, &Model)], folder: &Path) -> Option<Contract> {
    recognise(&Packages { packages, folder }).unwrap()
}

fn one(model: &Model) -> Option<Contract> {
    recognised(&[("model.mlpackage", model)], Path::new("nowhere"))
}

fn set_shapes(model: &mut Model, input: &str, dtype: DType, shape: &[u64], flexibility: Flexibility) {
    let function = model.default_function().to_owned();
    let inputs = &mut model.interface_mut(&function).unwrap().inputs;
    let feature = inputs.iter_mut().find(|feature| feature.name == input).unwrap();
    feature.ty = FeatureType::Array(ArrayType { dtype, shape: shape.to_vec(), flexibility, default: None });
}

const LOGITS: (&str, DType, &[usize]) = ("logits", DType::F16, &[1, 16, VOCABULARY]);

fn whole(ids: &str, rows: Option<usize>, outputs: &[(&str, DType, &[usize])]) -> Model {
    let draft = Draft::new("main").input(ids, DType::I32, &[1, 16]);
    Model::single(draft.outputs(rows, outputs))
}

#[test]
fn logits_of_a_vocabulary_that_is_looked_up_are_those_of_a_language_model() {
    let contract = one(&whole("input_ids", Some(VOCABULARY), &[LOGITS])).unwrap();
    assert_eq!(contract.to_string(), "whole sequence: input_ids");
    assert_eq!(
        (contract.vocabulary, contract.lengths(), contract.kv()),
        (VOCABULARY, vec![16], KvForm::None)
    );
    // A classifier of tokens, one of sentences, and an encoder.
    assert_eq!(one(&whole("input_ids", Some(99), &[LOGITS])), None);
    let sentence: (_, _, &[usize]) = ("logits", DType::F16, &[1, VOCABULARY]);
    assert_eq!(one(&whole("input_ids", Some(VOCABULARY), &[sentence])), None);
    let encoder: (_, _, &[usize]) = ("last_hidden_state", DType::F16, &[1, 16, VOCABULARY]);
    assert_eq!(one(&whole("input_ids", Some(VOCABULARY), &[encoder])), None);
    assert_eq!(one(&whole("image", Some(VOCABULARY), &[LOGITS])), None);
}

#[test]
fn lengths_are_those_of_the_list_or_within_the_range() {
    let mut model = whole("input_ids", Some(VOCABULARY), &[LOGITS]);
    let listed = Flexibility::Enumerated(vec![vec![1, 128], vec![1, 64]]);
    set_shapes(&mut model, "input_ids", DType::I32, &[1, 128], listed);
    assert_eq!(one(&model).unwrap().lengths(), [64, 128]);
    let ranges = Flexibility::Ranges(vec![(1, Some(1)), (1, Some(200))]);
    set_shapes(&mut model, "input_ids", DType::I32, &[1, 1], ranges);
    let contract = one(&model).unwrap();
    assert_eq!((contract.lengths(), contract.context_length), (vec![64, 128, 200], 200));
}

#[test]
fn swift_transformers_have_states_caches_or_neither() {
    let contract = one(&whole("inputIds", None, &[LOGITS])).unwrap();
    assert_eq!(contract.name, ContractName::SwiftTransformersStateless);
    let cache = [2, 1, 2, 16, 4];
    let mask = [1, 1, 1, 16];
    let draft = || {
        let draft = Draft::new("main").input("inputIds", DType::I32, &[1, 1]);
        draft.input("causalMask", DType::F16, &mask)
    };
    let logits: (_, _, &[usize]) = ("logits", DType::F16, &[1, 1, VOCABULARY]);
    let stateful = draft().state("keyCache", &cache).state("valueCache", &cache).outputs(None, &[logits]);
    let mut stateful = Model::single(stateful);
    let contract = one(&stateful).unwrap();
    let told = "swift-transformers (stateful): inputIds, causalMask; states keyCache, valueCache";
    assert_eq!(contract.to_string(), told);
    assert_eq!((contract.kv(), contract.lengths()), (KvForm::State, vec![16]));
    assert_eq!(contract.functions().count(), 1, "one token at a time");
    let open = (1, Some(12));
    set_shapes(&mut stateful, "inputIds", DType::I32, &[1, 1], Flexibility::Ranges(vec![(1, Some(1)), open]));
    let ranges = Flexibility::Ranges(vec![(1, Some(1)), (1, Some(1)), open, open]);
    set_shapes(&mut stateful, "causalMask", DType::F16, &[1, 1, 1, 1], ranges);
    let contract = one(&stateful).unwrap();
    let roles: Vec<_> = contract.functions().map(|(_, function)| function.role).collect();
    assert_eq!(roles, [ContractRole::Prefill, ContractRole::Decode]);
    assert_eq!(contract.context_length, 12, "the mask has no more columns");

    let inputs = draft().input("keyCache", DType::F16, &cache).input("valueCache", DType::F16, &cache);
    let new: &[usize] = &cache;
    let new = [logits, ("presentKeys", DType::F16, new), ("presentValues", DType::F16, new)];
    let contract = one(&Model::single(inputs.outputs(None, &new))).unwrap();
    assert_eq!((contract.name, contract.kv()), (ContractName::SwiftTransformersCaches, KvForm::Io));
}

/// Token vectors, a chunk and a head.
fn anemll(head: &[(&str, DType, &[usize])]) -> [(&'static str, Model); 3] {
    let embed = Draft::new("main").input("input_ids", DType::I32, &[1, 1]);
    let chunk = |name: &str, count: usize| {
        let draft = Draft::new(name).input("hidden_states", DType::F16, &[1, count, 4]);
        let draft = draft.input("position_ids", DType::I32, &[count]);
        let draft = draft.input("causal_mask", DType::F16, &[1, 1, count, 32]);
        let draft =
            draft.input("current_pos", DType::I32, &[1]).state("model.model.kv_cache_0", &[2, 1, 32, 4]);
        draft.outputs(None, &[("output_hidden_states", DType::F16, &[1, count, 4])])
    };
    let split = Draft::new("main").input("hidden_states", DType::F16, &[1, 1, 4]);
    [
        ("x_lm_head.mlpackage", Model::single(split.outputs(None, head))),
        ("x_FFN_PF.mlpackage", Model::multi(vec![chunk("infer", 1), chunk("prefill", 8)])),
        (
            "x_embeddings.mlpackage",
            Model::single(embed.outputs(None, &[("hidden_states", DType::F16, &[1, 1, 4])])),
        ),
    ]
}

fn recognise_all(packages: &[(&'static str, Model)], folder: &Path) -> Result<Option<Contract>, BundleError> {
    let packages: Vec<(&str, &Model)> = packages.iter().map(|(name, model)| (*name, model)).collect();
    recognise(&Packages { packages: &packages, folder })
}

#[test]
fn anemll_is_recognised_by_its_functions_in_any_order() {
    let slice: &[usize] = &[1, 1, 6];
    let head =
        [("logits10", DType::F16, slice), ("logits2", DType::F16, slice), ("logits1", DType::F16, slice)];
    let contract = recognise_all(&anemll(&head), Path::new("nowhere")).unwrap().unwrap();
    let order: Vec<&str> = contract.packages.iter().map(|package| package.package.as_str()).collect();
    assert_eq!(order, ["x_embeddings.mlpackage", "x_FFN_PF.mlpackage", "x_lm_head.mlpackage"]);
    assert_eq!((contract.context_length, contract.vocabulary, contract.kv()), (32, 18, KvForm::State));
    let functions: Vec<_> = contract.functions().map(|(_, function)| function).collect();
    assert_eq!((functions[1].role, functions[1].tokens), (ContractRole::Prefill, Some(8)));
    assert!(functions[1].states_are_shared && functions[2].states_are_shared);
    assert_eq!(functions[3].outputs.logits, ["logits1", "logits2", "logits10"]);
    assert_eq!(recognise_all(&anemll(&head)[..2], Path::new("nowhere")).unwrap(), None);
}

#[test]
fn heads_without_logits_need_the_size_of_the_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let head: [(&str, DType, &[usize]); 2] =
        [("argmax_idx", DType::I32, &[3]), ("argmax_val", DType::F16, &[3])];
    let error = recognise_all(&anemll(&head), folder.path()).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "meta.yaml: does not say `vocab_size`, which is needed where the head gives no logits"
        )
    );
    assert!(error.remedy().is_some());
    let meta = "model_info: { name: x, parameters: { vocab_size: 12, sliding_window: 24 } }";
    anemeter_base::atomic::write_file(&folder.path().join("meta.yaml"), meta.as_bytes()).unwrap();
    let contract = recognise_all(&anemll(&head), folder.path()).unwrap().unwrap();
    assert_eq!((contract.vocabulary, contract.context_length), (12, 24));
    let (_, last) = contract.functions().last().unwrap();
    assert_eq!(last.outputs.argmax[0].offsets, [0, 4, 8]);
    anemeter_base::atomic::write_file(&folder.path().join("meta.yaml"), b"model_info: 3").unwrap();
    let error = recognise_all(&anemll(&head), folder.path()).unwrap_err().to_string();
    assert!(error.contains("meta.yaml: model_info"), "{error}");
}

#[test]
fn contract_files_are_checked_against_the_packages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("contract.yaml");
    let model = whole("tokens", None, &[LOGITS]);
    let packages = [("model.mlpackage", &model)];
    let read = |text: &str| {
        anemeter_base::atomic::write_file(&path, text.as_bytes()).unwrap();
        read(&path, &Packages { packages: &packages, folder: folder.path() })
            .map_err(|error| error.to_string())
    };
    let good = "
context_length: 16
vocabulary: 12
packages:
  - package: model.mlpackage
    functions:
      - { function: main, role: whole-sequence, inputs: { ids: tokens }, outputs: { logits: [logits] } }
";
    assert_eq!(read(good).unwrap().name, ContractName::Custom);
    for (from, to, problem) in [
        (
            "model.mlpackage",
            "other.mlpackage",
            "names the package `other.mlpackage`, which is not among model.mlpackage",
        ),
        ("function: main", "function: infer", "the package has no such function, but `main`"),
        ("ids: tokens", "ids: words", "it has no input `words`"),
        ("ids: tokens", "", "the contract does not say what the input `tokens` is"),
        ("[logits]", "[scores]", "it has no output `scores`"),
        ("logits: [logits]", "", "no function gives `logits` or `argmax`"),
        ("whole-sequence", "head", "no function has the role `decode` or `whole-sequence`"),
        ("vocabulary: 12", "vocabulary: 0", "must be 1 or more"),
        ("vocabulary: 12", "vocab: 12", "unknown key `vocab`"),
    ] {
        let error = read(&good.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}
