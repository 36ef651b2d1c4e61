//! What runs inside: one attack by name, and lines that tell what came of each thing it tried.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::process::ExitCode;

use crate::table::{ATTACKS, How};

/// First word of a line about what worked.
pub(crate) const THROUGH: &str = "through";
/// First word of a line about what was refused.
pub(crate) const REFUSED: &str = "refused";
/// First word of a line that says why the attack cannot be shown to work on this kernel.
pub(crate) const NO_CONTROL: &str = "no-control";
/// The last line: nothing ended the attacker early.
pub(crate) const END: &str = "end";
/// How long an attack may take, in seconds; one that hangs is ended and fails its test.
const SECONDS_MAX: u64 = 300;

/// What the test made for the attack, by name.
pub(crate) struct Given(BTreeMap<String, String>);

impl Given {
    /// From words such as `name=value`.
    pub(crate) fn read(words: &[String]) -> Self {
        let pair = |it: &String| it.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(words.iter().filter_map(pair).collect())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// What came of an attack.
#[derive(Default)]
pub(crate) struct Got(Vec<(&'static str, String)>);

impl Got {
    /// One thing that was tried.
    pub(crate) fn tried<T, E: Display>(&mut self, what: &str, came: &Result<T, E>) {
        match came {
            Ok(_) => self.through(what),
            Err(error) => self.refused(format!("{what}: {error}")),
        }
    }

    /// One system call that was tried.
    pub(crate) fn call<T>(&mut self, what: &str, came: &Result<T, i32>) {
        self.tried(what, &came.as_ref().map_err(|error| std::io::Error::from_raw_os_error(*error)));
    }

    /// What an attack stands on, and which proves nothing itself: only its failure is told, as what must not be.
    pub(crate) fn call_if_failed<T>(&mut self, what: &str, came: &Result<T, i32>) {
        if let Err(error) = came {
            self.through(format!("{what} failed with error {error}, so that nothing is shown"));
        }
    }

    /// Something seen that may not be, or not seen.
    pub(crate) fn holds(&mut self, what: impl Into<String>, worked: bool) {
        self.0.push((if worked { THROUGH } else { REFUSED }, what.into()));
    }

    /// It works nowhere on this kernel; told by the test where this is a control.
    pub(crate) fn no_control(&mut self, why: &str) {
        self.0.push((NO_CONTROL, why.to_owned()));
    }

    pub(crate) fn through(&mut self, what: impl Into<String>) {
        self.holds(what, true);
    }

    pub(crate) fn refused(&mut self, what: impl Into<String>) {
        self.holds(what, false);
    }

    fn print(&self) {
        for (came, what) in &self.0 {
            println!("{came}\t{}", what.replace(['\n', '\t'], " "));
        }
        println!("{END}");
    }
}

/// `attack NAME [GIVEN=VALUE]...`
pub(crate) fn main(words: &[String]) -> ExitCode {
    let Some((name, given)) = words.split_first() else { return ExitCode::FAILURE };
    perform(name, &Given::read(given))
}

/// Performs an attack, unless this is a place where it would do harm.
pub(crate) fn perform(name: &str, given: &Given) -> ExitCode {
    if let Err(why) = off_the_host() {
        eprintln!("attacks: {name} is not tried: {why}");
        return ExitCode::FAILURE;
    }
    let found = ATTACKS.iter().copied().flatten().find(|it| it.name == name);
    let Some(How::Inside { attack, .. } | How::Honest { use_: attack, .. }) = found.map(|it| &it.how) else {
        let Some(act) = crate::runs::part(name) else {
            eprintln!("attacks: there is no attack {name}");
            return ExitCode::FAILURE;
        };
        act(given);
        return ExitCode::SUCCESS;
    };
    let _before = crate::raw::alarm(SECONDS_MAX);
    let mut got = Got::default();
    attack(given, &mut got);
    got.print();
    ExitCode::SUCCESS
}

/// Whether this process is in a user namespace that is not the host's: only there may anything be attacked.
fn off_the_host() -> Result<(), String> {
    let map = fs::read_to_string("/proc/self/uid_map").map_err(|error| format!("/proc/self/uid_map: {error}"))?;
    if map.split_whitespace().nth(2).is_none_or(|count| count == "4294967295") {
        return Err("it is in the host's own user namespace".to_owned());
    }
    Ok(())
}

/// One line of `/proc/self/status`.
pub(crate) fn status(key: &str) -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}
