//! How the elements of a weight are stored, as people write it: `int8`, `int4:block=32`, `lut4:group=16`,
//! `sparse:2:4+int8`.

use std::fmt;
use std::str::FromStr;

use super::{CompressError, Result};
use anemeter_mil::Opset;

/// How the elements of a weight are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Precision {
    /// Left uncompressed.
    Keep,
    /// As the integers they come from, without rounding them again; as they are if they come from none.
    Stored,
    /// Integers with scales.
    Linear(Linear),
    /// As indices into a palette.
    Palette(Palette),
    /// Only some of them, as they are.
    Sparse(Pattern),
    /// Only some of them, as integers.
    SparseLinear(Pattern, Linear),
    /// Only some of them, as indices into a palette.
    SparsePalette(Pattern, Palette),
}

/// Integers with a scale, and a zero point if they are asymmetric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// Bits of an integer: 4 or 8.
    pub bits: u32,
    /// Whether zero is the middle of the integers.
    pub symmetric: bool,
    /// What shares a scale.
    pub granularity: Granularity,
}

/// Which elements share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// One scale for the whole weight.
    Tensor,
    /// Those of an output channel.
    Channel,
    /// So many inputs of an output channel.
    Block(usize),
}

/// Palettization: indices into lookup tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    /// Bits of an index: 1, 2, 3, 4, 6 or 8.
    pub bits: u32,
    /// Output channels that share a palette; all if there is none.
    pub group: Option<usize>,
    /// Whether the weight decides how many channels share a palette, since nobody else did.
    pub adapts: bool,
    /// Consecutive output channels whose elements one index stands for.
    pub vector: usize,
    /// Whether output channels are brought to one magnitude first.
    pub scaled: bool,
}

/// Which elements are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// The largest ones; this share of all is dropped.
    Magnitude(f64),
    /// The `keep` largest of every `of` inputs.
    Structured {
        /// How many are stored.
        keep: usize,
        /// Of how many.
        of: usize,
    },
}

const WORDS: &[&str] = &["fp16", "int8", "int4", "lut1", "lut2", "lut3", "lut4", "lut6", "lut8", "sparse"];

impl Precision {
    /// Bytes of a matrix as integers or palettes, with scales, zero points and palettes.
    pub fn bytes(&self, [rows, columns]: [usize; 2]) -> u64 {
        let elements = (rows * columns) as u64;
        let codes = |bits: u32| (elements * u64::from(bits)).div_ceil(8);
        match *self {
            Precision::Linear(Linear { bits, symmetric, granularity }) => {
                let units = match granularity {
                    Granularity::Tensor => 1,
                    Granularity::Channel => rows,
                    Granularity::Block(size) => rows * columns.div_ceil(size.max(1)),
                } as u64;
                let zeros = if symmetric { 0 } else { (units * u64::from(bits)).div_ceil(8) };
                codes(bits) + 2 * units + zeros
            }
            Precision::Palette(Palette { bits, group, scaled, .. }) => {
                let groups = rows.div_ceil(group.unwrap_or(rows).max(1)) as u64;
                let scales = if scaled { 2 * rows as u64 } else { 0 };
                codes(bits) + (groups << bits) * 2 + scales
            }
            _ => (elements as f64 * self.bits() / 8.0).ceil() as u64,
        }
    }

    /// Bits of an element, without scales and palettes.
    pub fn bits(&self) -> f64 {
        match self {
            Precision::Keep | Precision::Stored => 16.0,
            Precision::Linear(linear) => f64::from(linear.bits),
            Precision::Palette(palette) => f64::from(palette.bits) / palette.vector as f64,
            Precision::Sparse(pattern) => 1.0 + 16.0 * pattern.share(),
            Precision::SparseLinear(pattern, linear) => 1.0 + f64::from(linear.bits) * pattern.share(),
            Precision::SparsePalette(pattern, palette) => 1.0 + f64::from(palette.bits) * pattern.share(),
        }
    }

    /// Whether it is the bare word of a palette so narrow that rounding without data leaves few models of use.
    pub fn needs_data(&self) -> bool {
        matches!(self, Precision::Palette(Palette { bits: ..=4, adapts: true, .. }))
    }

