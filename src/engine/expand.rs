//! `$$name$$` in strings: which names a string uses, and putting values in their place (protocol 2.6; decisions C-11).

use std::collections::BTreeMap;

use crate::protocol::keys::Reads;
use crate::protocol::values::{SECRET_PREFIX, VALUES, ValueName};

/// Values that are set, by name.
pub type Values = BTreeMap<ValueName, String>;

/// What stands on each side of a value's name.
const MARK: &str = "$$";

/// A piece of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Itself.
    Text(&'a str),
    /// A value's name, whether or not there is such a value.
    Name(&'a str),
}

/// The pieces of a string, in order. Whatever is no `$$name$$` is text.
pub fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    let mut pending: Option<&str> = None;
    std::iter::from_fn(move || {
        if let Some(name) = pending.take() {
            return Some(Piece::Name(name));
        }
        if rest.is_empty() {
            return None;
        }
        // The first `$$` that begins a name; each candidate that does not is text, one `$` at a time.
        let mut from = 0;
        while let Some(found) = rest.get(from..).and_then(|tail| tail.find(MARK)) {
            let at = from + found;
            if let Some(name) = name_at(rest.get(at + MARK.len()..).unwrap_or_default()) {
                let before = rest.get(..at).unwrap_or_default();
                rest = rest.get(at + 2 * MARK.len() + name.len()..).unwrap_or_default();
                if before.is_empty() {
                    return Some(Piece::Name(name));
                }
                pending = Some(name);
                return Some(Piece::Text(before));
            }
            from = at + 1;
        }
        Some(Piece::Text(std::mem::take(&mut rest)))
    })
}

/// The name that `rest`, what follows a `$$`, begins with and closes.
fn name_at(rest: &str) -> Option<&str> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let prefix = if rest.starts_with(SECRET_PREFIX) { SECRET_PREFIX.len() } else { 0 };
    let length = rest.bytes().skip(prefix).take_while(|byte| is_of_name(*byte)).count();
    let name = rest.get(..prefix + length).filter(|_| length > 0)?;
    rest.get(name.len()..)?.starts_with(MARK).then_some(name)
}

/// The names of the values a string uses, in order, read whole.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Name(name) => Some(name),
        Piece::Text(_) => None,
    })
}

/// Whether a string names this value.
#[must_use]
pub fn uses(text: &str, value: ValueName) -> bool {
    names(text).any(|name| name == value.word())
}

/// Whether a string's last piece is this value.
#[must_use]
pub fn ends_in(text: &str, value: ValueName) -> bool {
    pieces(text).last() == Some(Piece::Name(value.word()))
}

/// The first name a string uses that is not among these values.
#[must_use]
pub fn first_unset<'a>(text: &'a str, set: &dyn Fn(ValueName) -> bool) -> Option<&'a str> {
    names(text).find(|name| !ValueName::from_word(name).is_some_and(set))
}

/// Why a string could not be expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unexpanded {
    /// It names a value that is not set.
    Unset(String),
    /// All strings together are longer than the bound.
    TooLong,
}

/// Puts values in place. Values hold no values: what is put in place is not read again.
#[derive(Debug)]
pub struct Expander<'a> {
    values: &'a Values,
    /// Where the process sees the workspace, when elsewhere than the host does.
    workspace_at: Option<&'a str>,
    /// How many bytes may still be made: a short run can name a long value ten thousand times.
    left_bytes: usize,
    /// Whether something was longer than that.
    too_long: bool,
}

impl<'a> Expander<'a> {
    /// Expands with these values, to at most `bytes_max` bytes in all.
    #[must_use]
    pub fn new(values: &'a Values, workspace_at: Option<&'a str>, bytes_max: usize) -> Self {
        Self { values, workspace_at, left_bytes: bytes_max, too_long: false }
    }

    /// The string with its values in place, as `reads` says.
    ///
    /// # Errors
    /// [`Unexpanded`].
    pub fn expand(&mut self, text: &str, reads: Reads) -> Result<String, Unexpanded> {
        if reads == Reads::Nothing {
            return self.keep(text, String::new());
        }
        let mut out = String::new();
        for piece in pieces(text) {
            out = match piece {
                Piece::Text(text) => self.keep(text, out)?,
                Piece::Name(name) => {
                    let value = ValueName::from_word(name).and_then(|name| Some((name, self.values.get(&name)?)));
                    let (name, value) = value.ok_or_else(|| Unexpanded::Unset(name.to_owned()))?;
                    let value = if reads == Reads::Process { self.seen(name, value) } else { value.clone() };
                    self.keep(&value, out)?
                }
            };
        }
        Ok(out)
    }

    /// The string with the values that are set in their place and every other name as written; as written throughout
    /// when it would be too long. For comparing before all is set, never for use.
    pub fn expand_known(&mut self, text: &str, reads: Reads) -> String {
        let mut out = String::new();
        for piece in pieces(text) {
            let (piece, reads) = match piece {
                Piece::Text(text) => (text.to_owned(), Reads::Nothing),
                Piece::Name(name) => (format!("{MARK}{name}{MARK}"), reads),
            };
            match self.expand(&piece, reads) {
                Ok(value) => out.push_str(&value),
                Err(Unexpanded::Unset(_)) => out.push_str(&piece),
                Err(Unexpanded::TooLong) => return text.to_owned(),
            }
        }
        out
    }

