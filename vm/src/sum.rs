//! SHA-256, as Debian's package lists have it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

/// Of some bytes, in hexadecimal.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Of a file.
///
/// # Errors
/// As reading has them.
pub(crate) fn of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut sum = Sha256::new();
    let mut block = Vec::with_capacity(BLOCK);
    while file.by_ref().take(BLOCK as u64).read_to_end(&mut block)? > 0 {
        sum.update(&block);
        block.clear();
    }
    Ok(hex(&sum.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_sha256() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::of_bytes(b"abc"), abc);
    }
}