    /// Whether codes can be chosen by data.
    pub fn is_solvable(&self) -> bool {
        matches!(self, Precision::Linear(_) | Precision::Palette(Palette { vector: 1, .. }))
    }
}

/// Output channels that share a palette where nobody says how many: what Apple recommends for the Neural Engine.
const USUAL_GROUP: usize = 16;
/// How many times as many bits as a palette the indices that share it must have, if groups are to have palettes of their own.
const LEAST_INDICES: usize = 8;
/// Bits of an entry of a palette.
const ENTRY_BITS: usize = 16;

impl Palette {
    /// The palette of a weight with so many output channels of `row` elements in a program of an opset. One palette for all of a
    /// large weight makes a useless model of four bits, so that groups of channels have their own where programs can say so and
    /// palettes do not take much room beside the indices.
    pub fn adapted(self, channels: usize, row: usize, opset: Opset) -> Palette {
        if !self.adapts {
            return self;
        }
        let group = 1 << channels.trailing_zeros().min(USUAL_GROUP.ilog2());
        let indices = (group * row).saturating_mul(self.bits as usize);
        let is_worth_it = indices >= LEAST_INDICES * (ENTRY_BITS << self.bits);
        let group = (opset >= Opset::Ios18 && channels > 0 && is_worth_it).then_some(group);
        Palette { group, adapts: false, ..self }
    }
}

impl Pattern {
    /// The share of the elements that is stored.
    pub fn share(&self) -> f64 {
        match *self {
            Pattern::Magnitude(dropped) => 1.0 - dropped,
            Pattern::Structured { keep, of } => keep as f64 / of as f64,
        }
    }
}

impl FromStr for Precision {
    type Err = CompressError;

    fn from_str(text: &str) -> Result<Precision> {
        let parse = || match text.split_once('+') {
            Some((pattern, rest)) => {
                let Precision::Sparse(pattern) = scheme(pattern)? else {
                    return Err(format!("`{pattern}` before `+` is not `sparse:...`"));
                };
                match scheme(rest)? {
                    Precision::Linear(linear) if linear.symmetric => {
                        Ok(Precision::SparseLinear(pattern, linear))
                    }
                    Precision::Palette(palette) if palette.vector == 1 && !palette.scaled => {
                        Ok(Precision::SparsePalette(pattern, palette))
                    }
                    _ => Err(format!("`{rest}` cannot be combined with `sparse`")),
                }
            }
            None => scheme(text),
        };
        parse().map_err(|message| {
            CompressError::new(format!("precision `{text}`: {message}")).with_help(
                "precisions are fp16, stored, int8, int4, int4:block=32, int8:asym, lut4, lut4:group=16, lut4:tensor, \
                 lut4:vector=2, lut4:scale, sparse:0.5, sparse:2:4 and combinations such as sparse:0.5+int8",
            )
        })
    }
}

fn scheme(text: &str) -> Result<Precision, String> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or("");
    let options: Vec<&str> = words.collect();
    let bits = || name[3..].parse::<u32>().map_err(|_| unknown(name));
    match name {
        "fp16" if options.is_empty() => Ok(Precision::Keep),
        "stored" if options.is_empty() => Ok(Precision::Stored),
        "fp16" | "stored" => Err(format!("{name} takes no `{}`", options[0])),
        "int8" => linear(bits()?, Granularity::Channel, &options),
        "int4" => linear(bits()?, Granularity::Block(32), &options),
        "lut1" | "lut2" | "lut3" | "lut4" | "lut6" | "lut8" => palette(bits()?, &options),
        "sparse" => pattern(&options).map(Precision::Sparse),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    let near = |word: &&&str| {
        let same = word.chars().zip(name.chars()).filter(|(a, b)| a == b).count();
        same + 1 >= word.len().max(name.len())
    };
    match WORDS.iter().find(near) {
        Some(word) => format!("`{name}` is unknown; did you mean `{word}`?"),
        None => format!("`{name}` is unknown"),
    }
}

fn number(option: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("`{option}={value}` is not a number above 0")),
    }
}

