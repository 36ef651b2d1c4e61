//! Why a process ended, told from what is known when it has. Pure.

use std::time::Duration;

use sandbox::spec::Limits;
use sandbox::status::Ended;
use supervisor::wire::message::{End, EndedBy};

use crate::status;

/// SIGKILL.
const KILL: u8 = 9;

/// What is known of an end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// What asked it to end first, if anything did before it ended.
    pub(crate) asked: Option<&'a EndedBy>,
    /// How the main process ended.
    pub(crate) end: End,
    /// The processor time it and what it waited for took.
    pub(crate) cpu: Duration,
    /// The limits it had.
    pub(crate) limits: &'a Limits,
    /// Whether the supervisor had sent KILL.
    pub(crate) killed: bool,
    /// Whether the run's cgroup ran out of memory.
    pub(crate) out_of_memory: bool,
}

/// Decisions C-35, C-111, C-33: what asked first stands; else a limit that shows in how the process ended; else itself.
pub(crate) fn ended_by(facts: Facts<'_>) -> EndedBy {
    if let Some(asked) = facts.asked {
        return asked.clone();
    }
    let how = match facts.end {
        End::Code(code) => Ended::Code(code),
        End::Signal(signal) => Ended::Signal(signal),
    };
    let cpu_us = u64::try_from(facts.cpu.as_micros()).unwrap_or(u64::MAX);
    let out_of_memory = facts.out_of_memory && facts.limits.memory_bytes.is_some();
    match status::limit_passed(how, cpu_us, facts.limits, out_of_memory) {
        Some("cpu") if facts.killed && facts.end == End::Signal(KILL) => EndedBy::Itself,
        Some(limit) => EndedBy::Limit(limit.to_owned()),
        None => EndedBy::Itself,
    }
}

/// An end in words, as log lines have it.
pub(crate) fn words(end: End) -> String {
    match end {
        End::Code(code) => format!("exit {code}"),
        End::Signal(signal) => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { wall_s: Some(9), cpu_s: Some(2), processes: None, file_size_bytes: Some(1), memory_bytes: Some(1) };

    fn facts(end: End, cpu_s: u64) -> Facts<'static> {
        let cpu = Duration::from_secs(cpu_s);
        Facts { asked: None, end, cpu, limits: &LIMITS, killed: false, out_of_memory: false }
    }

    #[test]
    fn c_35_cpu_is_told_by_its_signal_or_by_kill_past_the_time_and_not_by_an_exit() {
        let limit = EndedBy::Limit("cpu".into());
        assert_eq!(ended_by(facts(End::Signal(24), 0)), limit);
        assert_eq!(ended_by(facts(End::Signal(9), 2)), limit);
        assert_eq!(ended_by(facts(End::Signal(9), 1)), EndedBy::Itself);
        assert_eq!(ended_by(facts(End::Code(152), 2)), EndedBy::Itself);
    }

    #[test]
    fn c_111_kill_past_the_time_is_no_limit_when_the_supervisor_sent_it() {
        assert_eq!(ended_by(Facts { killed: true, ..facts(End::Signal(9), 2) }), EndedBy::Itself);
    }

    #[test]
    fn a_signal_of_a_limit_that_was_not_set_is_the_programs_own() {
        let none = Limits::default();
        for signal in [9, 24, 25] {
            let facts = Facts { limits: &none, out_of_memory: true, ..facts(End::Signal(signal), 99) };
            assert_eq!(ended_by(facts), EndedBy::Itself, "{signal}");
        }
    }

    #[test]
    fn what_asked_first_stands_whatever_the_end_looks_like() {
        let wall = EndedBy::Limit("wall".into());
        for end in [End::Code(0), End::Signal(9), End::Signal(24)] {
            assert_eq!(ended_by(Facts { asked: Some(&wall), out_of_memory: true, ..facts(end, 9) }), wall);
        }
    }

    #[test]
    fn file_size_and_memory_are_told() {
        assert_eq!(ended_by(facts(End::Signal(25), 0)), EndedBy::Limit("file_size".into()));
        let memory = Facts { out_of_memory: true, ..facts(End::Signal(9), 0) };
        assert_eq!(ended_by(memory), EndedBy::Limit("memory".into()));
    }
}
