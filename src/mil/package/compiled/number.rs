//! Numbers as MIL text writes them: integers, hexadecimal floats such as `-0x1.8p+3`, `inf`, `nan`.
//!
//! The compiler writes floats in hexadecimal because that is exact, so one that its type cannot hold is an error.
//! Decimal floats, as people write them, are rounded to the nearest value.

use anemeter_kernels::tensor::DType;
use half::{bf16, f16};

/// Appends the bytes of a float, little endian; says what is wrong with the text otherwise.
pub(super) fn push_float(text: &str, dtype: DType, out: &mut Vec<u8>) -> Result<(), String> {
    let (value, is_exact) = float(text).ok_or_else(|| format!("expected a number, found `{text}`"))?;
    let (bytes, stored): (Vec<u8>, f64) = match dtype {
        DType::F16 => {
            let stored = f16::from_f64(value);
            (stored.to_le_bytes().to_vec(), stored.to_f64())
        }
        DType::BF16 => {
            let stored = bf16::from_f64(value);
            (stored.to_le_bytes().to_vec(), stored.to_f64())
        }
        DType::F32 => {
            let stored = value as f32;
            (stored.to_le_bytes().to_vec(), stored.into())
        }
        DType::F64 => (value.to_le_bytes().to_vec(), value),
        _ => {
            let code = eight_bits(value, dtype).ok_or_else(|| format!("`{text}` is no value of {dtype}"))?;
            (vec![code], value)
        }
    };
    if is_exact && stored != value && !value.is_nan() {
        return Err(format!("`{text}` is no value of {dtype}"));
    }
    out.extend(bytes);
    Ok(())
}

/// Appends the bytes of an integer, little endian; of one smaller than a byte, a byte that holds its bits.
pub(super) fn push_int(text: &str, dtype: DType, out: &mut Vec<u8>) -> Result<(), String> {
    let bits = dtype.bits();
    let is_signed = matches!(dtype, DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let (least, most) = match is_signed {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    };
    let value: i128 = text.parse().map_err(|_| format!("expected an integer, found `{text}`"))?;
    if value < least || value > most {
        return Err(format!("`{text}` is outside the range of {dtype}, {least} to {most}"));
    }
    let bytes = value.to_le_bytes();
    match bits {
        8.. => out.extend_from_slice(&bytes[..bits as usize / 8]),
        _ => out.push(bytes[0] & ((1 << bits) - 1)),
    }
    Ok(())
}

/// The value of a float, and whether the text is meant to be exact.
fn float(text: &str) -> Option<(f64, bool)> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(rest) => (rest, -1.0),
        None => (text.strip_prefix('+').unwrap_or(text), 1.0),
    };
    match digits {
        "inf" => return Some((sign * f64::INFINITY, true)),
        "nan" => return Some((f64::NAN.copysign(sign), true)),
        _ => {}
    }
    if let Some(hex) = digits.strip_prefix("0x") {
        return hexadecimal(hex).map(|value| (sign * value, true));
    }
    let is_plain = digits.starts_with(|c: char| c.is_ascii_digit());
    digits
        .parse::<f64>()
        .ok()
        .filter(|value| is_plain && value.is_finite())
        .map(|value| (sign * value, false))
}

/// The value of `1.8p+3`, hexadecimal digits times a power of two; none if an `f64` cannot hold it.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !exponent.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let mut exponent: i64 = exponent.parse().ok().filter(|e: &i64| e.abs() < 1 << 20)?;
    let mut mantissa = 0u64;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = char::from(digit).to_digit(16)?;
        // A mantissa of more than 64 bits is none of an `f64`, unless its last digits are 0.
        match mantissa.leading_zeros() >= 4 {
            true => mantissa = mantissa << 4 | u64::from(digit),
            false if digit == 0 => exponent += 4,
            false => return None,
        }
    }
    exponent -= 4 * i64::try_from(fraction.len()).ok()?;
    scaled(mantissa, exponent)
}

/// `mantissa * 2^exponent`, if an `f64` is exactly that.
fn scaled(mantissa: u64, exponent: i64) -> Option<f64> {
    const FRACTION_BITS: i64 = 52;
    const LEAST_EXPONENT: i64 = -1074;
    if mantissa == 0 {
        return Some(0.0);
    }
    let spare = mantissa.trailing_zeros();
    let (mantissa, exponent) = (mantissa >> spare, exponent + i64::from(spare));
    let bits = i64::from(u64::BITS - mantissa.leading_zeros());
    // The exponent of the leading bit.
    let leading = exponent + bits - 1;
    if bits > FRACTION_BITS + 1 || leading > 1023 || exponent < LEAST_EXPONENT {
        return None;
    }
    let raw = match leading >= -1022 {
        true => {
            let fraction = mantissa << (FRACTION_BITS + 1 - bits) & ((1 << FRACTION_BITS) - 1);
            (leading + 1023).cast_unsigned() << FRACTION_BITS | fraction
        }
        false => mantissa << (exponent - LEAST_EXPONENT),
    };
    Some(f64::from_bits(raw))
}