fn linear(bits: u32, granularity: Granularity, options: &[&str]) -> Result<Precision, String> {
    let mut linear = Linear { bits, symmetric: true, granularity };
    for option in options {
        match option.split_once('=') {
            None if *option == "asym" => linear.symmetric = false,
            None if *option == "sym" => linear.symmetric = true,
            None if *option == "tensor" => linear.granularity = Granularity::Tensor,
            None if *option == "channel" => linear.granularity = Granularity::Channel,
            Some(("block", value)) => linear.granularity = Granularity::Block(number("block", value)?),
            _ => return Err(format!("`{option}` is none of sym, asym, tensor, channel and block=N")),
        }
    }
    Ok(Precision::Linear(linear))
}

fn palette(bits: u32, options: &[&str]) -> Result<Precision, String> {
    let mut palette = Palette { bits, group: None, adapts: options.is_empty(), vector: 1, scaled: false };
    for option in options {
        match option.split_once('=') {
            None if *option == "tensor" => palette.group = None,
            None if *option == "scale" => palette.scaled = true,
            Some(("group", value)) => palette.group = Some(number("group", value)?),
            Some(("vector", value)) => palette.vector = number("vector", value)?,
            _ => return Err(format!("`{option}` is none of tensor, group=N, vector=N and scale")),
        }
    }
    match palette {
        Palette { scaled: true, vector: 2.., .. } => Err("vectors and scales cannot be combined".to_owned()),
        Palette { group: Some(group), vector, .. } if group % vector != 0 => {
            Err(format!("a group of {group} channels cannot be divided into vectors of {vector}"))
        }
        _ => Ok(Precision::Palette(palette)),
    }
}

fn pattern(options: &[&str]) -> Result<Pattern, String> {
    match *options {
        [share] => match share.parse::<f64>() {
            Ok(share) if share > 0.0 && share < 1.0 => Ok(Pattern::Magnitude(share)),
            _ => Err(format!("`{share}` is not a share between 0 and 1")),
        },
        [keep, of] => {
            let (keep, of) = (number("keep", keep)?, number("of", of)?);
            match keep < of {
                true => Ok(Pattern::Structured { keep, of }),
                false => Err(format!("`{keep}:{of}` keeps everything")),
            }
        }
        _ => Err("write sparse:SHARE or sparse:KEEP:OF".to_owned()),
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precision::Keep => f.write_str("fp16"),
            Precision::Stored => f.write_str("stored"),
            Precision::Linear(linear) => linear.fmt(f),
            Precision::Palette(palette) => palette.fmt(f),
            Precision::Sparse(pattern) => pattern.fmt(f),
            Precision::SparseLinear(pattern, linear) => write!(f, "{pattern}+{linear}"),
            Precision::SparsePalette(pattern, palette) => write!(f, "{pattern}+{palette}"),
        }
    }
}

impl fmt::Display for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "int{}", self.bits)?;
        match self.granularity {
            Granularity::Tensor => f.write_str(":tensor")?,
            Granularity::Channel => f.write_str(":channel")?,
            Granularity::Block(size) => write!(f, ":block={size}")?,
        }
        f.write_str(if self.symmetric { "" } else { ":asym" })
    }
}

