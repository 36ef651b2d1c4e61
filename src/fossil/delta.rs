//! Fossil's delta format: an artifact told as pieces of another. Bounded, and never a panic whatever the bytes.
//!
//! Format: SIZE newline, then `LENGTH@OFFSET,` (copy from the source) and `LENGTH:bytes` (insert) segments, then
//! `CHECKSUM;`. Numbers are in base 64, digits `0-9A-Z_a-z~`.

/// Why a delta gives no artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadDelta(pub(super) &'static str);

/// Applies `delta` to `source`; the result may not be over `max` bytes.
pub(super) fn apply(source: &[u8], delta: &[u8], max: usize) -> Result<Vec<u8>, BadDelta> {
    let mut rest = delta;
    let size = number(&mut rest)?;
    eat(&mut rest, b'\n')?;
    let size = usize::try_from(size).ok().filter(|size| *size <= max).ok_or(BadDelta("the result is too large"))?;
    // The size is a claim until it is met, so memory is taken as bytes come.
    let mut out = Vec::new();
    loop {
        let count = number(&mut rest)?;
        let (&kind, after) = rest.split_first().ok_or(BadDelta("cut short"))?;
        rest = after;
        let piece = match kind {
            b'@' => {
                let from = number(&mut rest)?;
                eat(&mut rest, b',')?;
                part(source, from, count).ok_or(BadDelta("copies beyond its source"))?
            }
            b':' => {
                let piece = part(rest, 0, count).ok_or(BadDelta("cut short"))?;
                rest = rest.get(piece.len()..).unwrap_or(&[]);
                piece
            }
            b';' => {
                if out.len() != size {
                    return Err(BadDelta("another size than it says"));
                }
                if u64::from(checksum(&out)) != count {
                    return Err(BadDelta("wrong checksum"));
                }
                return if rest.is_empty() { Ok(out) } else { Err(BadDelta("goes on after its end")) };
            }
            _ => return Err(BadDelta("unknown segment")),
        };
        if piece.len() > size - out.len() {
            return Err(BadDelta("longer than it says"));
        }
        out.extend_from_slice(piece);
    }
}

fn part(bytes: &[u8], from: u64, count: u64) -> Option<&[u8]> {
    let from = usize::try_from(from).ok()?;
    let end = from.checked_add(usize::try_from(count).ok()?)?;
    bytes.get(from..end)
}

fn eat(rest: &mut &[u8], wanted: u8) -> Result<(), BadDelta> {
    match rest.split_first() {
        Some((&byte, after)) if byte == wanted => {
            *rest = after;
            Ok(())
        }
        _ => Err(BadDelta("malformed")),
    }
}

fn number(rest: &mut &[u8]) -> Result<u64, BadDelta> {
    let mut value: u64 = 0;
    while let Some((&byte, after)) = rest.split_first() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'A'..=b'Z' => byte - b'A' + 10,
            b'_' => 36,
            b'a'..=b'z' => byte - b'a' + 37,
            b'~' => 63,
            _ => break,
        };
        value = value
            .checked_mul(64)
            .and_then(|v| v.checked_add(u64::from(digit)))
            .ok_or(BadDelta("a number too large"))?;
        *rest = after;
    }
    Ok(value)
}

/// The sum of the bytes as big-endian 32-bit words, the last padded with zeros.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.chunks(4).fold(0, |sum: u32, chunk| {
        let word = [0, 1, 2, 3].map(|i| chunk.get(i).copied().unwrap_or(0));
        sum.wrapping_add(u32::from_be_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SOURCE: &[u8] = b"0123456789 the source";
    /// Copies `0123456789`, inserts `-new`; the checksum is of `0123456789-new`.
    fn delta() -> Vec<u8> {
        let text = b"0123456789-new";
        format!("E\nA@0,4:-new{};", digits(u64::from(checksum(text)))).into_bytes()
    }

    fn digits(mut value: u64) -> String {
        const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
        let mut out = Vec::new();
        loop {
            out.insert(0, *DIGITS.get(usize::try_from(value % 64).unwrap()).unwrap());
            value /= 64;
            if value == 0 {
                return String::from_utf8(out).unwrap();
            }
        }
    }

    #[test]
    fn a_delta_is_applied() {
        assert_eq!(apply(SOURCE, &delta(), 1000).unwrap(), b"0123456789-new");
        assert_eq!(apply(SOURCE, &delta(), 13), Err(BadDelta("the result is too large")));
    }

    #[test]
    fn no_truncation_and_no_changed_byte_passes_as_another_text() {
        let good = delta();
        for cut in 0..good.len() {
            assert!(apply(SOURCE, good.get(..cut).unwrap(), 1000).is_err(), "cut at {cut}");
        }
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bad = good.clone();
                *bad.get_mut(at).unwrap() = byte;
                // Some bytes mean the same (`0` before a number); another text never passes the checksum unnoticed,
                // but for sums that happen to be equal, which the artifact's hash then catches.
                drop(apply(SOURCE, &bad, 1000));
            }
        }
    }

    #[test]
    fn huge_claims_take_no_memory() {
        for bad in
            ["~~~~~~~~~~~~~~\n1:a0;", "E\n~~~~~~@0,0;", "E\nA@~~~~~~~~~~,0;", "E\n~~~~~~:a", "2\n1:a1:b1:c0;", ""]
        {
            assert!(apply(SOURCE, bad.as_bytes(), usize::MAX).is_err(), "{bad}");
        }
    }
}
