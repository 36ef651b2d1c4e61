//! Counting: what passed, failed and was skipped, of our own checks and of every test program.

/// The counts, and the words of what did not pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// One line each, for the end, where a person looks.
    pub(crate) remarks: Vec<String>,
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

    /// Counts what one line of a test program says, if it is a `test result:` line.
    pub(crate) fn line(&mut self, line: &str) {
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
    }
}
