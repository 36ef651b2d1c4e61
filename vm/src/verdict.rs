//! What came of a guest, from the text of its console and how its end came about: pure, and each failure apart.

use crate::words::{Job, JobEnd, Said};

/// How the host came to stop listening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// QEMU ended by itself: the guest powered off, or rebooted after a panic.
    Ended,
    /// QEMU could not run, or ended with a failure of its own.
    Qemu(String),
    /// A wait of this name was over after so many seconds, and QEMU was ended.
    Bound { wait: String, seconds: u64 },
}

/// What came of it. Only `Good` is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// One verdict, and nothing bad in it or beside it: so many jobs.
    Good(u64),
    /// Jobs that did not end well, each with how.
    Failed(Vec<String>),
    /// The kernel gave up: its line.
    Panic(String),
    /// The kernel found a fault in itself and went on: its line.
    Oops(String),
    /// A wait was over.
    Hang { wait: String, seconds: u64 },
    /// The init could not go on: its words.
    Init(String),
    /// QEMU's own failure.
    Qemu(String),
    /// The guest is gone and no verdict was said.
    None,
    /// More than one verdict was said.
    Several(usize),
    /// The verdict and the lines before it do not say the same.
    Contradiction(String),
}

/// How the kernel's lines begin that say it gave up.
const PANIC: &[&str] = &["Kernel panic - not syncing"];
/// And those of a fault it survived, on x86_64 and aarch64.
const OOPS: &[&str] = &[
    "Oops: ",
    "Oops - ",
    "BUG: ",
    "kernel BUG at ",
    "Internal error: ",
    "Unable to handle kernel ",
    "general protection fault",
];
/// The kernel's watchdogs measure the host's pace under emulation, not a fault of the guest.
const PACE: &[&str] = &["BUG: soft lockup", "BUG: workqueue lockup"];

/// A line of the kernel without its time; the programs' own lines have none.
fn of_kernel(line: &str) -> Option<&str> {
    let (time, text) = line.strip_prefix('[')?.split_once("] ")?;
    time.trim_start().parse::<f64>().is_ok().then_some(text)
}

fn kernel_says(lines: &[String], wanted: &[&str], but: &[&str]) -> Option<String> {
    lines.iter().filter_map(|line| of_kernel(line)).find_map(|line| {
        let is = |words: &[&str]| words.iter().any(|word| line.contains(word));
        (is(wanted) && !is(but)).then(|| line.to_owned())
    })
}

fn counted(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Judges. What the kernel says of itself comes first, for everything else may follow from it.
pub(crate) fn judge(lines: &[String], stopped: &Stopped, jobs: &[Job]) -> Verdict {
    if let Some(line) = kernel_says(lines, OOPS, PACE) {
        return Verdict::Oops(line);
    }
    if let Some(line) = kernel_says(lines, PANIC, &[]) {
        return Verdict::Panic(line);
    }
    if let Stopped::Qemu(why) = stopped {
        return Verdict::Qemu(why.clone());
    }
    let said: Vec<Said> = lines.iter().filter_map(|line| Said::read(line)).collect();
    if let Some(why) = said.iter().find_map(|it| if let Said::Trouble { why } = it { Some(why) } else { None }) {
        return Verdict::Init(why.clone());
    }
    let verdicts: Vec<(u64, u64)> = said
        .iter()
        .filter_map(|it| if let Said::Verdict { good, bad } = it { Some((*good, *bad)) } else { None })
        .collect();
    if verdicts.len() > 1 {
        return Verdict::Several(verdicts.len());
    }
    if let Stopped::Bound { wait, seconds } = stopped {
        return Verdict::Hang { wait: wait.clone(), seconds: *seconds };
    }
    let Some(&(good, bad)) = verdicts.first() else { return Verdict::None };
    let ends = said
        .iter()
        .filter_map(|it| if let Said::End { name, end, left, .. } = it { Some((name, end, *left)) } else { None });
    let wanted = |name: &str| jobs.iter().find(|job| job.name == name).map(|job| JobEnd::Exit(job.exit));
    let (well, ill): (Vec<_>, Vec<_>) =
        ends.partition(|(name, end, left)| wanted(name).as_ref() == Some(*end) && *left == 0);
    let jobs = counted(jobs.len());
    if (counted(well.len()), counted(ill.len())) != (good, bad) || good + bad != jobs {
        let (well, ill) = (well.len(), ill.len());
        return Verdict::Contradiction(format!(
            "{jobs} jobs were given, {well} ended well and {ill} did not, and the verdict says {good} and {bad}"
        ));
    }
    if ill.is_empty() {
        return Verdict::Good(good);
    }
    Verdict::Failed(ill.into_iter().map(|(name, end, left)| format!("{name} {}", ended(end, left))).collect())
}

/// The words a job should have said and did not.
pub(crate) fn unsaid<'a>(lines: &[String], name: &str, says: &'a [String]) -> Option<&'a str> {
    let own: Vec<&String> = own(lines, name).collect();
    says.iter().map(String::as_str).find(|words| !own.iter().any(|line| line.contains(words)))
}

