//! Finds fenced code blocks at the top level of a text, by CommonMark's line rules (protocol 2.1; decisions C-12).
//!
//! The raw text is read whatever its mimetype: only what decides whether a line opens or closes a top-level fence is
//! looked at, which is fences, block quotes, list items and, for the last, paragraphs. HTML is text like any other.

/// The contents of each block whose opening may hold a message, in order.
pub(super) fn message_blocks(text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let mut open: Option<(Fence<'_>, usize)> = None;
    let mut containers = Containers::default();
    for Line { start, end, next } in (Lines { text, at: 0 }) {
        let line = text.get(start..end).unwrap_or_default();
        if let Some((fence, from)) = &open {
            if fence.is_closed_by(line) {
                if fence.may_hold_message() {
                    blocks.push(text.get(*from..start).unwrap_or_default());
                }
                open = None;
            }
        } else if containers.hold(line) {
            // Quoted or listed: not at the top level.
        } else if let Some(fence) = Fence::opened_by(line) {
            containers = Containers::default();
            open = Some((fence, next));
        } else {
            containers.pass(line);
        }
    }
    // A fence left open runs to the end of the text.
    if let Some((fence, from)) = open
        && fence.may_hold_message()
    {
        blocks.push(text.get(from..).unwrap_or_default());
    }
    blocks
}

/// One line: where it starts, where its text ends, where the next starts.
struct Line {
    start: usize,
    end: usize,
    next: usize,
}

/// CommonMark's lines: ended by `\n`, `\r\n` or `\r`.
struct Lines<'a> {
    text: &'a str,
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let start = self.at;
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        let (length, ending) = match rest.bytes().position(|byte| byte == b'\n' || byte == b'\r') {
            None => (rest.len(), 0),
            Some(length) => (length, if rest.get(length..).is_some_and(|end| end.starts_with("\r\n")) { 2 } else { 1 }),
        };
        self.at = start + length + ending;
        Some(Line { start, end: start + length, next: self.at })
    }
}

/// An opening fence.
struct Fence<'a> {
    mark: char,
    length: usize,
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn opened_by(line: &'a str) -> Option<Self> {
        let (spaces, rest) = indented(line);
        let mark = rest.chars().next().filter(|mark| *mark == '`' || *mark == '~')?;
        let info = rest.trim_start_matches(mark);
        let length = rest.len() - info.len();
        // CommonMark: a fence of backticks has none in its info string, or it is inline code.
        (spaces <= 3 && length >= 3 && !(mark == '`' && info.contains('`'))).then_some(Self { mark, length, info })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let (spaces, rest) = indented(line);
        let after = rest.trim_start_matches(self.mark);
        spaces <= 3 && rest.len() - after.len() >= self.length && after.chars().all(|c| c == ' ' || c == '\t')
    }

    /// Three backticks alone, or three and `json`, spaces around it allowed.
    fn may_hold_message(&self) -> bool {
        self.mark == '`' && self.length == 3 && matches!(self.info.trim_matches(' '), "" | "json")
    }
}

/// Leading spaces, and what follows them. A tab ends them: it reaches column four or is no indentation of a fence.
fn indented(line: &str) -> (usize, &str) {
    let rest = line.trim_start_matches(' ');
    (line.len() - rest.len(), rest)
}

/// What of CommonMark's containers stands open before a line.
#[derive(Default)]
struct Containers<'a> {
    /// The column at which the content of the outermost open list item starts.
    item: Option<usize>,
    /// Whether that item has had nothing but its marker: a blank line then closes it.
    bare: bool,
    /// Whether the line before was text of a paragraph, at whatever depth, that a plain line would go on with.
    text: bool,
    /// Whether that text stands in a block quote.
    quoted: bool,
    /// A fence open in the item, whose lines are no text.
    code: Option<Fence<'a>>,
}

