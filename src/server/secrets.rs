//! The server's secrets (C-71): `ocx/secrets/NAME` beside the repository, one text each.
//!
//! Nothing here reads one back. The actor on this host reads them there, its settings naming that folder.

use std::fmt;
use std::path::PathBuf;

use super::kept::Folder;
use super::on_host::OnHost;

/// Largest secret, in bytes.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;
/// Longest name, in bytes: a file's name, with room for the ending it has while it is written.
pub const NAME_BYTES_MAX: usize = 200;
const LOCK: &str = "secrets.lock";

/// A secret's name: letters, digits and `_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName(String);

impl SecretName {
    /// The text as such a name, or nothing when its form is wrong.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let formed = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        formed.then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A secret's text, fit for an environment.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The text that `bytes` are, without one newline at its end, which is the shell's rather than the secret's.
    ///
    /// # Errors
    /// Why it cannot be one: empty, too large, no UTF-8, or with a NUL, which no environment can hold.
    pub fn new(bytes: Vec<u8>) -> Result<Self, String> {
        if bytes.len() as u64 > SECRET_BYTES_MAX {
            return Err(format!("the secret is larger than {SECRET_BYTES_MAX} bytes"));
        }
        // Without the parser's words, which could show some of it.
        let mut text = String::from_utf8(bytes).map_err(|_bytes| "the secret is no UTF-8 text".to_owned())?;
        if text.ends_with('\n') {
            text.pop();
        }
        match text {
            text if text.is_empty() => Err("the secret is empty; --remove takes one away".to_owned()),
            text if text.contains('\0') => Err("the secret holds a NUL, which no environment can".to_owned()),
            text => Ok(Self(text)),
        }
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// Keeps `text` as `name`, in place of what was there; with `dry` only says so. Gives its file and whether one was there.
///
/// # Errors
/// With the path that failed.
pub fn keep(host: &OnHost, name: &SecretName, text: &SecretText, dry: bool) -> Result<(PathBuf, bool), String> {
    let folder = folder(host)?;
    let lock = folder.lock(LOCK).map_err(kept)?;
    let file = folder.file(name.as_str());
    let was = file.symlink_metadata().is_ok();
    if !dry {
        folder.write(name.as_str(), text.0.as_bytes()).map_err(kept)?;
    }
    drop(lock);
    Ok((file, was))
}

/// Removes the secret `name`; with `dry` only says so. Gives its file.
///
/// # Errors
/// When there is none, or with the path that failed.
pub fn remove(host: &OnHost, name: &SecretName, dry: bool) -> Result<PathBuf, String> {
    let folder = folder(host)?;
    let lock = folder.lock(LOCK).map_err(kept)?;
    let file = folder.file(name.as_str());
    let was = if dry { file.symlink_metadata().is_ok() } else { folder.remove(name.as_str()).map_err(kept)? };
    drop(lock);
    if was { Ok(file) } else { Err(format!("there is no secret {}: {} is not there", name.as_str(), file.display())) }
}

fn folder(host: &OnHost) -> Result<Folder, String> {
    Folder::beside(host.repository()).and_then(|folder| folder.within("secrets")).map_err(kept)
}

fn kept(error: std::io::Error) -> String {
    format!("secrets: {error}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn c_71_names_are_letters_digits_and_underscores() {
        assert_eq!(SecretName::new("TOK_2x").unwrap().as_str(), "TOK_2x");
        for wrong in ["", "a-b", "a.b", "../a", "a/b", "é", "a b", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(SecretName::new(wrong), None, "{wrong}");
        }
        // The lock and a draft have names that are no secret's.
        assert!(SecretName::new(LOCK).is_none() && SecretName::new("TOK.part").is_none());
    }

    #[test]
    fn a_secret_is_a_bounded_text_that_an_environment_can_hold() {
        let text = |bytes: &[u8]| SecretText::new(bytes.to_vec()).map(|it| it.0);
        assert_eq!(text(b"hunter2\n"), Ok("hunter2".to_owned()));
        assert_eq!(text("é\n\n".as_bytes()), Ok("é\n".to_owned()));
        for wrong in [b"".as_slice(), b"\n", b"a\0b", b"\xff"] {
            assert!(text(wrong).is_err());
        }
        let most = vec![b'x'; usize::try_from(SECRET_BYTES_MAX).unwrap()];
        assert!(text(&most).is_ok());
        assert!(text(&[most, vec![b'x']].concat()).is_err());
        assert_eq!(format!("{:?}", SecretText::new(b"hunter2".to_vec()).unwrap()), "SecretText(..)");
    }
}
