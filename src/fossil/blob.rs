//! An artifact's bytes out of a repository's tables: inflated, its deltas followed, checked against its name.
//!
//! A damaged or hostile row is an answer (`Err(why)`), a failing database an error; neither is a panic.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _};
use sha1::Digest as _;

use super::delta;

/// Largest artifact read, in bytes.
pub const ARTIFACT_MAX: usize = 64 << 20;
/// Longest chain of deltas followed.
pub const CHAIN_MAX: usize = 10_000;

pub(super) fn unsigned(row: &rusqlite::Row<'_>, at: usize) -> Result<u64, rusqlite::Error> {
    let value: i64 = row.get(at)?;
    u64::try_from(value).map_err(|_negative| rusqlite::Error::IntegralValueOutOfRange(at, value))
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The artifact at `rid`, whose bytes have the hash it is named by.
pub(super) fn checked(db: &Connection, rid: u64, hash: &str) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    let bytes = match content(db, rid)? {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Err(why)),
    };
    let is = match hash.len() {
        64 => hex(&sha3::Sha3_256::digest(&bytes)),
        40 => hex(&sha1::Sha1::digest(&bytes)),
        _ => return Ok(Err("its name is no hash".to_owned())),
    };
    Ok(if is == hash { Ok(bytes) } else { Err(format!("its bytes have another hash, {is}")) })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Inflates the artifact at `rid`, following its deltas.
fn content(db: &Connection, rid: u64) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    let mut source = db.prepare_cached("SELECT srcid FROM delta WHERE rid = ?1")?;
    let mut chain = vec![rid];
    let mut seen = HashSet::from([rid]);
    let mut at = rid;
    while let Some(from) = source.query_row([signed(at)], |row| unsigned(row, 0)).optional()? {
        if !seen.insert(from) {
            return Ok(Err("a delta of itself".to_owned()));
        }
        if chain.len() >= CHAIN_MAX {
            return Ok(Err(format!("a chain of more than {CHAIN_MAX} deltas")));
        }
        chain.push(from);
        at = from;
    }
    let mut bytes: Option<Vec<u8>> = None;
    for rid in chain.into_iter().rev() {
        let piece = match inflated(db, rid)? {
            Ok(piece) => piece,
            Err(why) => return Ok(Err(format!("row {rid}: {why}"))),
        };
        bytes = Some(match bytes {
            None => piece,
            Some(source) => match delta::apply(&source, &piece, ARTIFACT_MAX) {
                Ok(whole) => whole,
                Err(why) => return Ok(Err(format!("row {rid}: its delta {}", why.0))),
            },
        });
    }
    Ok(bytes.ok_or_else(|| "nothing to read".to_owned()))
}

/// One row's bytes: a 4-byte length, then a zlib stream of just that length.
fn inflated(db: &Connection, rid: u64) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    let mut statement = db.prepare_cached("SELECT length(content), size FROM blob WHERE rid = ?1")?;
    let sizes: Option<(Option<i64>, i64)> =
        statement.query_row([signed(rid)], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((Some(stored), _)) = sizes.filter(|(_, size)| *size >= 0) else {
        return Ok(Err("it has not come".to_owned()));
    };
    // Compressed bytes are never much more than plain ones.
    if usize::try_from(stored).map_or(true, |stored| stored > ARTIFACT_MAX + 4096) {
        return Ok(Err(format!("larger than {ARTIFACT_MAX} bytes")));
    }
    let mut statement = db.prepare_cached("SELECT content FROM blob WHERE rid = ?1")?;
    let content: Vec<u8> = statement.query_row([signed(rid)], |row| row.get(0))?;
    let Some((length, stream)) = content.split_first_chunk::<4>() else {
        return Ok(Err("stored without its length".to_owned()));
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > ARTIFACT_MAX {
        return Ok(Err(format!("larger than {ARTIFACT_MAX} bytes")));
    }
    Ok(match miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(stream, length) {
        Ok(bytes) if bytes.len() == length => Ok(bytes),
        Ok(_) => Err("stored with another length".to_owned()),
        Err(error) => Err(format!("cannot be inflated: {error}")),
    })
}