impl fmt::Display for Palette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lut{}", self.bits)?;
        if let Some(group) = self.group {
            write!(f, ":group={group}")?;
        }
        if self.vector > 1 {
            write!(f, ":vector={}", self.vector)?;
        }
        if (self.group, self.vector, self.scaled, self.adapts) == (None, 1, false, false) {
            f.write_str(":tensor")?;
        }
        f.write_str(if self.scaled { ":scale" } else { "" })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Magnitude(share) => write!(f, "sparse:{share}"),
            Pattern::Structured { keep, of } => write!(f, "sparse:{keep}:{of}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_base::advice::Advice;

    #[test]
    fn what_is_written_is_what_is_meant() {
        let cases = [
            ("fp16", "fp16"),
            ("stored", "stored"),
            ("int8", "int8:channel"),
            ("int4", "int4:block=32"),
            ("int8:tensor:asym", "int8:tensor:asym"),
            ("int4:block=64", "int4:block=64"),
            ("lut6", "lut6"),
            ("lut6:tensor", "lut6:tensor"),
            ("lut6:tensor:scale", "lut6:scale"),
            ("lut4:group=16:vector=2", "lut4:group=16:vector=2"),
            ("lut4:scale", "lut4:scale"),
            ("sparse:0.5", "sparse:0.5"),
            ("sparse:2:4+int8", "sparse:2:4+int8:channel"),
            ("sparse:0.25+lut4:group=8", "sparse:0.25+lut4:group=8"),
        ];
        for (text, meant) in cases {
            let precision: Precision = text.parse().unwrap();
            assert_eq!(precision.to_string(), meant);
            assert_eq!(meant.parse::<Precision>().unwrap(), precision);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("int9", "precision `int9`: `int9` is unknown; did you mean `int8`?"),
            ("lut5", "precision `lut5`: `lut5` is unknown; did you mean `lut1`?"),
            ("int4:block=0", "precision `int4:block=0`: `block=0` is not a number above 0"),
            (
                "int4:blok=32",
                "precision `int4:blok=32`: `blok=32` is none of sym, asym, tensor, channel and block=N",
            ),
            ("sparse:1.5", "precision `sparse:1.5`: `1.5` is not a share between 0 and 1"),
            ("sparse:4:4", "precision `sparse:4:4`: `4:4` keeps everything"),
            ("int8+sparse:0.5", "precision `int8+sparse:0.5`: `int8` before `+` is not `sparse:...`"),
            ("sparse:0.5+fp16", "precision `sparse:0.5+fp16`: `fp16` cannot be combined with `sparse`"),
            ("", "precision ``: `` is unknown"),
        ];
        for (text, message) in cases {
            let error = text.parse::<Precision>().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(error.remedy().is_some());
        }
    }

    #[test]
    fn palettes_are_shared_by_few_channels_where_that_is_possible_and_worth_it() {
        let adapted = |text: &str, channels, row, opset| match text.parse().unwrap() {
            Precision::Palette(palette) => palette.adapted(channels, row, opset).to_string(),
            other => panic!("{other}"),
        };
        let cases = [
            ("lut4", 576, 576, Opset::Ios18, "lut4:group=16"),
            ("lut4", 1000, 512, Opset::Ios18, "lut4:group=8"),
            ("lut4", 50_257, 768, Opset::Ios18, "lut4:group=1"),
            ("lut4", 576, 576, Opset::Ios17, "lut4:tensor"),
            ("lut4", 16, 27, Opset::Ios18, "lut4:tensor"),
            ("lut8", 576, 255, Opset::Ios18, "lut8:tensor"),
            ("lut8", 576, 256, Opset::Ios18, "lut8:group=16"),
            ("lut4", 0, 0, Opset::Ios18, "lut4:tensor"),
            ("lut4:tensor", 576, 576, Opset::Ios18, "lut4:tensor"),
            ("lut4:group=4", 576, 576, Opset::Ios18, "lut4:group=4"),
            ("lut4:scale", 576, 576, Opset::Ios18, "lut4:scale"),
            ("lut4:vector=2", 576, 576, Opset::Ios18, "lut4:vector=2"),
        ];
        for (text, channels, row, opset, expected) in cases {
            assert_eq!(
                adapted(text, channels, row, opset),
                expected,
                "{text} of {channels} x {row} in {opset}"
            );
        }
    }

    #[test]
    fn only_bare_words_of_narrow_palettes_need_data() {
        for (text, expected) in [
            ("lut1", true),
            ("lut2", true),
            ("lut3", true),
            ("lut4", true),
            ("lut6", false),
            ("int4", false),
            ("lut4:group=16", false),
            ("lut4:tensor", false),
            ("lut4:scale", false),
            ("sparse:0.5+lut4", false),
        ] {
            assert_eq!(text.parse::<Precision>().unwrap().needs_data(), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z0-9:=+.]{0,24}") {
            if let Ok(precision) = text.parse::<Precision>() {
                assert_eq!(precision.to_string().parse::<Precision>().unwrap(), precision);
            }
        }
    }
}
