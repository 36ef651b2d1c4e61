//! What `HASH.plan` holds (decisions C-65): the publications of one run, in the order of C-04, and what has become of each.
//! Pure; `store` keeps it.

use serde::{Deserialize, Serialize};

use crate::engine::quote;

/// The publications of one run, and which are on the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The hash of `ended`, once known.
    pub ended: Option<String>,
    /// Its outcome; empty while the run has none.
    pub outcome: String,
    /// The text of the kept-log reply; absent when there is none.
    pub logs: Option<String>,
    /// The workspace the files lie in.
    #[serde(default)]
    pub workspace: Option<String>,
    /// Whether the workspace is removed once all this is on the server.
    #[serde(default)]
    pub remove: bool,
    /// The unversioned files, in the run's order; none where its outcome publishes none.
    #[serde(default)]
    pub files: Vec<PlannedFile>,
    /// The verdict, where one is to be written.
    #[serde(default)]
    pub verdict: Option<PlannedVerdict>,
    /// Which publications are on the server; of files, the reply that names them.
    pub done: Vec<String>,
    /// Publications that failed for good, each with why.
    #[serde(default)]
    pub failed: Vec<(String, String)>,
    /// The publish messages that were taken up.
    #[serde(default)]
    pub publishes: Vec<TakenUp>,
}

/// One unversioned file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// Where it is, as the run names it, with values in place.
    pub at: String,
    /// What the server calls it.
    #[serde(rename = "as")]
    pub name: String,
    /// Its hash as the process left it, in hex; absent for one that was missing or forbidden, which is never sent.
    pub sha256: Option<String>,
    /// Whether the server has it.
    pub done: bool,
    /// Why it was not sent, when it was not.
    #[serde(default)]
    pub why: Option<String>,
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedVerdict {
    /// The check-in it is on.
    pub checkin: String,
    /// Its text.
    pub value: String,
    /// The control artifact: sent again it is the same one, so it is there once.
    pub artifact: String,
}

/// A publish message that was taken up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenUp {
    /// Its hash.
    pub publish: String,
    /// The reply that says why nothing is done; absent when the plan is retried.
    pub reply: Option<String>,
    /// Whether it has had its answer.
    pub over: bool,
}

/// The word of the kept-log reply in [`Plan::done`] and [`Plan::failed`].
pub const LOGS: &str = "logs";
/// The word of the reply that names the files.
pub const FILES: &str = "files";
/// The word of the verdict.
pub const VERDICT: &str = "verdict";
/// The word of the reply that says why there is no verdict.
pub const NO_VERDICT: &str = "no_verdict";

/// What is to be published next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// The kept-log reply.
    Logs,
    /// The file of this number.
    File(usize),
    /// The reply that names the files.
    Files,
    /// The verdict.
    Verdict,
    /// The reply that says why there is no verdict.
    NoVerdict,
}

impl Plan {
    /// The first publication that is neither on the server nor has failed for good (decisions C-04).
    #[must_use]
    pub fn next(&self) -> Option<Item> {
        let left = |word: &str| !self.done.iter().chain(self.failed.iter().map(|(it, _)| it)).any(|it| it == word);
        let failed = |word: &str| self.failed.iter().any(|(it, _)| it == word);
        if self.logs.is_some() && left(LOGS) {
            return Some(Item::Logs);
        }
        if let Some(file) = self.files.iter().position(|file| !file.done && file.why.is_none()) {
            return Some(Item::File(file));
        }
        if !self.files.is_empty() && left(FILES) {
            return Some(Item::Files);
        }
        if self.verdict.is_some() && left(VERDICT) {
            return Some(Item::Verdict);
        }
        (failed(VERDICT) && left(NO_VERDICT)).then_some(Item::NoVerdict)
    }

