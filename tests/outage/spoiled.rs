//! Each way a server can fail to answer, met by each post of a run.

use crate::lab::{Lab, UNKNOWN_WAIT};
use crate::proxy::{Fault, Kind, Page};

pub(crate) const TESTS: &[(&str, fn())] = &[
    (
        "C-106 P2 never seen by the server and never answered: sent again only once a later completion shows it absent",
        silent,
    ),
    ("C-106 P2 stored and never answered: found, not sent again", swallowed),
    ("C-106 P2 stored, and the answer cut in its head: found, not sent again", cut_in_head),
    ("C-106 P2 stored, and the answer a byte a second: found, not sent again", trickle),
    ("C-106 P2 stored, and a server in front says 504: found, not sent again", gateway),
    ("C-107 500 is no answer and fails nothing", error_500),
    ("C-107 503 is no answer and fails nothing", error_503),
    ("C-107 a page for robots is no answer and fails nothing", robot),
    ("C-107 a redirect elsewhere is no answer and fails nothing", elsewhere),
    ("C-106 C-107 a lock that stays longer than it is tried for fails nothing", locked),
    ("C-57 a redirect whose body is cut is a whole answer", cut_in_body),
    ("C-106 V2-2.13-09 a reply to a misplaced stop whose answer is lost is there once", misplaced),
];

/// A run's posts: each with its kind on the server and its name in status.
const POSTS: [(Kind, &str, &str); 3] =
    [(Kind::Started, "started", "started"), (Kind::Ended, "ended", "ended"), (Kind::Log, "log", "the kept log")];
/// What is unknown is told in these words.
const LOOKING: &str = "a pull that shows whether the server has ";
/// What is known not to be stored, in these.
const WAITING: &str = "the server to take ";

/// Has all three posts meet a fault, one after another, each until status has told of it.
fn through(fault: Fault, words: &str, why: &str, of_each: impl Fn(&Lab, Kind)) {
    let mut lab = Lab::new();
    if words == LOOKING {
        lab.proxy.deafen();
    }
    for (kind, ..) in POSTS {
        lab.proxy.spoil(kind, fault);
    }
    let asked = lab.run("echo out; exit 3");
    for (number, (kind, name, word)) in POSTS.into_iter().enumerate() {
        lab.told_waiting(&asked, &format!("{words}{word}"), why);
        // C-04: what comes after it is not there before the server has it.
        let stored = usize::from(fault.reaches());
        assert_eq!(lab.kinds(&asked).len(), number + stored, "{:?} at {name}", lab.kinds(&asked));
        lab.proxy.mend(kind);
        lab.wait_for(&asked, name);
    }
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended", "log"]);
    assert_eq!(lab.ended(&asked)["exit"], 3);
    for (kind, ..) in POSTS {
        of_each(&lab, kind);
    }
    lab.stop();
}

fn once(lab: &Lab, kind: Kind) {
    assert_eq!(lab.attempts(kind), 1, "{kind:?} was sent again without need");
}

/// It was sent more than once.
fn again(lab: &Lab, kind: Kind) {
    assert!(lab.attempts(kind) > 1, "{kind:?}: {:?}", lab.proxy.came(kind));
}

fn silent() {
    through(Fault::Silent, LOOKING, "no answer", |lab, kind| {
        let came = lab.proxy.came(kind);
        assert_eq!(came.len(), 2, "{kind:?}: {came:?}");
        let (over, next) = (came[0].over.unwrap(), came[1].at);
        // Between the two, a completion was asked for long enough after the first; the node's own clock is a little ahead.
        let asked = lab.proxy.came(Kind::High).into_iter().map(|it| it.at).rfind(|at| *at < next);
        let waited = asked.unwrap().saturating_duration_since(over);
        assert!(waited + std::time::Duration::from_millis(500) >= UNKNOWN_WAIT, "{kind:?}: judged after {waited:?}");
    });
}

fn swallowed() {
    through(Fault::Swallowed, LOOKING, "no answer", once);
}

fn cut_in_head() {
    through(Fault::CutInHead, LOOKING, "no answer", once);
}

fn trickle() {
    through(Fault::Trickle, LOOKING, "no answer", once);
}

fn gateway() {
    let page = Page("504 Gateway Timeout", "", "no answer from behind");
    through(Fault::Instead(page), LOOKING, "504", once);
}

fn error_500() {
    through(Fault::Says(Page("500 Internal Server Error", "", "<h1>oops</h1>")), WAITING, "500", again);
}

fn error_503() {
    through(Fault::Says(Page("503 Service Unavailable", "", "Server Overload")), WAITING, "503", again);
}

fn robot() {
    let page = Page("200 OK", "", "<title>Browser Verification</title><h1>I think you are a robot</h1>");
    through(Fault::Says(page), WAITING, "robot", again);
}

fn elsewhere() {
    let page = Page("302 Moved", "Location: https://example.org/forumpost/0123456789\r\n", "");
    through(Fault::Says(page), WAITING, "sent elsewhere", again);
}

fn locked() {
    // As Fossil says it.
    let page = Page("400 Bad Request", "", "<p class=\"generalError\">Database error: database is locked</p>");
    through(Fault::Says(page), WAITING, "database is locked", again);
}

fn cut_in_body() {
    let mut lab = Lab::new();
    for (kind, ..) in POSTS {
        lab.proxy.spoil(kind, Fault::CutInBody);
    }
    let asked = lab.run("echo out; exit 3");
    lab.wait_for(&asked, "log");
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended", "log"]);
    for (kind, ..) in POSTS {
        once(&lab, kind);
    }
    lab.stop();
}

fn misplaced() {
    let mut lab = Lab::new();
    lab.proxy.spoil(Kind::Misplaced, Fault::Swallowed);
    let asked = lab.run("sleep 600");
    lab.wait_running(&asked);
    let stop = |run: &str| format!("```json\n{}\n```\n", serde_json::json!({"ocx": 2, "re": run, "stop": {}}));
    let admin = lab.trial.session(ocx::trial::accounts::ADMIN).unwrap();
    admin.new_thread("Elsewhere", &stop(&asked.run));
    let replies = |lab: &Lab| {
        let received = lab.trial.record().received().unwrap();
        received.iter().filter(|(_, from)| from == ocx::trial::accounts::NODE.login).count()
    };
    let deadline = std::time::Instant::now() + crate::lab::SOON;
    while replies(&lab) < 2 {
        assert!(std::time::Instant::now() < deadline, "started and the reply: {:?}\n{}", replies(&lab), lab.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    lab.proxy.mend(Kind::Misplaced);
    std::thread::sleep(3 * UNKNOWN_WAIT);
    assert_eq!((replies(&lab), lab.attempts(Kind::Misplaced)), (2, 1));
    admin.reply(&asked.run, &stop(&asked.run));
    assert_eq!(lab.ended(&asked)["outcome"], "stopped");
    lab.stop();
}
