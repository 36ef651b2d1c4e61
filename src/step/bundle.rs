//! The files of a check-in as they cross from the node to the `files` step through a pipe (decisions C-98): one entry a
//! file, then an end that tells a whole bundle from one cut short.
//!
//! An entry is its mark, its name's length, its name, its size and its bytes; numbers are big-endian.

use std::io::{self, Read, Write};

/// Most files of one bundle.
pub const FILES_MAX: u64 = 200_000;
/// Most bytes of all its files.
pub const BYTES_MAX: u64 = 8 << 30;
/// Longest name, in bytes (`PATH_MAX`).
pub const NAME_BYTES_MAX: usize = 4096;

const END: u8 = 0;
const PLAIN: u8 = 1;
const EXECUTABLE: u8 = 2;

/// One file just read; its bytes follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the check-in's top, parts separated by `/`.
    pub name: String,
    /// Whether it may be run.
    pub executable: bool,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// Writes one file.
///
/// # Errors
/// When the other end is gone, or the name is longer than [`NAME_BYTES_MAX`].
pub fn put(to: &mut impl Write, name: &str, executable: bool, content: &[u8]) -> io::Result<()> {
    let length = u16::try_from(name.len()).ok().filter(|it| usize::from(*it) <= NAME_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other(format!("a name of {} bytes", name.len())))?;
    to.write_all(&[if executable { EXECUTABLE } else { PLAIN }])?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(name.as_bytes())?;
    to.write_all(&u64::try_from(content.len()).map_err(io::Error::other)?.to_be_bytes())?;
    to.write_all(content)
}

/// Ends a bundle.
///
/// # Errors
/// When the other end is gone.
pub fn end(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[END])?;
    to.flush()
}

/// Reads the head of the next file; none at the bundle's end. Its bytes are to be read before the next head.
///
/// # Errors
/// When the bundle is cut short or not of its form.
pub fn next(from: &mut impl Read) -> io::Result<Option<Entry>> {
    let cut = |error: io::Error| {
        let cut = error.kind() == io::ErrorKind::UnexpectedEof;
        if cut { io::Error::new(error.kind(), "the check-in's files were cut short on their way") } else { error }
    };
    let [mark] = array(from).map_err(cut)?;
    let executable = match mark {
        END => return Ok(None),
        PLAIN => false,
        EXECUTABLE => true,
        other => return Err(io::Error::other(format!("a mark {other} between the check-in's files"))),
    };
    let length = usize::from(u16::from_be_bytes(array(from).map_err(cut)?));
    if length == 0 || length > NAME_BYTES_MAX {
        return Err(io::Error::other(format!("a file's name of {length} bytes")));
    }
    let mut name = vec![0; length];
    from.read_exact(&mut name).map_err(cut)?;
    let name = String::from_utf8(name).map_err(|_not| io::Error::other("a file's name that is not UTF-8"))?;
    let bytes = u64::from_be_bytes(array(from).map_err(cut)?);
    Ok(Some(Entry { name, executable, bytes }))
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
