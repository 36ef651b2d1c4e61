//! Licence expressions: whether one of them can be taken using free licences only.

/// The licences taken, by SPDX id.
const FREE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "OpenSSL",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression can be met: one side of an OR is enough, both of an AND are needed.
///
/// # Errors
/// When it is not an expression: `MIT OR`, an unclosed parenthesis.
pub(crate) fn is_free(expression: &str) -> Result<bool, String> {
    // Old manifests write MIT/Apache-2.0 for OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { words: spaced.split_whitespace().collect(), next: 0 };
    let free = words.any(0)?;
    match words.peek() {
        None => Ok(free),
        Some(word) => Err(format!("{expression:?}: {word:?} is out of place")),
    }
}

/// Parentheses deeper than this are no licence.
const DEPTH_MAX: u32 = 16;

struct Words<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        if found {
            self.next += 1;
        }
        found
    }

    /// `all (OR all)*`: OR binds least.
    fn any(&mut self, depth: u32) -> Result<bool, String> {
        let mut free = self.all(depth)?;
        while self.take("OR") {
            // Not `||`: what stands behind must be read whatever came before.
            free |= self.all(depth)?;
        }
        Ok(free)
    }

    /// `one (AND one)*`.
    fn all(&mut self, depth: u32) -> Result<bool, String> {
        let mut free = self.one(depth)?;
        while self.take("AND") {
            free &= self.one(depth)?;
        }
        Ok(free)
    }

    /// `( any )` or `ID` or `ID WITH EXCEPTION`.
    fn one(&mut self, depth: u32) -> Result<bool, String> {
        if depth > DEPTH_MAX {
            return Err(format!("parentheses deeper than {DEPTH_MAX}"));
        }
        if self.take("(") {
            let free = self.any(depth + 1)?;
            return if self.take(")") { Ok(free) } else { Err(String::from("a parenthesis is not closed")) };
        }
        let id = match self.peek() {
            Some(word) if !matches!(word, "OR" | "AND" | "WITH" | ")") => word,
            other => return Err(format!("a licence is missing before {:?}", other.unwrap_or("the end"))),
        };
        self.next += 1;
        if self.take("WITH") {
            let exception = self.peek().ok_or_else(|| String::from("an exception is missing after WITH"))?;
            self.next += 1;
            return Ok(FREE.contains(&format!("{id} WITH {exception}").as_str()));
        }
        Ok(FREE.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_free_side_of_an_or_is_enough_and_an_and_needs_both() {
        for (expression, free) in [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("SSPL-1.0 OR MIT", true),
            ("SSPL-1.0 AND MIT", false),
            ("MIT AND (SSPL-1.0 OR ISC)", true),
            ("Apache-2.0 AND ISC AND Elastic-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR Elastic-2.0", true),
            ("SSPL-1.0", false),
        ] {
            assert_eq!(is_free(expression), Ok(free), "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_no_licence() {
        for expression in ["", "MIT OR", "OR MIT", "(MIT", "MIT ISC", "MIT WITH"] {
            assert!(is_free(expression).is_err(), "{expression:?}");
        }
    }
}
