//! Runs that fork without end, several at once. `settings/processes` keeps the host itself out of it.

use std::path::{Path, PathBuf};

use ocx::trial::accounts::ADMIN;
use ocx::trial::{Asked, Where};
use serde_json::json;
use supervisor::wire::accounts::cgroup_name;

use crate::system::{SOON, System};

pub(crate) const TESTS: &[(&str, fn())] =
    &[("2.3, P7 three runs that fork without end leave the node its programs, and are stopped", bombs)];

/// How many processes all runs together may have here.
const PROCESSES: u64 = 256;
/// A program that has as many processes as it is let, for as long as it is let.
const BOMB: &str = "exec perl -e 'while (1) { fork // select undef, undef, undef, 0.2 }'";

fn bombs() {
    let mut system = System::with_settings(&[("processes", &PROCESSES.to_string())]);
    let signal = system.trial.layout().dir.join("signal");
    std::fs::create_dir(&signal).unwrap();
    let mut message = system.message(&format!("while [ ! -e {}/go ]; do sleep 0.1; done; {BOMB}", signal.display()));
    message["run"]["sandbox"]["read_only"].as_array_mut().unwrap().push(json!(signal));
    message["run"]["limits"]["wall"] = json!("3600s");
    let bombs: Vec<Asked> = (0..3).map(|_| system.post(Where::Thread, &message)).collect();
    for bomb in &bombs {
        system.wait_running(bomb);
    }
    std::fs::write(signal.join("go"), "").unwrap();
    let group = system
        .trial
        .wait("the bombs to have all there is", SOON, |trial| Ok(full(&trial.layout().root())))
        .unwrap_or_else(|why| panic!("{why}"));
    // Nothing new is begun on a host that is full, and nothing is refused for it: its turn comes.
    let asked = system.run("echo fine");
    system
        .trial
        .wait("why it waits", SOON, |trial| {
            let log = std::fs::read_to_string(trial.layout().log()).unwrap();
            Ok(log.contains(&format!("of the {PROCESSES} processes all may have together")).then_some(()))
        })
        .unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(system.kinds(&asked), [""; 0]);
    assert!(current(&group) > PROCESSES - 8, "the control: the host is full still");
    // The node pulls, hears the stops and posts the ends, with programs of its own for each.
    for bomb in &bombs {
        let stop = json!({"ocx": 2, "re": bomb.run, "stop": {}});
        system.trial.session(ADMIN).unwrap().reply(&bomb.run, &format!("```json\n{stop}\n```\n"));
    }
    for bomb in &bombs {
        assert_eq!(system.ended(bomb, SOON)["outcome"], json!("stopped"));
    }
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    system.stop();
}

fn current(group: &Path) -> u64 {
    std::fs::read_to_string(group.join("pids.current")).unwrap_or_default().trim().parse().unwrap_or(0)
}

/// The group of all runs, in whichever hierarchy counts processes, once it is full.
fn full(root: &Path) -> Option<PathBuf> {
    let name = cgroup_name(root);
    let mut next = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(group) = next.pop() {
        if group.file_name().is_some_and(|it| *it == *name) && current(&group) >= PROCESSES {
            return Some(group);
        }
        let below = std::fs::read_dir(&group).into_iter().flatten().flatten();
        next.extend(below.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())).map(|it| it.path()));
    }
    None
}
