//! The host's clock set hours forward and back, and to 1970 (decisions C-119). It is the whole host's, so this is done
//! only in a guest, which says that its clock is a test's to set.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ocx::trial::accounts::ADMIN;
use ocx::trial::{Asked, Where};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use serde_json::json;

use crate::system::{SOON, System};

/// Set by the guest's plan.
pub(crate) const OURS: &str = "OCX_TEST_CLOCK_IS_OURS";
pub(crate) const SET: (&str, fn()) =
    ("C-119 a clock set hours forward and back moves no wall, no grace, no post and no order", set);

const HOUR: u64 = 3600;
/// The run's wall, and the grace of a stop: long enough that a guest under emulation looks well before they are past.
const WALL: Duration = Duration::from_secs(120);
const GRACE: Duration = Duration::from_secs(90);
/// After each step both are looked at for so long.
const LOOKED_AT: Duration = Duration::from_secs(5);

/// The clock as it would be by itself.
struct Clock {
    wall: SystemTime,
    at: Instant,
}

impl Clock {
    /// Sets it so many seconds from what it would be by itself.
    fn set(&self, off: i64) {
        let own = (self.wall + self.at.elapsed()).duration_since(UNIX_EPOCH).unwrap();
        let seconds = i64::try_from(own.as_secs()).unwrap() + off;
        clock_settime(ClockId::Realtime, Timespec { tv_sec: seconds, tv_nsec: 0 }).unwrap();
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        assert!((seconds..seconds + 60).contains(&now), "the control: the clock is what it was set to");
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn set() {
    let mut system = System::with_settings(&[("grace", &GRACE.as_secs().to_string())]);
    let clock = Clock { wall: SystemTime::now(), at: Instant::now() };
    let hours = |n: i64| n * i64::try_from(HOUR).unwrap();

    let mut message = system.message("exec sleep 3600");
    message["run"]["limits"]["wall"] = json!(format!("{}s", WALL.as_secs()));
    let walled = system.post(Where::Thread, &message);
    system.wait_running(&walled);
    let wall_from = Instant::now();
    // It hears the stop, says so, and stays.
    let stopped = system.run("trap 'echo heard >&2' TERM; while :; do sleep 1; done");
    system.wait_running(&stopped);
    let stop = json!({"ocx": 2, "re": stopped.run, "stop": {}});
    system.trial.session(ADMIN).unwrap().reply(&stopped.run, &format!("```json\n{stop}\n```\n"));
    system
        .trial
        .wait("the stop's TERM", SOON, |trial| {
            let log = std::fs::read_to_string(trial.layout().log()).unwrap();
            Ok(log.contains("stop: a stop was posted").then_some(()))
        })
        .unwrap_or_else(|why| panic!("{why}"));
    let grace_from = Instant::now();

    for off in [hours(5), hours(-5), hours(29), 0] {
        clock.set(off);
        std::thread::sleep(LOOKED_AT);
        for (asked, from, limit) in [(&walled, wall_from, WALL), (&stopped, grace_from, GRACE)] {
            let over = has_ended(&system, asked);
            // Looked at before the clock that counts is: what is over then was over too early.
            assert!(!over || from.elapsed() >= limit, "{off} s: over after {:?} of {limit:?}", from.elapsed());
        }
        // What is asked meanwhile runs, and is told in order.
        let asked = system.run("echo now");
        assert_eq!(system.ended(&asked, SOON)["exit"], json!(0), "{off} s");
        assert_eq!(system.log(&asked, "stdout"), "now\n", "{off} s");
        assert_eq!(system.kinds(&asked), ["started", "ended", "log"], "{off} s");
    }
    // A clock turned back to where a host without a battery begins.
    let began = clock.wall.duration_since(UNIX_EPOCH).unwrap() + clock.at.elapsed();
    let uptime = i64::from(u32::try_from(clock_gettime(ClockId::Monotonic).tv_sec).unwrap());
    clock.set(uptime + 60 - i64::try_from(began.as_secs()).unwrap());
    let asked = system.run("echo early");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));

    assert_eq!(system.ended(&stopped, GRACE + SOON), *json!({"outcome": "stopped"}).as_object().unwrap());
    assert!(grace_from.elapsed() + Duration::from_secs(1) >= GRACE, "its grace was {:?}", grace_from.elapsed());
    let note = format!("past wall {}s", WALL.as_secs());
    assert_eq!(system.ended(&walled, WALL + SOON), *json!({"outcome": "budget", "note": note}).as_object().unwrap());
    assert!(wall_from.elapsed() + Duration::from_secs(1) >= WALL, "its wall was {:?}", wall_from.elapsed());
    // The node's own waits: it comes again after its death, whatever the clock says by then.
    for process in system.trial.node() {
        assert!(process.end(Duration::ZERO, || false));
    }
    clock.set(hours(-29));
    let asked = system.run("echo again");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    drop(clock);
    system.stop();
}

fn has_ended(system: &System, asked: &Asked) -> bool {
    system.trial.thread(asked).unwrap().iter().any(|entry| entry.kind == "ended")
}