/// Whether a job that is a test program ran no test at all: a filter that fits none shows nothing.
pub(crate) fn ran_none(lines: &[String], name: &str) -> bool {
    let counts = |line: &&String| line.starts_with("test result: ");
    let mut results = own(lines, name).filter(counts).peekable();
    results.peek().is_some() && results.all(|line| line.contains(" 0 passed;"))
}

/// What a job itself said.
fn own<'a>(lines: &'a [String], name: &'a str) -> impl Iterator<Item = &'a String> {
    let is = move |line: &String, start: bool| match Said::read(line) {
        Some(Said::Start { name: found }) => start && found == name,
        Some(Said::End { name: found, .. }) => !start && found == name,
        _ => false,
    };
    lines.iter().skip_while(move |line| !is(line, true)).skip(1).take_while(move |line| !is(line, false))
}

/// How a job ended, in words.
pub(crate) fn ended(end: &JobEnd, left: u64) -> String {
    let how = match end {
        JobEnd::Exit(code) => format!("exit {code}"),
        JobEnd::Signal(signal) => format!("ended by signal {signal}"),
        JobEnd::Bound => String::from("not over within its bound"),
        JobEnd::NotStarted(why) => format!("not started: {why}"),
    };
    // What is ended at a bound is no leftover.
    if left > 0 && *end != JobEnd::Bound { format!("{how}, and {left} processes left") } else { how }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Good(jobs) => write!(f, "ok: {jobs} programs ended well"),
            Self::Failed(which) => write!(f, "FAILED: {}", which.join("; ")),
            Self::Panic(line) => write!(f, "FAILED: kernel panic: {line}"),
            Self::Oops(line) => write!(f, "FAILED: kernel oops: {line}"),
            Self::Hang { wait, seconds } => write!(f, "FAILED: hang: {wait} was not over within {seconds} s"),
            Self::Init(why) => write!(f, "FAILED: the guest's init could not go on: {why}"),
            Self::Qemu(why) => write!(f, "FAILED: QEMU: {why}"),
            Self::None => write!(f, "FAILED: no verdict: the guest ended without one"),
            Self::Several(count) => write!(f, "FAILED: {count} verdicts, where one is due"),
            Self::Contradiction(what) => write!(f, "FAILED: a verdict that does not hold: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a guest's console had it; tabs as they are.
    const WELL: &str = "\
[    1.902911] virtio_blk virtio0: [vda] 2097152 512-byte logical blocks (1.07 GB/1.00 GiB)
ocx-guest: up\t6.12.118+deb13-cloud-amd64
ocx-guest: start\tlink
running 1 test
test start::a_supervisor_starts ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
ocx-guest: end\tlink\t31\t0\texit\t0
ocx-guest: verdict\t1\t0
[    9.118313] reboot: Power down";
    /// Recorded: a guest given no root.
    const PANIC_TEXT: &str = "\
[   12.050877] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)
[   12.065040] CPU: 0 UID: 0 PID: 1 Comm: swapper/0 Not tainted 6.12.118+deb13-cloud-amd64 #1  Debian 6.12.118-1";

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    fn jobs(exit: i32) -> Vec<Job> {
        vec![Job { name: String::from("link"), seconds: 9, exit, words: Vec::new() }]
    }

    fn judged(text: &str) -> Verdict {
        judge(&lines(text), &Stopped::Ended, &jobs(0))
    }

    fn bound() -> Stopped {
        Stopped::Bound { wait: String::from("the boot"), seconds: 90 }
    }

    #[test]
    fn one_good_verdict_is_good() {
        assert_eq!(judged(WELL), Verdict::Good(1));
    }

    #[test]
    fn no_verdict_two_verdicts_and_one_that_does_not_hold_are_each_told() {
        assert_eq!(judged(&WELL.replace("ocx-guest: verdict\t1\t0", "")), Verdict::None);
        assert_eq!(judged(""), Verdict::None);
        assert_eq!(judged(&format!("{WELL}\nocx-guest: verdict\t1\t0")), Verdict::Several(2));
        for (from, to) in [("verdict\t1\t0", "verdict\t2\t0"), ("exit\t0", "exit\t101"), ("ocx-guest: end", "lost")] {
            assert!(matches!(judged(&WELL.replace(from, to)), Verdict::Contradiction(_)), "{to}");
        }
        // A job more was given than was done.
        assert!(matches!(
            judge(&lines(WELL), &Stopped::Ended, &[jobs(0), jobs(0)].concat()),
            Verdict::Contradiction(_)
        ));
    }

    #[test]
    fn a_job_that_fails_hangs_or_leaves_something_is_named() {
        let bad = WELL.replace("verdict\t1\t0", "verdict\t0\t1");
        for (end, words) in [
            ("0\texit\t101", "link exit 101"),
            ("0\tsignal\t11", "link ended by signal 11"),
            ("7\tbound\t", "link not over within its bound"),
            ("2\texit\t0", "link exit 0, and 2 processes left"),
            ("0\tnot-started\t/x: gone", "link not started: /x: gone"),
        ] {
            assert_eq!(judged(&bad.replace("0\texit\t0", end)), Verdict::Failed(vec![String::from(words)]));
        }
    }

    #[test]
    fn a_job_that_is_to_be_refused_ends_well_with_that_code_alone() {
        let refused = WELL.replace("exit\t0", "exit\t125");
        assert_eq!(judge(&lines(&refused), &Stopped::Ended, &jobs(125)), Verdict::Good(1));
        assert!(matches!(judge(&lines(WELL), &Stopped::Ended, &jobs(125)), Verdict::Contradiction(_)));
    }

    #[test]
    fn what_a_job_does_not_say_itself_is_unsaid() {
        let says = |words: &str| [String::from(words)];
        let text = WELL.replace("running 1 test", "refused (6): sandbox");
        assert_eq!(unsaid(&lines(&text), "link", &says("refused (6)")), None);
        assert_eq!(unsaid(&lines(&text), "other", &says("refused (6)")), Some("refused (6)"));
        // Said by the kernel, before it.
        assert_eq!(unsaid(&lines(&text), "link", &says("virtio_blk")), Some("virtio_blk"));
    }

    #[test]
    fn a_test_program_that_ran_no_test_is_told() {
        let none = WELL.replace("ok. 1 passed", "ok. 0 passed");
        assert!(!ran_none(&lines(WELL), "link"));
        assert!(ran_none(&lines(&none), "link"));
        // Another job's words, and a job that is no test program.
        assert!(!ran_none(&lines(&none), "other"));
        assert!(!ran_none(&lines(&none.replace("test result", "result")), "link"));
    }

    #[test]
    fn a_panic_is_told_from_an_oops_and_from_a_program_that_speaks_of_one() {
        assert!(matches!(judged(PANIC_TEXT), Verdict::Panic(line) if line.contains("VFS")));
        let oops = "[   13.4] Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI";
        assert!(matches!(judged(&format!("{WELL}\n{oops}")), Verdict::Oops(_)));
        // An oops that ends in a panic is an oops: the first cause.
        assert!(matches!(judged(&format!("{oops}\n{PANIC_TEXT}")), Verdict::Oops(_)));
        let arm = "[    3.1] Internal error: Oops: 0000000096000044 [#1] SMP";
        assert!(matches!(judged(&format!("{arm}\n{WELL}")), Verdict::Oops(_)));
        assert_eq!(judged(&format!("thread says Kernel panic - not syncing\nBUG: x\n{WELL}")), Verdict::Good(1));
        assert_eq!(
            judged(&format!("[   31.2] watchdog: BUG: soft lockup - CPU#1 stuck for 22s!\n{WELL}")),
            Verdict::Good(1)
        );
    }

    #[test]
    fn a_hang_names_the_wait_and_the_kernel_s_own_words_come_before_it() {
        let hang = Verdict::Hang { wait: String::from("the boot"), seconds: 90 };
        assert_eq!(judge(&lines("[ 0.1] Linux"), &bound(), &jobs(0)), hang);
        // A verdict, and then no power off: still a hang.
        assert_eq!(judge(&lines(WELL), &bound(), &jobs(0)), hang);
        assert!(matches!(judge(&lines(PANIC_TEXT), &bound(), &jobs(0)), Verdict::Panic(_)));
    }

    #[test]
    fn the_init_s_trouble_and_qemu_s_are_told() {
        let trouble = "ocx-guest: trouble\t/dev/vda: not there within 20 s";
        assert!(matches!(judged(trouble), Verdict::Init(why) if why.contains("vda")));
        let qemu = Stopped::Qemu(String::from("exit status: 1"));
        assert!(matches!(judge(&[], &qemu, &jobs(0)), Verdict::Qemu(_)));
    }
}
