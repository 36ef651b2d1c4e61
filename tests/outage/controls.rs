//! Controls: with one rule taken away from the programs, what the other tests of this suite look at comes out wrong.

use std::time::Duration;

use serde_json::json;

use crate::down::events;
use crate::lab::{Lab, UNKNOWN_WAIT};
use crate::proxy::{Fault, Kind, Page};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("control: an unanswered post taken for one not sent is there twice (C-106)", sent_again),
    ("control: an unanswered post judged by the first pull is sent again too early (C-106)", judged_early),
    ("control: a pull whose answer was cut passes for a whole one (C-109)", cut_pull),
    ("control: a server that is overloaded once costs the kept log (C-107)", given_up),
];

/// Longer than anything here takes, on emulated machines too.
const LONG: Duration = Duration::from_secs(3600);

fn sent_again() {
    let mut lab = Lab::without("unknown-is-not-unsent", UNKNOWN_WAIT);
    // A pull would show that the server has it.
    lab.proxy.deafen();
    lab.proxy.spoil(Kind::Started, Fault::Swallowed);
    let asked = lab.run("exit 3");
    lab.until("it comes twice", |lab| lab.count(&asked, "started") >= 2);
    lab.proxy.mend(Kind::Started);
    lab.wait_for(&asked, "ended");
    lab.stop();
}

fn judged_early() {
    let mut lab = Lab::without("judged-late-enough", LONG);
    lab.proxy.spoil(Kind::Started, Fault::Silent);
    let asked = lab.run("exit 3");
    lab.until("it is sent again, long before it may be judged", |lab| lab.attempts(Kind::Started) >= 2);
    lab.proxy.mend(Kind::Started);
    lab.wait_for(&asked, "ended");
    lab.stop();
}

fn cut_pull() {
    let mut lab = Lab::without("every-exchange-answered", UNKNOWN_WAIT);
    lab.proxy.spoil(Kind::Pull, Fault::CutInHead);
    let before = lab.attempts(Kind::Pull);
    let asked = lab.run("exit 0");
    lab.until("it is pulled twice", |lab| lab.attempts(Kind::Pull) >= before + 2);
    assert!(!events(&lab).iter().any(|it| it["event"] == json!("pull_failure")), "the rule was taken away, and missed");
    lab.proxy.mend(Kind::Pull);
    // What was never pulled may be missed for ever: only the end of the test's own system is asked.
    drop(asked);
    lab.stop();
}

fn given_up() {
    let mut lab = Lab::without("later-is-not-never", UNKNOWN_WAIT);
    lab.proxy.spoil(Kind::Log, Fault::Says(Page("503 Service Unavailable", "", "Server Overload")));
    let asked = lab.run("echo out; exit 3");
    let told = lab.told(&asked, "settled", |it| it["state"] == json!("settled"));
    assert!(
        told["unpublished"].to_string().contains("logs: "),
        "the rule was taken away, and the log is there: {told}"
    );
    assert_eq!(lab.kinds(&asked), ["started", "ended"]);
    lab.stop();
}
