//! A thread that is closed: a definite refusal, which fails a publication with words and never an `ended`.

use ocx::fossil::http::{Base, Body, Http};
use ocx::trial::accounts::ADMIN;
use serde_json::json;

use crate::lab::{Lab, SOON};
use crate::proxy::{Fault, Kind, Page};

pub(crate) const TESTS: &[(&str, fn())] =
    &[("C-107 closed: the kept log fails with words and is not tried again, ended waits until it is opened", answered)];

/// The first Fossil with closed threads.
pub(crate) const SINCE: (u32, u32) = (2, 23);
pub(crate) const TESTS_FROM_2_23: &[(&str, fn())] =
    &[("C-107 an admin closes the run's thread on a real server, and opens it again", really)];

/// As Fossil answers from 2.23 on.
const CLOSED: Fault = Fault::Says(Page(
    "200 OK",
    "",
    "<div class='error'>This (sub)thread is CLOSED and can only be\nedited or replied to by an admin user.</div>",
));
const OVERLOAD: Fault = Fault::Says(Page("503 Service Unavailable", "", "Server Overload"));

fn answered() {
    let mut lab = Lab::new();
    lab.proxy.spoil(Kind::Ended, CLOSED);
    lab.proxy.spoil(Kind::Log, CLOSED);
    let asked = lab.run("echo out; exit 3");
    lab.told_waiting(&asked, "the server to take ended", "closed");
    lab.proxy.mend(Kind::Ended);
    lab.wait_for(&asked, "ended");
    fails(&mut lab, &asked);
    assert_eq!(lab.attempts(Kind::Log), 1, "a definite refusal is not tried again");
    lab.stop();
}

/// The kept log has failed, in words; the run is settled all the same.
fn fails(lab: &mut Lab, asked: &ocx::trial::Asked) {
    let told = lab.told(asked, "settled", |it| it["state"] == json!("settled"));
    let said = told["unpublished"][0].as_str().unwrap_or_default().to_owned();
    assert!(said.contains("logs: not published") && said.contains("closed"), "{told}");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(lab.kinds(asked), ["started", "ended"]);
}

/// What an admin's browser sends.
fn page(lab: &Lab, path: &str, fields: &[(&str, &str)]) {
    let http = Http::new(Base::parse(lab.trial.url()).unwrap());
    let login = [("u", ADMIN.login), ("p", lab.trial.password(ADMIN)), ("in", "Login")];
    let answer = http.post("/login", None, Body::Form(&login), SOON).unwrap();
    let cookie = answer.cookies.iter().find_map(|it| it.split(';').next().filter(|it| it.starts_with("fossil-")));
    let cookie = cookie.unwrap().to_owned();
    let form = http.get("/forume1", Some(&cookie), SOON).unwrap().text;
    let token = form.split("name=\"csrf\" value=\"").nth(1).or_else(|| form.split("name='csrf' value='").nth(1));
    let token = token.and_then(|it| it.split(['"', '\'']).next()).unwrap().to_owned();
    let fields = [fields, &[("csrf", token.as_str())]].concat();
    loop {
        let answer = http.post(path, Some(&cookie), Body::Form(&fields), SOON).unwrap();
        // A pull of the node's holds the file for a moment.
        if !answer.text.contains("database is locked") {
            assert!(answer.status == 302, "{path}: {} {}", answer.status, answer.text);
            return;
        }
    }
}

fn really() {
    let mut lab = Lab::new();
    // Between `ended` and the log.
    lab.proxy.spoil(Kind::Log, OVERLOAD);
    let asked = lab.run("echo out; exit 3");
    lab.told_waiting(&asked, "the server to take the kept log", "503");
    page(&lab, "/forumpost_close", &[("fpid", &asked.run), ("reason", "enough")]);
    lab.proxy.mend(Kind::Log);
    fails(&mut lab, &asked);
    // Before `ended`: it is answered once the thread is open again.
    lab.proxy.spoil(Kind::Ended, OVERLOAD);
    let asked = lab.run("echo out; exit 3");
    lab.told_waiting(&asked, "the server to take ended", "503");
    page(&lab, "/forumpost_close", &[("fpid", &asked.run), ("reason", "enough")]);
    lab.proxy.mend(Kind::Ended);
    lab.told_waiting(&asked, "the server to take ended", "closed");
    page(&lab, "/forumpost_reopen", &[("fpid", &asked.run)]);
    lab.wait_for(&asked, "log");
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended", "log"]);
    lab.stop();
}