    /// How many bytes may still be made.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// Whether anything was too long, so that what [`Self::expand_known`] answered may be as written.
    #[must_use]
    pub fn was_too_long(&self) -> bool {
        self.too_long
    }

    fn keep(&mut self, text: &str, mut out: String) -> Result<String, Unexpanded> {
        let Some(left_bytes) = self.left_bytes.checked_sub(text.len()) else {
            self.too_long = true;
            return Err(Unexpanded::TooLong);
        };
        self.left_bytes = left_bytes;
        out.push_str(text);
        Ok(out)
    }

    /// A value as the process sees it: the workspace and what lies within it stand under `workspace_at`.
    fn seen(&self, name: ValueName, value: &str) -> String {
        let moves = VALUES.iter().any(|row| row.name == name && row.moves);
        let workspace = self.values.get(&ValueName::Workspace);
        match (self.workspace_at, workspace) {
            (Some(place), Some(workspace)) if moves => match value.strip_prefix(workspace.as_str()) {
                Some(within) if within.is_empty() || within.starts_with('/') => format!("{place}{within}"),
                _ => value.to_owned(),
            },
            _ => value.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(ValueName, &str)]) -> Values {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    fn expand(text: &str, values: &Values) -> Result<String, Unexpanded> {
        Expander::new(values, None, 1 << 20).expand(text, Reads::Host)
    }

    #[test]
    fn v2_2_6_01_a_value_is_a_name_between_two_marks() {
        let set = values(&[(ValueName::Run, "R")]);
        assert_eq!(expand("a$$run$$b$$run$$", &set).as_deref(), Ok("aRbR"));
        for itself in ["$$run-x$$", "$$ run$$", "$run$", "$$run", "$$$$", "$$rün$$", "$$secret:$$"] {
            assert_eq!(expand(itself, &set).as_deref(), Ok(itself));
        }
    }

    #[test]
    fn v2_2_6_02_everything_else_is_itself() {
        for itself in ["${HOME}", "$$", "a$$b", "$", "", "$$$", "é$$"] {
            assert_eq!(expand(itself, &Values::new()).as_deref(), Ok(itself));
        }
    }

    #[test]
    fn names_are_read_whole_and_from_the_left() {
        let set = values(&[(ValueName::Run, "R"), (ValueName::Root, "/r")]);
        assert_eq!(expand("$$$run$$", &set).as_deref(), Ok("$R"));
        assert_eq!(expand("$$root$$run$$", &set).as_deref(), Ok("/rrun$$"));
        assert_eq!(expand("$$a$$$run$$", &values(&[])), Err(Unexpanded::Unset("a".to_owned())));
        assert!(uses("x$$run$$", ValueName::Run) && !uses("$$running$$", ValueName::Run));
        assert!(ends_in("$$root$$/$$run$$", ValueName::Run) && !ends_in("$$run$$/", ValueName::Run));
        assert!(!ends_in("$$root$$run$$", ValueName::Run));
    }

    #[test]
    fn v2_2_6_06_an_unset_or_unknown_name_is_no_text() {
        assert_eq!(expand("$$tree$$", &Values::new()), Err(Unexpanded::Unset("tree".to_owned())));
        assert_eq!(expand("$$password$$", &Values::new()), Err(Unexpanded::Unset("password".to_owned())));
        assert_eq!(expand("$$secret:TOK$$", &Values::new()), Err(Unexpanded::Unset("secret:TOK".to_owned())));
    }

    #[test]
    fn what_is_put_in_place_is_not_read_again() {
        let set = values(&[(ValueName::ProcessUser, "$$run$$"), (ValueName::Run, "R")]);
        assert_eq!(expand("$$process_user$$", &set).as_deref(), Ok("$$run$$"));
    }

    #[test]
    fn c_11_the_process_sees_the_workspace_at_its_place() {
        let set = values(&[
            (ValueName::Root, "/w"),
            (ValueName::Workspace, "/w/x"),
            (ValueName::Tree, "/w/x/tree"),
            (ValueName::ProcessClone, "/w/xy"),
        ]);
        let mut expander = Expander::new(&set, Some("/workspace"), 1 << 20);
        let text = "$$workspace$$ $$tree$$ $$process_clone$$ $$root$$";
        assert_eq!(expander.expand(text, Reads::Process).as_deref(), Ok("/workspace /workspace/tree /w/xy /w"));
        assert_eq!(expander.expand(text, Reads::Host).as_deref(), Ok("/w/x /w/x/tree /w/xy /w"));
        assert_eq!(expander.expand(text, Reads::Nothing).as_deref(), Ok(text));
    }

    #[test]
    fn a_long_value_named_many_times_is_bounded() {
        let set = values(&[(ValueName::Run, &"r".repeat(1000))]);
        let text = "$$run$$".repeat(100_000);
        assert_eq!(Expander::new(&set, None, 1 << 20).expand(&text, Reads::Host), Err(Unexpanded::TooLong));
    }
}
