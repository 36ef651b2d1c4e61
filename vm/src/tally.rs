//! Counting: what passed, failed and was skipped, of our own checks and of every test program.

/// Lines of a failed test's own words that are said again at the end: the first ones say what was wrong.
const WORDS_MAX: usize = 12;
/// Characters of each such line; a test may print a whole record in one.
const LINE_CHARS_MAX: usize = 400;

/// The counts, and the words of what did not pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// One each, for the end, where a person looks.
    pub(crate) remarks: Vec<String>,
    /// The test whose words are being read, as a test program tells them under `failures:`.
    telling: Option<Telling>,
}

/// A failed test and the first of its words.
#[derive(Debug, PartialEq, Eq)]
struct Telling {
    test: String,
    words: Vec<String>,
}

impl Tally {
    /// Counts one check of our own and says how it went.
    pub(crate) fn check(&mut self, name: &str, outcome: Result<String, String>) {
        match outcome {
            Ok(said) => {
                self.passed += 1;
                println!("check {name}: ok{}{said}", if said.is_empty() { "" } else { ": " });
            }
            Err(why) => {
                self.failed += 1;
                println!("check {name}: FAILED: {why}");
                self.remarks.push(format!("failed: {name}: {why}"));
            }
        }
    }

    /// Counts one check that cannot be made here.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        println!("check {name}: skipped: {why}");
        self.remarks.push(format!("skipped: {name}: {why}"));
    }

    /// Hears one line of a test program: counts what a `test result:` line says, and keeps which tests failed and why.
    pub(crate) fn line(&mut self, line: &str) {
        self.tell(line);
        // "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s"
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(word)) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next()) else {
                continue;
            };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Test programs end with `---- NAME ----` or `---- NAME stdout ----` and the words of it, for each failed test.
    fn tell(&mut self, line: &str) {
        let heading = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----"));
        if heading.is_some() || line == "failures:" || line.starts_with("test result: ") {
            if let Some(Telling { test, words }) = self.telling.take() {
                self.remarks.push([format!("failed: test {test}"), words.join("\n")].join("\n").trim_end().to_owned());
            }
            let named = |it: &str| it.strip_suffix(" stdout").unwrap_or(it).to_owned();
            self.telling = heading.map(|it| Telling { test: named(it), words: Vec::new() });
        } else if let Some(Telling { words, .. }) = &mut self.telling
            && words.len() < WORDS_MAX
            && !line.trim().is_empty()
        {
            words.push(format!("    {}", line.chars().take(LINE_CHARS_MAX).collect::<String>()));
        }
    }

    /// Counts what another counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.remarks.extend_from_slice(&other.remarks);
    }

    /// The last line.
    pub(crate) fn verdict(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_and_other_lines_are_not() {
        let mut tally = Tally::default();
        tally.line("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        tally.line("test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 7 filtered out; finished in 9.1s");
        tally.line("test tally::sums ... ok");
        tally.line("a program that prints 9 passed; 9 failed");
        assert_eq!(tally.verdict(), "5 passed, 4 failed, 1 skipped");
        assert!(tally.remarks.is_empty());
    }

    #[test]
    fn failed_tests_are_named_at_the_end_with_the_first_of_their_words() {
        let mut tally = Tally::default();
        let of_libtest = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n\nthread 'a::b' panicked at x.rs:1:2:\n\
                          left is not right\n\nfailures:\n    a::b\n\ntest result: FAILED. 0 passed; 1 failed";
        let of_mimic = "failures:\n\n---- what it shows (here) ----\ntest panicked: no\n\n---- another ----\n\n\
                        failures:\n    what it shows (here)\n    another\n\ntest result: FAILED. 0 passed; 2 failed";
        for line in of_libtest.lines().chain(of_mimic.lines()) {
            tally.line(line);
        }
        let told = [
            "failed: test a::b\n    thread 'a::b' panicked at x.rs:1:2:\n    left is not right",
            "failed: test what it shows (here)\n    test panicked: no",
            "failed: test another",
        ];
        assert_eq!(tally.remarks, told);
        let mut long = Tally::default();
        let word = "w".repeat(2 * LINE_CHARS_MAX);
        let lines = std::iter::repeat_n(word.as_str(), 2 * WORDS_MAX);
        for line in ["---- t ----"].into_iter().chain(lines).chain(["test result: FAILED. 0 passed; 1 failed"]) {
            long.line(line);
        }
        let told = long.remarks.concat();
        assert_eq!(told.lines().count(), 1 + WORDS_MAX);
        assert!(told.lines().all(|it| it.len() <= LINE_CHARS_MAX + 4));
    }
}
