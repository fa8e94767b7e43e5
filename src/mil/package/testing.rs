//! Generated models: programs of every kind of type, constant, block and interface.

use super::schema;
use crate::{
    Argument, ArrayType, Binding, Block, ColorSpace, DefaultValue, Dim, Feature, FeatureType, Flexibility,
    Function, ImageSizes, ImageType, Interface, Interfaces, Literal, LiteralData, Metadata, Model, Operation,
    Opset, Program, TensorType, Type, ValueId,
};
use anemeter_kernels::tensor::{Bytes, DType};

/// Choices made by random bytes; when they run out, always the first.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.0.next().map_or(0, |&byte| usize::from(byte)) % n
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }

    fn dtype(&mut self) -> DType {
        let all: Vec<_> = DType::all().collect();
        all[self.below(all.len())]
    }

    fn text(&mut self) -> String {
        ["", "a", "two words", "größe", "line\nbreak"][self.below(5)].to_owned()
    }

    fn tensor_type(&mut self, unknown: bool) -> TensorType {
        let dim = |c: &mut Self| match c.below(5) {
            0 if unknown => Dim::Unknown,
            n => Dim::Fixed([1, 2, 3, 5, 0][n]),
        };
        let shape = (0..self.below(4)).map(|_| dim(self)).collect();
        TensorType::new(
            self.dtype(),
            if unknown && self.below(20) == 19 { vec![Dim::Variadic] } else { shape },
        )
    }

    fn value_type(&mut self, depth: usize) -> Type {
        match self.below(if depth < 3 { 12 } else { 8 }) {
            8 => Type::List(Box::new(self.value_type(depth + 1)), Dim::Unknown),
            9 => Type::Tuple((0..self.below(3)).map(|_| self.value_type(depth + 1)).collect()),
            10 => {
                let key = self.value_type(depth + 1);
                Type::Dictionary(Box::new(key), Box::new(self.value_type(depth + 1)))
            }
            11 => Type::State(self.tensor_type(false)),
            _ => self.tensor_type(true).into(),
        }
    }

    fn tensor_literal(&mut self, ty: &TensorType) -> Literal {
        let elements: usize = ty.shape.iter().map(|d| d.size().unwrap()).product();
        let data = if ty.dtype == DType::String {
            LiteralData::Strings((0..elements).map(|_| self.text()).collect())
        } else {
            let len = ty.dtype.byte_len(elements).unwrap();
            let range = if ty.dtype == DType::Bool { 2 } else { 256 };
            let bytes = Bytes::from((0..len).map(|_| self.below(range) as u8).collect::<Vec<_>>());
            match schema::blob_code(ty.dtype).is_some() && self.flip() {
                true => LiteralData::Blob(bytes),
                false => LiteralData::Immediate(bytes),
            }
        };
        Literal { ty: ty.clone().into(), data }
    }

    fn literal(&mut self, depth: usize) -> Literal {
        let element = self.tensor_type(false);
        match self.below(if depth < 3 { 12 } else { 9 }) {
            9 => {
                let items: Vec<_> = (0..self.below(3)).map(|_| self.tensor_literal(&element)).collect();
                let length = if self.flip() { Dim::Unknown } else { Dim::from(items.len()) };
                let ty = Type::List(Box::new(element.into()), length);
                Literal { ty, data: LiteralData::Items(items) }
            }
            10 => {
                let items: Vec<_> = (0..self.below(3)).map(|_| self.literal(depth + 1)).collect();
                let ty = Type::Tuple(items.iter().map(|item| item.ty.clone()).collect());
                Literal { ty, data: LiteralData::Items(items) }
            }
            11 => {
                let key = TensorType::scalar(DType::String);
                let entries = (0..self.below(3))
                    .map(|_| (self.tensor_literal(&key), self.tensor_literal(&element)))
                    .collect();
                let ty = Type::Dictionary(Box::new(key.into()), Box::new(element.into()));
                Literal { ty, data: LiteralData::Entries(entries) }
            }
            _ => self.tensor_literal(&element),
        }
    }

    fn attributes(&mut self, own: Option<&str>) -> Vec<(String, Literal)> {
        let mut attributes = Vec::new();
        if self.flip() {
            attributes.push(("name".to_owned(), Literal::text(&self.text())));
        }
        attributes.extend(own.map(|name| (name.to_owned(), self.literal(0))));
        attributes
    }

    fn define(&mut self, function: &mut Function, prefix: &str) -> ValueId {
        let name = format!("{prefix}{}", function.values.len());
        let ty = self.value_type(0);
        function.add_value(&name, ty)
    }

    /// A block whose operations see `visible` values; nested ones reuse the names of their siblings.
    fn block(&mut self, function: &mut Function, visible: &[ValueId], depth: usize) -> Block {
        let mut visible = visible.to_vec();
        let inputs: Vec<_> =
            (0..if depth > 0 { self.below(3) } else { 0 }).map(|_| self.define(function, "in")).collect();
        visible.extend(&inputs);
        let mut operations = Vec::new();
        for index in 0..self.below(7) {
            let mut op = self.operation(function, &visible, depth);
            for output in 0..1 + self.below(2) {
                let ty = self.value_type(0);
                let name = format!("{}x{depth}_{index}_{output}", if depth > 0 { "n" } else { "" });
                op.outputs.push(function.add_value(&name, ty));
            }
            visible.extend(&op.outputs);
            operations.push(op);
        }
        let outputs = match visible.len() {
            0 => Vec::new(),
            n => (0..1 + self.below(2)).map(|_| visible[self.below(n)]).collect(),
        };
        Block { inputs, operations, outputs, attributes: self.attributes(None) }
    }

    fn operation(&mut self, function: &mut Function, visible: &[ValueId], depth: usize) -> Operation {
        let mut op = Operation::default();
        match self.below(4) {
            3 if depth < 3 && !visible.is_empty() => {
                op.kind = "cond".to_owned();
                op.blocks = (0..2).map(|_| self.block(function, visible, depth + 1)).collect();
                op.attributes = self.attributes(None);
            }
            2 if !visible.is_empty() => {
                op.kind = "add".to_owned();
                for parameter in ["values", "x", "y"] {
                    let bindings = (0..self.below(3)).map(|_| match self.below(3) {
                        0 => Binding::Literal(self.literal(0)),
                        _ => Binding::Value(visible[self.below(visible.len())]),
                    });
                    op.inputs
                        .push(Argument { parameter: parameter.to_owned(), bindings: bindings.collect() });
                }
            }
            _ => {
                op.kind = "const".to_owned();
                op.attributes = self.attributes(Some("val"));
            }
        }
        op
    }

    fn bounds(&mut self) -> (u64, Option<u64>) {
        (self.below(9) as u64, if self.flip() { Some(self.below(99) as u64) } else { None })
    }

    fn array(&mut self) -> ArrayType {
        let dtypes = [DType::F16, DType::F32, DType::F64, DType::I8, DType::I32];
        let sizes = |c: &mut Self| (0..c.below(4)).map(|_| c.below(200) as u64).collect::<Vec<_>>();
        ArrayType {
            dtype: dtypes[self.below(5)],
            shape: sizes(self),
            flexibility: match self.below(3) {
                0 => Flexibility::Fixed,
                1 => Flexibility::Enumerated((0..self.below(4)).map(|_| sizes(self)).collect()),
                _ => Flexibility::Ranges((0..self.below(4)).map(|_| self.bounds()).collect()),
            },
            default: [
                None,
                Some(DefaultValue::Int(0)),
                Some(DefaultValue::Int(-7)),
                Some(DefaultValue::Float(0.5)),
                Some(DefaultValue::Double(-0.0)),
            ][self.below(5)],
        }
    }

    fn image(&mut self) -> ImageType {
        let colors = [ColorSpace::Grayscale, ColorSpace::Rgb, ColorSpace::Bgr, ColorSpace::GrayscaleFloat16];
        let side = |c: &mut Self| c.below(256) as u64;
        ImageType {
            width: side(self),
            height: side(self),
            color: colors[self.below(4)],
            sizes: match self.below(3) {
                0 => ImageSizes::Fixed,
                1 => ImageSizes::Enumerated((0..self.below(3)).map(|_| (side(self), side(self))).collect()),
                _ => ImageSizes::Range { width: self.bounds(), height: self.bounds() },
            },
        }
    }

    fn features(&mut self, prefix: &str) -> Vec<Feature> {
        (0..self.below(4))
            .map(|index| Feature {
                name: format!("{prefix}{index}"),
                description: self.text(),
                optional: self.flip(),
                ty: match self.below(9) {
                    0 => FeatureType::State(self.array()),
                    1 => FeatureType::Image(self.image()),
                    2 => FeatureType::Int64,
                    3 => FeatureType::Double,
                    4 => FeatureType::Text,
                    5 => FeatureType::Int64Dictionary,
                    6 => FeatureType::TextDictionary,
                    _ => FeatureType::Array(self.array()),
                },
            })
            .collect()
    }

    fn interface(&mut self, function: &str) -> Interface {
        Interface {
            function: function.to_owned(),
            inputs: self.features("i"),
            outputs: self.features("o"),
            states: self.features("s"),
            predicted_feature: self.text(),
            predicted_probabilities: self.text(),
        }
    }

    fn model(&mut self) -> Model {
        let opsets: Vec<_> = Opset::all().collect();
        let names: &[&str] = [&["main"][..], &["main"], &["a"], &["a", "b", "main"]][self.below(4)];
        let functions = names.iter().map(|name| {
            let mut function = Function::new(name, opsets[self.below(5)]);
            function.inputs = (0..self.below(3)).map(|_| self.define(&mut function, "in")).collect();
            let visible = function.inputs.clone();
            function.body = self.block(&mut function, &visible, 0);
            function.attributes = self.attributes(None);
            function
        });
        let functions: Vec<Function> = functions.collect();
        let interfaces = if names == ["main"] && self.flip() {
            Interfaces::Single(self.interface("main"))
        } else {
            let functions = names.iter().rev().map(|name| self.interface(name)).collect();
            Interfaces::Many { functions, default: names[0].to_owned() }
        };
        let metadata = Metadata {
            description: self.text(),
            version: self.text(),
            author: self.text(),
            license: self.text(),
            user_defined: (0..self.below(4)).map(|i| (format!("k{i}"), self.text())).collect(),
        };
        let program = Program { version: 1, functions, attributes: self.attributes(Some("val")) };
        Model { spec_version: opsets[self.below(5)].spec_version(), program, interfaces, metadata }
    }
}

/// The model that random bytes choose.
pub(super) fn generated(choices: &[u8]) -> Model {
    Choices(choices.iter()).model()
}
