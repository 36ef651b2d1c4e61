//! Check-ins of a clone: a name to a full hash, a hash to its files. Nothing of a check-in is trusted but its own hash.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::Duration;

use super::store::{CloneFile, StoreError};

/// Longest wait for Fossil to resolve a name.
const RESOLVE_WAIT: Duration = Duration::from_secs(60);
/// Longest check-in name, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// One file of a check-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// Its path below the check-in's top.
    pub name: String,
    /// The full hash of its content; a symbolic link's is its target.
    pub hash: String,
    /// Whether the check-in marks it executable.
    pub executable: bool,
}

impl CloneFile {
    /// The full hash of the one check-in that Fossil resolves `name` to: a branch, a tag, a date, a prefix. None for a
    /// name it resolves to none or to several, and for one that would be an option (decisions C-98).
    ///
    /// # Errors
    /// When Fossil cannot be run.
    pub fn resolve(&self, name: &str) -> Result<Option<String>, StoreError> {
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('-');
        if !is_name || name.chars().any(char::is_control) {
            return Ok(None);
        }
        let args = ["whatis", "--type", "ci", name, "-R"].map(OsStr::new);
        let args: Vec<&OsStr> = args.into_iter().chain([self.path().as_os_str()]).collect();
        let ran = self.program().run(&args, RESOLVE_WAIT).map_err(|error| StoreError::Sqlite {
            file: self.path().to_owned(),
            why: format!("resolving a name: {error}"),
        })?;
        let mut found = ran.stdout.lines().filter_map(|line| line.strip_prefix("artifact:")).map(str::trim);
        let (first, second) = (found.next(), found.next());
        Ok(first.filter(|it| second.is_none() && is_hash(it)).map(str::to_owned))
    }

    /// The files of the check-in of this full hash, by name; none when it has not come or is no check-in.
    ///
    /// # Errors
    /// When the file cannot be read, or the check-in is damaged or has a form this does not read.
    pub fn files_of(&self, checkin: &str) -> Result<Option<Vec<TreeFile>>, StoreError> {
        let broken = |why: &str| StoreError::Artifact { name: checkin.to_owned(), why: why.to_owned() };
        let Some(bytes) = self.artifact(checkin)? else { return Ok(None) };
        let Some(manifest) = read(&bytes).map_err(broken)? else { return Ok(None) };
        let mut files = BTreeMap::new();
        if let Some(baseline) = &manifest.baseline {
            let bytes = self.artifact(baseline)?.ok_or_else(|| broken("its baseline has not come"))?;
            let baseline = read(&bytes).map_err(broken)?.ok_or_else(|| broken("its baseline is no check-in"))?;
            if baseline.baseline.is_some() {
                return Err(broken("its baseline has a baseline itself"));
            }
            files.extend(baseline.files);
        }
        files.extend(manifest.files);
        Ok(Some(files.into_values().flatten().collect()))
    }
}

fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// What a check-in's artifact says of its files; none for one that a delta takes away.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    baseline: Option<String>,
    files: BTreeMap<String, Option<TreeFile>>,
}

#[cfg(test)]
impl Manifest {
    pub(super) fn files(&self) -> impl Iterator<Item = &TreeFile> {
        self.files.values().flatten()
    }
}

/// Reads a manifest's cards; none when the artifact is no check-in.
pub(super) fn read(artifact: &[u8]) -> Result<Option<Manifest>, &'static str> {
    // A signed one has its signature around the cards.
    let Ok(text) = std::str::from_utf8(artifact) else { return Ok(None) };
    let text = text.strip_prefix("-----BEGIN PGP SIGNED MESSAGE-----\n").map_or(text, |signed| {
        let cards = signed.split_once("\n\n").map_or("", |(_, cards)| cards);
        cards.split("-----BEGIN PGP SIGNATURE-----").next().unwrap_or("")
    });
    let mut manifest = Manifest::default();
    let (mut comment, mut checked) = (false, false);
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next().unwrap_or("") {
            "B" => {
                let hash = words.next().filter(|it| is_hash(it)).ok_or("a B card without a hash")?;
                manifest.baseline = Some(hash.to_owned());
            }
            "C" => comment = true,
            "Z" => checked = true,
            "F" => {
                let name = words.next().filter(|it| !it.is_empty()).ok_or("an F card without a name")?;
                let name = super::cards::plain(name);
                let file = words.next().map(|hash| {
                    let executable = words.next().is_some_and(|marks| marks.contains('x'));
                    let hash = is_hash(hash).then(|| hash.to_owned()).ok_or("an F card whose hash is none")?;
                    Ok::<_, &'static str>(TreeFile { name: name.clone(), hash, executable })
                });
                manifest.files.insert(name, file.transpose()?);
            }
            "D" | "N" | "P" | "Q" | "R" | "T" | "U" => {}
            // Another kind of artifact, or a file that looks a little like one.
            _ => return Ok(None),
        }
    }
    Ok((comment && checked).then_some(manifest))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn files_are_read_with_their_marks_and_names() {
        let (a, b) = ("a".repeat(64), "b".repeat(40));
        let text = format!("C one\nD 2026-12-01T13:03:01.726\nF a.txt {a}\nF sp\\sace {b} x\nF l {a} l\nU bob\nZ 0\n");
        let manifest = read(text.as_bytes()).unwrap().unwrap();
        let files: Vec<_> = manifest.files.into_values().flatten().map(|it| (it.name, it.executable)).collect();
        assert_eq!(files, [("a.txt".to_owned(), false), ("l".to_owned(), false), ("sp ace".to_owned(), true)]);
    }

    #[test]
    fn a_delta_takes_files_away_by_naming_no_hash() {
        let a = "a".repeat(64);
        let manifest = read(format!("B {a}\nC x\nF gone\nF new {a}\nZ 0\n").as_bytes()).unwrap().unwrap();
        assert_eq!(manifest.baseline.as_deref(), Some(a.as_str()));
        assert_eq!(manifest.files.get("gone"), Some(&None));
        assert!(manifest.files.get("new").unwrap().is_some());
    }

    #[test]
    fn what_is_no_check_in_is_none() {
        for text in ["", "hello\n", "G 1\nC x\nZ 0\n", "C only a comment\n", "Z 0\n"] {
            assert_eq!(read(text.as_bytes()), Ok(None), "{text}");
        }
        assert_eq!(read(&[0xff, 0]), Ok(None));
        for text in ["C x\nF \nZ 0\n", "C x\nF a nothash\nZ 0\n", "B\nC x\nZ 0\n"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
