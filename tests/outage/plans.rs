//! A plan of publications that is not finished when something dies.

use serde_json::json;

use crate::lab::{Lab, UNKNOWN_WAIT};
use crate::proxy::{Fault, Kind, Page};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("C-108 the node killed goes on with an unfinished plan", node_killed),
    ("C-108 after the supervisor's death only a publish goes on with it, and status lists it", supervisor_killed),
];

const OVERLOAD: Fault = Fault::Says(Page("503 Service Unavailable", "", "Server Overload"));

fn node_killed() {
    let mut lab = Lab::new();
    lab.proxy.spoil(Kind::Log, OVERLOAD);
    let asked = lab.run("echo out; exit 3");
    lab.told_waiting(&asked, "the server to take the kept log", "503");
    lab.trial.kill_node().unwrap();
    let before = lab.attempts(Kind::Log);
    // The next one looks, finds nothing, and sends it.
    lab.told(&asked, "the next node's wait", |it| {
        it["state"] == json!("publishing") && lab.attempts(Kind::Log) > before
    });
    lab.proxy.mend(Kind::Log);
    lab.wait_for(&asked, "log");
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended", "log"]);
    assert_eq!(lab.told(&asked, "settled", |_| true)["unpublished"], json!([]));
    lab.stop();
}

fn supervisor_killed() {
    let mut lab = Lab::new();
    lab.proxy.spoil(Kind::Log, OVERLOAD);
    let asked = lab.run("echo out; exit 3");
    lab.told_waiting(&asked, "the server to take the kept log", "503");
    lab.trial.kill_supervisor().unwrap();
    lab.proxy.mend(Kind::Log);
    let before = lab.attempts(Kind::Log);
    lab.trial.start_supervisor().unwrap();
    // A run after it is answered, so it was met, and runs of more than the listing's usual ten are settled after it.
    let last = (0..11).map(|_| lab.run("exit 0")).collect::<Vec<_>>();
    for run in &last {
        lab.wait_for(run, "ended");
    }
    lab.settled(last.last().unwrap());
    assert_eq!(
        (lab.kinds(&asked).as_slice(), lab.attempts(Kind::Log)),
        (["started", "ended"].map(String::from).as_slice(), before)
    );
    let listed = lab.status(None);
    let told = listed["runs"].as_array().unwrap().iter().find(|it| it["run"] == json!(asked.run));
    let said = told.map(|it| it["unpublished"].to_string()).unwrap_or_default();
    assert!(said.contains("logs: not published") && said.contains("publish"), "{listed}");
    // The control: of those that need nothing, the last ten are told.
    let all = listed["runs"].as_array().unwrap().len();
    assert_eq!(all, 11, "{listed}");
    std::thread::sleep(2 * UNKNOWN_WAIT);
    assert_eq!(lab.count(&asked, "log"), 0);
    lab.stop();
}