    /// Whether every publication is on the server, or has failed for good.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.next().is_none()
    }

    /// Whether a publish has anything to try: what is left, and what failed and could be there yet.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        !self.is_over()
            || self.files.iter().any(PlannedFile::could_be_sent)
            || self.failed.iter().any(|it| self.again(it))
    }

    fn again(&self, (what, _): &(String, String)) -> bool {
        // Without a check-in there is no verdict to be had.
        what != VERDICT && what != NO_VERDICT || self.verdict.is_some()
    }

    /// What is not on the server and is not tried again by itself, each with why; files by their names.
    #[must_use]
    pub fn failures(&self) -> Vec<(String, String)> {
        let unsent = self.files.iter().filter(|it| !it.done);
        let files = unsent.filter_map(|it| Some((format!("file {}", quote::shown(&it.name)), it.why.clone()?)));
        self.failed.iter().cloned().chain(files).collect()
    }

    /// Takes a publish up: what failed is to be tried again, and told anew.
    pub fn retry(&mut self, publish: &str) {
        let again: Vec<String> = self.failed.iter().filter(|it| self.again(it)).map(|(what, _)| what.clone()).collect();
        self.failed.retain(|(what, _)| !again.contains(what));
        if again.iter().any(|it| it == VERDICT) {
            self.done.retain(|it| it != NO_VERDICT);
        }
        for file in self.files.iter_mut().filter(|file| file.could_be_sent()) {
            file.why = None;
            self.done.retain(|it| it != FILES);
        }
        self.publishes.push(TakenUp { publish: publish.to_owned(), reply: None, over: false });
    }

    /// The publish that has the plan retried, if one does.
    #[must_use]
    pub fn retried_for(&self) -> Option<&str> {
        self.publishes.iter().find(|it| it.reply.is_none() && !it.over).map(|it| it.publish.as_str())
    }

    /// Marks what became of an item.
    pub fn mark(&mut self, item: Item, became: Result<(), String>) {
        if let Item::File(file) = item {
            if let Some(file) = self.files.get_mut(file) {
                file.done = became.is_ok();
                file.why = became.err();
            }
            return;
        }
        match became {
            Ok(()) => self.done.push(item.word().to_owned()),
            Err(why) => self.failed.push((item.word().to_owned(), why)),
        }
    }
}

impl Item {
    /// Its word in [`Plan::done`] and [`Plan::failed`], where a file has none of its own.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Logs => LOGS,
            Self::File(_) | Self::Files => FILES,
            Self::Verdict => VERDICT,
            Self::NoVerdict => NO_VERDICT,
        }
    }
}

impl PlannedFile {
    /// Whether it is not on the server and has a hash it could be sent by.
    fn could_be_sent(&self) -> bool {
        !self.done && self.sha256.is_some()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn file(name: &str, sha256: Option<&str>) -> PlannedFile {
        let why = sha256.is_none().then(|| "there is no such file".to_owned());
        PlannedFile { at: format!("/w/{name}"), name: name.into(), sha256: sha256.map(Into::into), done: false, why }
    }

    fn plan() -> Plan {
        let verdict = PlannedVerdict { checkin: "c".into(), value: "pass".into(), artifact: "D".into() };
        Plan {
            outcome: "exited".into(),
            logs: Some("text".into()),
            files: vec![file("a", Some("1")), file("gone", None), file("b", Some("2"))],
            verdict: Some(verdict),
            ..Plan::default()
        }
    }

    /// Goes through a plan; what fails is told by `fails`. The items, in order.
    fn through(plan: &mut Plan, fails: impl Fn(Item) -> bool) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(item) = plan.next() {
            items.push(item);
            plan.mark(item, if fails(item) { Err("no".to_owned()) } else { Ok(()) });
        }
        items
    }

    /// C-04, V2-2.10-34: each thing once, in this order, and what was missing is never sent.
    #[test]
    fn c_04_the_order_is_logs_files_their_reply_verdict() {
        let mut all = plan();
        let items = through(&mut all, |_| false);
        assert_eq!(items, [Item::Logs, Item::File(0), Item::File(2), Item::Files, Item::Verdict]);
        assert!(all.is_over() && !all.is_unfinished());
        assert!(Plan::default().is_over() && !Plan::default().is_unfinished());
    }

    /// V2-0-03, V2-2.3-30: a publish tries what is not done yet, and only that; a reply tells of it anew.
    #[test]
    fn v2_2_3_25_a_publish_retries_only_what_is_not_done() {
        let mut all = plan();
        let items = through(&mut all, |item| matches!(item, Item::File(2) | Item::Verdict));
        assert_eq!(items, [Item::Logs, Item::File(0), Item::File(2), Item::Files, Item::Verdict, Item::NoVerdict]);
        assert!(all.is_over() && all.is_unfinished());
        all.retry("p1");
        assert_eq!(all.retried_for(), Some("p1"));
        assert_eq!(through(&mut all, |_| false), [Item::File(2), Item::Files, Item::Verdict]);
        assert!(!all.is_unfinished());
        // A verdict without a check-in never comes.
        let mut without = Plan { verdict: None, failed: vec![(VERDICT.into(), "no check-in".into())], ..plan() };
        through(&mut without, |_| false);
        assert!(!without.is_unfinished());
    }

    /// A plan of an earlier release, without what came since, is read.
    #[test]
    fn a_plan_of_logs_alone_is_read() {
        let old = r#"{"ended":null,"outcome":"exited","logs":"text","done":[]}"#;
        let old: Plan = serde_json::from_str(old).unwrap();
        assert_eq!(old.next(), Some(Item::Logs));
        let whole = serde_json::to_value(plan()).unwrap();
        assert_eq!(whole.pointer("/files/0").unwrap().as_object().unwrap().keys().len(), 5);
        assert_eq!(serde_json::from_value::<Plan>(whole).unwrap(), plan());
    }
}
