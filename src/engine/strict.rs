//! Reads one JSON value that repeats no key at any depth and is nested no deeper than a bound (decisions C-13).
//!
//! `serde_json::Value` by itself keeps the last of a repeated key in silence.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Deepest nesting of a block: its own object is level 1.
pub(super) const DEPTH_MAX: usize = 64;
/// Largest block, in bytes.
pub(super) const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The text as one JSON value with white space around it and nothing else.
///
/// # Errors
/// Where it is none, and why, for people.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    if text.len() > BLOCK_BYTES_MAX {
        return Err(format!("it is larger than {BLOCK_BYTES_MAX} bytes"));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict { depth: 0 }.deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| error.to_string())
}

/// One value, inside this many lists and objects.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn inside<E: Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX { Err(E::custom("nested too deep")) } else { Ok(Self { depth: self.depth + 1 }) }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(inside)?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("a key is repeated"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_2_1_08_a_key_repeated_at_any_depth_is_no_json_of_ours() {
        assert!(parse(r#"{"a":1,"b":{"a":1}}"#).is_ok());
        for repeated in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#, r#"{"x":{"y":{"a":1,"b":2,"a":3}}}"#] {
            assert!(parse(repeated).is_err(), "{repeated}");
        }
    }

    #[test]
    fn c_13_one_value_and_white_space_only() {
        assert!(parse(" {} \r\n\t").is_ok());
        for wrong in ["{} {}", "{}x", "", "{", "{} // x", "\u{feff}{}", "{'a':1}", "[1,]"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn c_13_64_levels_are_read_and_65_are_not() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&nested(64)).is_ok());
        assert!(parse(&nested(65)).is_err());
        assert!(parse(&nested(10_000)).is_err());
        assert!(parse(&"{\"a\":".repeat(10_000)).is_err());
    }

    #[test]
    fn c_13_a_block_above_one_mebibyte_is_not_read() {
        let block = |bytes: usize| format!("\"{}\"", "a".repeat(bytes - 2));
        assert!(parse(&block(BLOCK_BYTES_MAX)).is_ok());
        assert!(parse(&block(BLOCK_BYTES_MAX + 1)).is_err());
    }
}
