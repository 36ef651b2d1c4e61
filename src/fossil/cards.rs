//! The cards of a forum post or a ticket change: what it says of itself, none of it trusted.

/// Most bytes of a remark or post that are kept; a longer one is not read.
pub(super) const TEXT_MAX: usize = 8 << 20;

/// A forum post or a ticket change as its artifact tells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) kind: Kind,
    pub(super) title: Option<String>,
    pub(super) text: String,
    pub(super) author: String,
    /// The version this one edits (P card).
    pub(super) edits: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// G: the thread's first post, `None` for that itself; I: the post answered.
    Forum { root: Option<String>, answers: Option<String> },
    /// K: the ticket.
    Ticket { id: String },
}

/// Why an artifact tells no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotRead {
    /// A file attached to a ticket, which Fossil lists among ticket changes.
    Attachment,
    /// What Fossil would not have listed, or more than is read.
    Broken(&'static str),
}

impl NotRead {
    pub(super) fn why(&self) -> &'static str {
        match self {
            Self::Attachment => "an attachment",
            Self::Broken(why) => why,
        }
    }
}

impl From<&'static str> for NotRead {
    fn from(why: &'static str) -> Self {
        Self::Broken(why)
    }
}

/// Reads the cards of `artifact`, or says why they are none of a post or ticket change.
pub(super) fn read(artifact: &[u8]) -> Result<Told, NotRead> {
    let (mut root, mut answers, mut title, mut author, mut edits) = (None, None, None, None, None);
    let (mut text, mut ticket, mut remark, mut more_remark) = (None, None, None, None);
    let mut rest = artifact;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| *b == b'\n').ok_or("a card without an end")?;
        let (line, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or(&[]);
        let line = std::str::from_utf8(line).map_err(|_bytes| "a card that is not UTF-8")?;
        let mut words = line.split(' ');
        match words.next().unwrap_or("") {
            "G" => once(&mut root, hash(words.next())?)?,
            "I" => once(&mut answers, hash(words.next())?)?,
            "P" => once(&mut edits, hash(words.next())?)?,
            "H" => once(&mut title, plain(words.next().unwrap_or("")))?,
            "U" => once(&mut author, plain(words.next().unwrap_or("")))?,
            "K" => once(&mut ticket, hash(words.next())?)?,
            "W" => {
                let size: usize = words.next().and_then(|n| n.parse().ok()).ok_or("a W card without a size")?;
                if size > TEXT_MAX {
                    return Err("a text that is too large".into());
                }
                let body = rest.get(..size).ok_or("a W card cut short")?;
                rest = rest.get(size..).and_then(|rest| rest.strip_prefix(b"\n")).ok_or("a W card without an end")?;
                once(&mut text, String::from_utf8_lossy(body).into_owned())?;
            }
            "J" => {
                let (name, value) = (words.next().unwrap_or(""), plain(words.next().unwrap_or("")));
                match plain(name).as_str() {
                    "icomment" => once(&mut remark, value)?,
                    "+icomment" => once(&mut more_remark, value)?,
                    "title" => once(&mut title, value)?,
                    _ => {}
                }
            }
            "D" | "N" | "Z" => {}
            "A" => return Err(NotRead::Attachment),
            _ => return Err("a card that posts and ticket changes do not have".into()),
        }
    }
    let kind = match (ticket, text.is_some()) {
        (Some(id), false) => Kind::Ticket { id },
        (None, true) => Kind::Forum { root, answers },
        _ => return Err("neither a post nor a ticket change".into()),
    };
    let text = match (text, remark, more_remark) {
        (Some(text), None, None) | (None, Some(text), None) | (None, None, Some(text)) => text,
        (None, None, None) => String::new(),
        _ => return Err("more than one text".into()),
    };
    if text.len() > TEXT_MAX {
        return Err("a text that is too large".into());
    }
    Ok(Told { kind, title, text, author: author.unwrap_or_default(), edits })
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), &'static str> {
    if slot.is_some() {
        return Err("a card given twice");
    }
    *slot = Some(value);
    Ok(())
}

fn hash(word: Option<&str>) -> Result<String, &'static str> {
    let word = word.unwrap_or("");
    let hex = word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex && matches!(word.len(), 40 | 64) { Ok(word.to_owned()) } else { Err("a hash that is none") }
}

/// Undoes Fossil's escapes: `\s` space, `\n` newline and so on.
pub(super) fn plain(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut chars = word.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('s') => out.push(' '),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('v') => out.push('\u{b}'),
            Some('f') => out.push('\u{c}'),
            Some('0') => out.push('\0'),
            Some(other) => out.push(other),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ROOT: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const ID: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn a_reply_is_read() {
        let artifact =
            format!("D 2026-01-01T00:00:00.000\nG {ROOT}\nI {ROOT}\nN text/x-markdown\nU a\\sb\nW 5\na\nW 9\nZ 00\n");
        let told = read(artifact.as_bytes()).unwrap();
        assert_eq!(told.text, "a\nW 9");
        assert_eq!(told.author, "a b");
        assert_eq!(told.kind, Kind::Forum { root: Some(ROOT.into()), answers: Some(ROOT.into()) });
    }

    #[test]
    fn a_ticket_change_is_read() {
        let artifact =
            format!("D 2026-01-01T00:00:00.000\nJ icomment one\\stwo\\nthree\\\\n\nJ login x\nK {ID}\nU a\nZ 00\n");
        let told = read(artifact.as_bytes()).unwrap();
        assert_eq!(told.text, "one two\nthree\\n");
        assert_eq!(told.kind, Kind::Ticket { id: ID.into() });
    }

    #[test]
    fn whatever_is_cut_or_doubled_is_refused_without_a_panic() {
        let good = format!("G {ROOT}\nU a\nW 5\nhello\nZ 00\n");
        assert!(read(good.as_bytes()).is_ok());
        for cut in 0..good.len() - 5 {
            drop(read(good.as_bytes().get(..cut).unwrap()));
        }
        for bad in [
            format!("G {ROOT}\nG {ROOT}\nW 0\n\n"),
            format!("K {ID}\nW 1\na\n"),
            format!("J +icomment a\nJ icomment b\nK {ID}\n"),
            "W 99999999999999999999\n".into(),
            "W 5\nhell".into(),
            "W 1\nabc\n".into(),
            "F x\n".into(),
            "-----BEGIN PGP SIGNED MESSAGE-----\n".into(),
            String::new(),
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