impl<'a> Containers<'a> {
    /// Whether the line lies in a block quote or a list item; takes note of it when it does.
    fn hold(&mut self, line: &'a str) -> bool {
        let (columns, rest) = columns(line);
        if rest.is_empty() {
            let item = self.item.filter(|_| !self.bare);
            *self = Self { item, code: self.code.take(), ..Self::default() };
            return item.is_some();
        }
        if self.item.is_some_and(|content| columns >= content) {
            let indent = columns - self.item.unwrap_or_default();
            let code = match self.code.take() {
                Some(fence) if indent <= 3 && fence.is_closed_by(rest) => None,
                Some(fence) => Some(fence),
                None if indent <= 3 => Fence::opened_by(rest),
                None => None,
            };
            let text = code.is_none() && is_text(indent, rest, self.text);
            *self = Self { item: self.item, text, code, ..Self::default() };
            return true;
        }
        if columns <= 3 && rest.starts_with('>') {
            *self = Self { text: is_text(columns, rest, false), quoted: true, ..Self::default() };
            return true;
        }
        if columns <= 3
            && let Some((content, after)) = list_item(columns, rest, self.text && self.item.is_none() && !self.quoted)
        {
            let (bare, text) = (after.is_empty(), is_text(columns, rest, false));
            let (padding, content_text) = self::columns(after);
            let code = Fence::opened_by(content_text).filter(|_| padding <= 4);
            *self = Self { item: Some(content), bare, text, quoted: false, code };
            return true;
        }
        // A plain line right after an item's text goes on with it, and the item stays open.
        self.item.is_some() && self.text && is_text(columns, rest, true)
    }

    /// Takes note of a line at the top level that is no fence.
    fn pass(&mut self, line: &'a str) {
        let (columns, rest) = columns(line);
        // A line of `=` or `-` under a paragraph makes a title of it.
        let mark = rest.trim_end_matches([' ', '\t']);
        let is_underline = mark.trim_start_matches('=').is_empty() || mark.trim_start_matches('-').is_empty();
        let titled = self.text && !self.quoted && columns <= 3 && is_underline;
        let text = !titled && is_text(columns, rest, self.text);
        *self = Self { text, quoted: self.quoted && self.text && text, ..Self::default() };
    }
}

/// Whether what stands at this indentation is text of a paragraph, in whatever quotes and items the line itself opens;
/// `going_on` when the line before was.
fn is_text(indent: usize, rest: &str, going_on: bool) -> bool {
    /// Deeper than this a line's own nesting is no text to anyone, and not worth its time.
    const DEPTH_MAX: usize = 32;
    let (mut indent, mut rest, mut going_on) = (indent, rest, going_on);
    for _ in 0..DEPTH_MAX {
        if rest.is_empty() {
            return false;
        }
        if indent > 3 {
            return going_on;
        }
        if let Some(quoted) = rest.strip_prefix('>') {
            (indent, rest) = columns(quoted);
            indent = indent.saturating_sub(1);
        } else if let Some((_, after)) = list_item(0, rest, going_on) {
            let (spaces, content) = columns(after);
            indent = if spaces > 4 { spaces - 1 } else { 0 };
            rest = content;
        } else {
            let heading = rest.trim_start_matches('#');
            let hashes = rest.len() - heading.len();
            let is_heading = (1..=6).contains(&hashes) && (heading.is_empty() || heading.starts_with([' ', '\t']));
            return !is_heading && !is_break(rest) && Fence::opened_by(rest).is_none();
        }
        going_on = false;
    }
    false
}

/// The column of the first character that is neither space nor tab (tab stops of four), and what starts there.
fn columns(line: &str) -> (usize, &str) {
    let mut column = 0;
    for (index, c) in line.char_indices() {
        match c {
            ' ' => column += 1,
            '\t' => column += 4 - column % 4,
            _ => return (column, line.get(index..).unwrap_or_default()),
        }
    }
    (column, "")
}

/// The column at which the content of a list item starts and what follows its marker, if the line begins one. Right
/// after a paragraph only an item with text, and of an ordered list only number 1, begins.
fn list_item(indent: usize, rest: &str, after_paragraph: bool) -> Option<(usize, &str)> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let marker = if digits == 0 { 1 } else { digits + 1 };
    let (mark, after) = rest.split_at_checked(marker)?;
    let is_marker = match mark.as_bytes() {
        [b'-' | b'+' | b'*'] => !is_break(rest),
        [number @ .., b'.' | b')'] => (1..=9).contains(&number.len()) && number.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_marker || !(after.is_empty() || after.starts_with([' ', '\t'])) {
        return None;
    }
    let (spaces, content) = columns(after);
    if after_paragraph && (content.is_empty() || (digits > 0 && mark.get(..digits) != Some("1"))) {
        return None;
    }
    // Five or more are one space and indented code; an empty item's content starts one space on.
    let padding = if content.is_empty() || spaces > 4 { 1 } else { spaces };
    Some((indent + marker + padding, if content.is_empty() { "" } else { after }))
}