/// The code of a value in a float type of 8 bits, found among all of them.
fn eight_bits(value: f64, dtype: DType) -> Option<u8> {
    (0..=u8::MAX).find(|&code| {
        let found = from_eight_bits(code, dtype);
        match value.is_nan() {
            true => found.is_nan(),
            false => found == value && found.is_sign_negative() == value.is_sign_negative(),
        }
    })
}

/// The value of a code: `fp8e5m2` is the upper half of an fp16, `fp8e4m3fn` has one NaN of each sign and no infinities.
fn from_eight_bits(code: u8, dtype: DType) -> f64 {
    if dtype == DType::F8E5M2 {
        return f16::from_bits(u16::from(code) << 8).to_f64();
    }
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (code >> 3 & 0xf, f64::from(code & 7));
    match (exponent, code & 0x7f) {
        (_, 0x7f) => f64::NAN,
        (0, _) => sign * fraction * 2f64.powi(-9),
        _ => sign * (8.0 + fraction) * 2f64.powi(i32::from(exponent) - 10),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pushed(text: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        match dtype.is_float() {
            true => push_float(text, dtype, &mut out)?,
            false => push_int(text, dtype, &mut out)?,
        }
        Ok(out)
    }

    fn f32s(text: &str) -> f32 {
        f32::from_le_bytes(pushed(text, DType::F32).unwrap().try_into().unwrap())
    }

    #[test]
    fn hexadecimal_floats_are_exact_or_refused() {
        assert_eq!(f32s("-0x1.e28358p-6").to_bits(), 0xbcf1_41ac);
        assert_eq!(f32s("0x1.388p+13"), 10_000.0);
        assert_eq!((f32s("0x0p+0"), f32s("-0x0p+0").to_bits()), (0.0, 1 << 31));
        assert_eq!(f32s("0x1p-149"), f32::from_bits(1));
        assert_eq!(f32s("-inf"), f32::NEG_INFINITY);
        assert!(f32s("nan").is_nan() && f32s("-nan").is_sign_negative());
        assert_eq!(pushed("0x1p-24", DType::F16).unwrap(), [1, 0]);
        assert_eq!(pushed("-0x1.ffcp+15", DType::F16).unwrap(), f16::MIN.to_le_bytes());
        assert_eq!(pushed("0x1p-1074", DType::F64).unwrap(), 1u64.to_le_bytes());
        for (text, dtype) in [
            ("0x1p-25", DType::F16),
            ("0x1p+16", DType::F16),
            ("0x1.001p+0", DType::F16),
            ("0x1p-150", DType::F32),
            ("0x1.ffffffp+0", DType::F32),
            ("0x1p-1075", DType::F64),
            ("0x1p+1024", DType::F64),
            ("0x1.ffffffffffffffffp+0", DType::F64),
            ("0x1.8", DType::F32),
            ("0xp+1", DType::F32),
            ("0x1p", DType::F32),
            ("0x1p99999999999", DType::F32),
            ("infinity", DType::F32),
            ("1e999", DType::F32),
            ("0x1.1p+0", DType::F8E5M2),
        ] {
            assert!(pushed(text, dtype).is_err(), "{text} as {dtype}");
        }
    }

    #[test]
    fn decimal_floats_are_rounded() {
        assert_eq!(f32s("0.1"), 0.1);
        assert_eq!(pushed("0.1", DType::F16).unwrap(), f16::from_f32(0.1).to_le_bytes());
        assert_eq!(f32s("-10000"), -10_000.0);
    }

    #[test]
    fn integers_keep_within_their_type() {
        assert_eq!(pushed("-8", DType::I4).unwrap(), [8]);
        assert_eq!(pushed("63", DType::U6).unwrap(), [63]);
        assert_eq!(pushed("-1", DType::I16).unwrap(), [255, 255]);
        assert_eq!(pushed("18446744073709551615", DType::U64).unwrap(), [255; 8]);
        for (text, dtype) in [
            ("8", DType::I4),
            ("-1", DType::U8),
            ("2147483648", DType::I32),
            ("18446744073709551616", DType::U64),
            ("1.5", DType::I32),
            ("0x1p+0", DType::I32),
            ("", DType::I32),
        ] {
            assert!(pushed(text, dtype).is_err(), "{text} as {dtype}");
        }
    }

    proptest! {
        /// The standard library has no hexadecimal floats, so the text is made from the bits.
        #[test]
        fn every_float_survives_its_bits(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) & 0x7ff);
            let (lead, exponent) = if exponent == 0 { (0, -1022) } else { (1, exponent.cast_signed() - 1023) };
            let sign = if value.is_sign_negative() { "-" } else { "" };
            let text = format!("{sign}0x{lead}.{fraction:013x}p{exponent:+}");
            prop_assert_eq!(pushed(&text, DType::F64).unwrap(), value.to_le_bytes());
        }
    }
}
