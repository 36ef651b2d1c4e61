//! Kills at no chosen point: either process, or both, again and again while runs are asked, taken, stopped and ended.
//! Then the properties are looked at, for each run as in the cases.
//!
//! What is done and when it is tried comes from a seed, which is printed; `OCX_CRASH_SEED` gives it again.

use std::time::{Duration, Instant};

use crate::case::{self, Stormed};
use crate::cases::Scenario;
use crate::host::{Host, SOON};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("P1 to P7, C-100 to C-108 in a storm of kills every run is launched once at most, and ended once", every_rule),
    ("control: a storm misses a launch that leaves no mark (C-104)", no_launch_mark),
];

fn every_rule() {
    let lasts = if crate::is_long() { LONG } else { SHORT };
    storm("", lasts).unwrap_or_else(|why| panic!("{why}"));
}

fn no_launch_mark() {
    let found = storm("launch-mark", SHORT).expect_err("the rule was taken away, and nothing missed it");
    assert!(found.contains("C-101: launched"), "{found}");
}

/// How long it lasts, in the short form and in the long.
const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);
/// Runs asked while it lasts.
const RUNS: u32 = 5;
/// Kills there are at least, however slow the machine is.
const KILLS_MIN: i32 = 6;
/// Longest wait between two kills, and longest time without a supervisor, in milliseconds.
const APART_MAX: u64 = 1500;
const AWAY_MAX: u64 = 700;
/// A post whose fate was unknown, and a node that waits for its next start, each come before this.
const AFTER: Duration = SOON.saturating_mul(2);

/// Numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn milliseconds(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}

fn seed() -> u64 {
    let given = std::env::var("OCX_CRASH_SEED").ok().map(|it| it.parse().unwrap());
    given.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).unwrap();
        u64::from_ne_bytes(bytes) >> 16
    })
}

/// One run of the storm.
struct Run {
    it: Stormed,
    /// When it is let go or stopped, and whether that is done.
    over_at: Duration,
    over: bool,
}

/// A storm over programs without this rule; what is wrong after it, in words.
fn storm(broken: &str, lasts: Duration) -> Result<(), String> {
    let seed = seed();
    #[expect(clippy::print_stdout, reason = "a storm that broke something is wanted again")]
    {
        println!("a storm of {} s from OCX_CRASH_SEED={seed}", lasts.as_secs());
    }
    let mut dice = Dice(seed);
    let mut host = Host::new(broken);
    let mut runs: Vec<Run> = Vec::new();
    // One runs before the first kill: on a slow machine others may all be lost before they are launched.
    let first = ask(&mut host, &mut dice, Scenario::Stopped, Duration::ZERO);
    host.wait_running(&first.it.asked, &first.it.token);
    runs.push(first);
    let begun = Instant::now();
    let mut ask_at: Vec<Duration> =
        (1..RUNS).map(|_| dice.milliseconds(u64::try_from(lasts.as_millis()).unwrap() * 2 / 3)).collect();
    ask_at.sort();
    let mut kills = [0; 3];
    while begun.elapsed() < lasts || kills.iter().sum::<i32>() < KILLS_MIN {
        std::thread::sleep(dice.milliseconds(APART_MAX));
        while ask_at.first().is_some_and(|at| begun.elapsed() >= *at) {
            ask_at.remove(0);
            let scenario = drawn(&mut dice);
            runs.push(ask(&mut host, &mut dice, scenario, begun.elapsed()));
        }
        let kind = dice.below(3);
        kills[usize::try_from(kind).unwrap()] += 1;
        if kind != 0 {
            host.kill_supervisor();
        }
        if kind != 1 {
            host.kill_node();
        }
        if kind != 0 {
            std::thread::sleep(dice.milliseconds(AWAY_MAX));
            host.start_supervisor();
        }
        for run in &mut runs {
            run.go_on(&host, begun.elapsed());
            nothing_lives_of_what_is_ended(&host, run, seed);
        }
    }
    for at in ask_at {
        let scenario = drawn(&mut dice);
        runs.push(ask(&mut host, &mut dice, scenario, at));
    }
    for run in &mut runs {
        run.go_on(&host, Duration::MAX);
    }
    let all: Vec<&Stormed> = runs.iter().map(|run| &run.it).collect();
    let looked_at = case::after_a_storm(&mut host, &all, AFTER);
    assert_eq!(runs.len(), usize::try_from(RUNS).unwrap());
    if !broken.is_empty() {
        // What programs without a rule left alive is this test's to end.
        host.trial.kill_host().unwrap();
    }
    host.stop().unwrap();
    looked_at.map_err(|why| format!("OCX_CRASH_SEED={seed}, {kills:?} kills: {why}"))
}

fn drawn(dice: &mut Dice) -> Scenario {
    if dice.below(4) == 0 { Scenario::Stopped } else { Scenario::Plain }
}

fn ask(host: &mut Host, dice: &mut Dice, scenario: Scenario, now: Duration) -> Run {
    let token = host.token();
    let waits = scenario == Scenario::Stopped || dice.below(2) == 0;
    let script = if waits { host.until_let_go(&token) } else { "echo done".to_owned() };
    let message = host.message(&token, &script);
    let asked = host.post(&message);
    let over_at = now + dice.milliseconds(4 * APART_MAX);
    Run { it: Stormed { asked, token, scenario }, over_at, over: false }
}

impl Run {
    /// Lets it go, or stops it, once it is time.
    fn go_on(&mut self, host: &Host, now: Duration) {
        if self.over || now < self.over_at {
            return;
        }
        self.over = true;
        if self.it.scenario == Scenario::Stopped {
            host.stop_run(&self.it.asked);
        }
        host.let_go(&self.it.token);
    }
}

fn nothing_lives_of_what_is_ended(host: &Host, run: &Run, seed: u64) {
    let thread = host.trial.thread(&run.it.asked).unwrap_or_else(|why| panic!("{why}"));
    if thread.iter().any(|entry| entry.kind == "ended") {
        let alive = host.alive(&run.it.token);
        assert!(
            alive.is_empty(),
            "OCX_CRASH_SEED={seed}: P3: ended is written while {alive:?} of it live\n{}",
            host.log()
        );
    }
}