/// Whether a line is a thematic break: three or more of `-`, `_` or `*`, and white space.
fn is_break(rest: &str) -> bool {
    let mark = rest.chars().next().filter(|mark| matches!(mark, '-' | '_' | '*'));
    mark.is_some_and(|mark| {
        rest.chars().all(|c| c == mark || c == ' ' || c == '\t') && rest.chars().filter(|c| *c == mark).count() >= 3
    })
}

#[cfg(test)]
mod tests {
    use super::message_blocks;

    #[test]
    fn v2_2_1_04_only_three_backticks_alone_or_with_json_open_a_message() {
        assert_eq!(message_blocks("```\na\n```\n"), ["a\n"]);
        assert_eq!(message_blocks("```json\na\n```\n"), ["a\n"]);
        for opening in ["```JSON", "```json5", "```js", "~~~json", "~~~", "````json", "```json title=x", "``json"] {
            let blocks = format!("{opening}\na\n```\n");
            assert!(!message_blocks(&blocks).iter().any(|block| block.contains('a')), "{opening}");
        }
    }

    #[test]
    fn v2_2_1_05_three_spaces_before_and_spaces_around_json_are_accepted() {
        assert_eq!(message_blocks("   ```  json  \na\n   ```  \n"), ["a\n"]);
        for opening in ["    ```json", "\t```json", " \t```json", "```\tjson"] {
            let blocks = format!("{opening}\na\n```\n");
            assert!(!message_blocks(&blocks).iter().any(|block| block.contains('a')), "{opening:?}");
        }
    }

    #[test]
    fn v2_2_1_03_a_fence_is_closed_by_its_own_mark_and_length_only() {
        assert!(message_blocks("````\n```json\na\n```\n````\n").is_empty());
        assert!(message_blocks("~~~\n```json\na\n```\n~~~\n").is_empty());
        assert_eq!(message_blocks("```json\na\n``\n~~~\n```x\nb\n`````\nc"), ["a\n``\n~~~\n```x\nb\n"]);
        assert_eq!(message_blocks("```json\na\n    ```\nb\n```"), ["a\n    ```\nb\n"]);
    }

    #[test]
    fn v2_2_1_03_a_fence_left_open_runs_to_the_end() {
        assert_eq!(message_blocks("x\n```json\na\nb"), ["a\nb"]);
        assert_eq!(message_blocks("```json"), [""]);
    }

    #[test]
    fn v2_2_1_07_other_text_is_passed_by() {
        assert_eq!(message_blocks("Hello.\n```json\na\n```\nBye.\n\n```\nb\n```"), ["a\n", "b\n"]);
    }

    #[test]
    fn every_line_ending_of_commonmark_ends_a_line() {
        assert_eq!(message_blocks("x\r\n```json\r\na\r\n```\r\n"), ["a\r\n"]);
        assert_eq!(message_blocks("x\r```json\ra\r```\r"), ["a\r"]);
    }

    #[test]
    fn v2_2_1_22_a_quoted_block_holds_no_message() {
        assert!(message_blocks("> ```json\n> a\n> ```\n").is_empty());
        assert!(message_blocks("   > ```json\n   > a\n   > ```\n").is_empty());
        assert_eq!(message_blocks("> quoted\n```json\na\n```\n"), ["a\n"]);
    }

    #[test]
    fn v2_2_1_22_a_listed_block_holds_no_message() {
        for text in [
            "- ```json\n  a\n  ```\n",
            "- x\n  ```json\n  a\n  ```\n",
            "- x\n\n  ```json\n  a\n  ```\n",
            "1. x\n   ```json\n   a\n   ```\n",
            "- x\ngoing on\n  ```json\n  a\n  ```\n",
            "* a\n  - b\n    c\n  ```json\n  a\n  ```\n",
        ] {
            assert!(message_blocks(text).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn what_ends_a_list_lets_a_block_be_a_message_again() {
        for text in [
            "- x\n```json\na\n```\n",
            "- x\n\nafter\n  ```json\na\n```\n",
            "- - -\n  ```json\na\n```\n",
            "text\n-\n  ```json\na\n```\n",
            "text\n2. no item\n   ```json\na\n```\n",
            "-no item\n  ```json\na\n```\n",
            "- x\n# Title\n  ```json\na\n```\n",
        ] {
            assert_eq!(message_blocks(text), ["a\n"], "{text:?}");
        }
    }

    #[test]
    fn a_backtick_in_the_info_string_makes_it_inline_code() {
        assert!(message_blocks("```json `\na\n").is_empty());
        assert_eq!(message_blocks("``` x` ```\n```json\na\n```"), ["a\n"]);
    }
}
