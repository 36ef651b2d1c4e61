//! What the host tells a guest, and what the guest's init says on its console. Both programs include this file.
#![allow(dead_code, reason = "each of the two programs uses its half")]

use std::fmt::Write as _;

/// Where the plan stands in the guest's initramfs.
pub(crate) const PLAN: &str = "/plan";
/// Where the init itself stands there.
pub(crate) const INIT: &str = "/init";
/// Where the guest's modules stand in its initramfs, in the order to load them.
pub(crate) const MODULES: &str = "/modules";
/// Every line of the init begins with this; no test program's does.
pub(crate) const MARK: &str = "ocx-guest: ";

/// One test program, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// What it is called in every line about it.
    pub(crate) name: String,
    /// The bound, after which everything in the guest but its init is ended.
    pub(crate) seconds: u64,
    /// The exit code it is to end with; another is a failure.
    pub(crate) exit: i32,
    /// The program, by the path the guest sees, and its arguments.
    pub(crate) words: Vec<String>,
}

/// What a guest is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Where the disk of programs is mounted, so that paths built into them hold.
    pub(crate) programs_at: String,
    /// The environment of every job, beside the init's own few.
    pub(crate) env: Vec<(String, String)>,
    /// The programs to run, one after the other.
    pub(crate) jobs: Vec<Job>,
    /// A shell on the console in place of jobs.
    pub(crate) shell: bool,
    /// The root's own init is started, and what is to be done is a service of it.
    pub(crate) whole: bool,
}

impl Plan {
    /// One line a thing, words parted by tabs.
    ///
    /// # Errors
    /// When a word holds a tab or a line's end.
    pub(crate) fn text(&self) -> Result<String, String> {
        let mut text = String::new();
        let mut line = |words: &[&str]| match words.iter().find(|word| word.contains(['\t', '\n'])) {
            Some(word) => Err(format!("{word:?} cannot be told to a guest")),
            None => writeln!(text, "{}", words.join("\t")).map_err(|e| e.to_string()),
        };
        line(&["programs", &self.programs_at])?;
        for (name, value) in &self.env {
            line(&["env", name, value])?;
        }
        for job in &self.jobs {
            let (seconds, exit) = (job.seconds.to_string(), job.exit.to_string());
            let mut words = vec!["job", &job.name, &seconds, &exit];
            words.extend(job.words.iter().map(String::as_str));
            line(&words)?;
        }
        for (word, given) in [("shell", self.shell), ("whole", self.whole)] {
            if given {
                line(&[word])?;
            }
        }
        Ok(text)
    }

    /// Reads it back.
    ///
    /// # Errors
    /// The line that is none of a plan.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>().as_slice() {
                ["programs", at] => plan.programs_at = String::from(*at),
                ["env", name, value] => plan.env.push((String::from(*name), String::from(*value))),
                ["job", name, seconds, exit, words @ ..] if !words.is_empty() => plan.jobs.push(Job {
                    name: String::from(*name),
                    seconds: seconds.parse().map_err(|e| format!("{line:?}: {e}"))?,
                    exit: exit.parse().map_err(|e| format!("{line:?}: {e}"))?,
                    words: words.iter().map(|word| String::from(*word)).collect(),
                }),
                ["shell"] => plan.shell = true,
                ["whole"] => plan.whole = true,
                _ => return Err(format!("no line of a plan: {line:?}")),
            }
        }
        Ok(plan)
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// By itself, with this code.
    Exit(i32),
    /// By a signal that was not the init's.
    Signal(i32),
    /// It did not end within its bound, and was ended.
    Bound,
    /// It could not be started, and why.
    NotStarted(String),
}

/// A line of the init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// The root is mounted and the guest is ready for its jobs.
    Up { kernel: String },
    /// A job starts.
    Start { name: String },
    /// A job is over, after so many tenths of a second, and so many processes were left of it.
    End { name: String, end: JobEnd, tenths: u64, left: u64 },
    /// The one last line: how many jobs ended well, and how many did not.
    Verdict { good: u64, bad: u64 },
    /// The init itself could not go on.
    Trouble { why: String },
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(MARK)?;
        match self {
            Self::Up { kernel } => write!(f, "up\t{kernel}"),
            Self::Start { name } => write!(f, "start\t{name}"),
            Self::End { name, end, tenths, left } => {
                let (word, value) = match end {
                    JobEnd::Exit(code) => ("exit", code.to_string()),
                    JobEnd::Signal(signal) => ("signal", signal.to_string()),
                    JobEnd::Bound => ("bound", String::new()),
                    JobEnd::NotStarted(why) => ("not-started", why.replace(['\t', '\n'], " ")),
                };
                write!(f, "end\t{name}\t{tenths}\t{left}\t{word}\t{value}")
            }
            Self::Verdict { good, bad } => write!(f, "verdict\t{good}\t{bad}"),
            Self::Trouble { why } => write!(f, "trouble\t{}", why.replace(['\t', '\n'], " ")),
        }
    }
}

impl Said {
    /// What a line of the console says, if it is the init's.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.strip_prefix(MARK)?.split('\t').collect();
        Some(match words.as_slice() {
            ["up", kernel] => Self::Up { kernel: String::from(*kernel) },
            ["start", name] => Self::Start { name: String::from(*name) },
            ["end", name, tenths, left, word, value] => Self::End {
                name: String::from(*name),
                end: match *word {
                    "exit" => JobEnd::Exit(value.parse().ok()?),
                    "signal" => JobEnd::Signal(value.parse().ok()?),
                    "bound" => JobEnd::Bound,
                    "not-started" => JobEnd::NotStarted(String::from(*value)),
                    _ => return None,
                },
                tenths: tenths.parse().ok()?,
                left: left.parse().ok()?,
            },
            ["verdict", good, bad] => Self::Verdict { good: good.parse().ok()?, bad: bad.parse().ok()? },
            ["trouble", why] => Self::Trouble { why: String::from(*why) },
            _ => return None,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_back() {
        let name = String::from("link");
        for said in [
            Said::Up { kernel: String::from("6.12") },
            Said::Start { name: name.clone() },
            Said::End { name: name.clone(), end: JobEnd::Exit(101), tenths: 12, left: 0 },
            Said::End { name: name.clone(), end: JobEnd::Signal(9), tenths: 12, left: 3 },
            Said::End { name: name.clone(), end: JobEnd::Bound, tenths: 12, left: 1 },
            Said::End { name, end: JobEnd::NotStarted(String::from("no such file")), tenths: 0, left: 0 },
            Said::Verdict { good: 3, bad: 1 },
            Said::Trouble { why: String::from("no disk") },
        ] {
            assert_eq!(Said::read(&said.to_string()), Some(said));
        }
        assert_eq!(Said::read("test a ... ok"), None);
        assert_eq!(Said::read("ocx-guest: verdict\tall\tfine"), None);
    }

    #[test]
    fn a_plan_is_read_back_and_a_word_with_a_tab_is_not_told() {
        let job = |word: &str| Job { name: String::from("a"), seconds: 3, exit: 1, words: vec![String::from(word)] };
        let mut plan = Plan {
            programs_at: String::from("/target"),
            env: vec![(String::from("A"), String::from("b c"))],
            jobs: vec![job("/target/a")],
            shell: true,
            whole: true,
        };
        assert_eq!(Plan::read(&plan.text().unwrap()).unwrap(), plan);
        plan.jobs.push(job("a\tb"));
        assert!(plan.text().is_err());
        assert!(Plan::read("job\ta\t3\t0").is_err());
    }
}
