//! What follows `ended`, from the durable plan: one thing after another, each on the server before the next (decisions
//! C-04), and what a `publish` message does with what is left (protocol 2.3).

use std::time::Instant;

use super::lane::{Input, Lane};
use super::listener::Seen;
use super::over::how_it_was;
use super::porter::{Errand, Load, Source, hash_all};
use super::poster::Post;
use super::posting::Posting;
use super::publication_plan::{Item, Plan, PlannedFile, PlannedVerdict, TakenUp, VERDICT};
use super::saved::Look;
use crate::engine::check;
use crate::engine::expand::Values;
use crate::engine::report::{self, FileTold, How, NotPublished};
use crate::engine::run::Run;
use crate::engine::{publications, read};
use crate::fossil::tag;
use crate::protocol::life::{Do, Event, State};
use crate::protocol::names::RunId;
use crate::protocol::outcomes::OUTCOMES;

/// The tag of a verdict by OCX (decisions C-70).
const TAG: &str = "ci";

impl Lane {
    /// Has the files hashed that the run is to send, and its workspace looked at if it is to be removed, in a thread of its
    /// own: the disk and the server may be slow.
    pub(super) fn hash_files(&mut self, hash: &str) -> Result<Option<Event>, String> {
        let values = self.values(hash);
        let Some(run) = self.runs.get_mut(hash) else { return Ok(None) };
        run.files = Vec::new();
        run.saved = None;
        let Some(asked) = read::run(&run.seen.message.content).ok() else { return Ok(Some(Event::FilesHashed)) };
        let ran = run.over.as_ref().is_none_or(|over| over.ran);
        let publishes = run.over.as_ref().is_some_and(|over| publishes(&how_it_was(over, Some(&asked))));
        let named = if publishes { asked.process.unversioned_files.len() } else { 0 };
        let mut look = run.accepted.as_deref().and_then(Look::of);
        if look.is_none() && asked.removes_once_saved() {
            run.saved = Some(Err("kept: the run could not be read again".to_owned()));
        } else if look.is_some() && !ran {
            // Nothing but the steps' own work is in it.
            (run.saved, look) = (Some(Ok(())), None);
        }
        let none = |why: &str| {
            let named = publications::files(&asked, values.as_ref().unwrap_or(&Values::new()));
            let file = |it: publications::NamedFile| PlannedFile {
                at: it.at,
                name: it.name,
                sha256: None,
                done: false,
                why: Some(why.to_owned()),
            };
            named.into_iter().map(file).collect()
        };
        let mut to_hash = Vec::new();
        if named > 0 && values.is_none() {
            run.files = none("the run's values could not be read again");
        } else if named > 0 && !ran {
            run.files = none("the run's process never ran");
        } else if named > 0 {
            to_hash = publications::files(&asked, values.as_ref().unwrap_or(&Values::new()));
        }
        let handle = run.handle;
        let look = look.zip(handle);
        if to_hash.is_empty() && look.is_none() {
            return Ok(Some(Event::FilesHashed));
        }
        let files = std::mem::take(&mut run.files);
        let saved = run.saved.take();
        let source = Source { run: hash.to_owned(), handle, workspace: run.workspace.clone() };
        let (link, me, run) = (self.link.clone(), self.me.clone(), hash.to_owned());
        let session = self.gatherer.session.clone();
        let work = move || {
            let files = if to_hash.is_empty() { files } else { hash_all(&link, &source, to_hash) };
            let saved = look.map(|(look, handle)| look.look(&link, &session, handle)).or(saved);
            // A lane that is gone takes the node with it.
            drop(me.send(Input::Hashed(run, files, saved)));
        };
        std::thread::Builder::new().spawn(work).map_err(|error| format!("a thread to hash its files: {error}"))?;
        Ok(None)
    }

    /// What the run publishes, as it is known once its process is over.
    pub(super) fn plan_for(
        &mut self,
        hash: &str,
        id: &RunId,
        asked: Option<&Run>,
        how: &How,
        logs: Option<String>,
    ) -> Plan {
        let verdict = asked.filter(|it| it.process.verdict && publishes(how)).map(|_| self.verdict(hash, id, how));
        // A publish may have come, and been answered, before there was anything to publish.
        let publishes = self.store.plan(hash).ok().flatten().map(|it| it.publishes).unwrap_or_default();
        let run = self.runs.get_mut(hash);
        let remove = run.as_ref().is_some_and(|run| run.saved == Some(Ok(())));
        let (files, workspace) =
            run.map(|run| (std::mem::take(&mut run.files), run.workspace.clone())).unwrap_or_default();
        let outcome = how.outcome().word().to_owned();
        let mut plan = Plan { outcome, logs, workspace, remove, files, publishes, ..Plan::default() };
        match verdict {
            None | Some(Ok(None)) => {}
            Some(Ok(verdict)) => plan.verdict = verdict,
            Some(Err(why)) => plan.failed.push((VERDICT.to_owned(), why.to_owned())),
        }
        plan
    }

    /// The verdict of a run that asks one; none for one whose process never ran.
    fn verdict(&self, hash: &str, id: &RunId, how: &How) -> Result<Option<PlannedVerdict>, &'static str> {
        let over = self.runs.get(hash).and_then(|run| run.over.as_ref());
        let Some(over) = over.filter(|it| it.ran) else { return Ok(None) };
        let Some(value) = publications::verdict(id, how, over.signal()) else { return Ok(None) };
        let checkin = publications::checkin(self.values(hash).as_ref())?;
        let at = super::clock::utc_now_exact();
        let artifact = tag::raw_tag(at.trim_end_matches('Z'), TAG, &checkin, &value, &self.user);
        Ok(Some(PlannedVerdict { checkin, value, artifact }))
    }

    /// The values of a run in hand: as it was accepted, or, of one that was adopted, as its counted `started` has them.
    fn values(&self, hash: &str) -> Option<Values> {
        let run = self.runs.get(hash)?;
        match &run.accepted {
            Some(accepted) => Some(accepted.values().clone()),
            None => self.known.started_values(&run.seen, &self.user),
        }
    }

    /// The plan of a run. One that cannot be read holds up nothing: what it would have published is not, and that is said.
    pub(super) fn plan_of(&self, hash: &str) -> Option<Plan> {
        self.store.plan(hash).unwrap_or_else(|error| {
            self.say(hash, &format!("its plan cannot be read, so what is left of it is not published: {error}"));
            None
        })
    }

    /// Hands the first thing over that is left of the plan.
    pub(super) fn publish(&mut self, hash: &str) -> Result<Option<Event>, String> {
        let (Some(mut plan), Some(id)) = (self.plan_of(hash), RunId::new(hash)) else {
            return Ok(Some(Event::Published));
        };
        let asked_for = plan.retried_for().map(str::to_owned);
        let publish = asked_for.as_deref();
        match plan.next() {
            None => {
                if let Some(taken_up) = plan.publishes.iter_mut().find(|it| it.reply.is_none() && !it.over) {
                    taken_up.over = true;
                    self.store.save_plan(hash, &plan).map_err(|error| format!("writing the plan: {error}"))?;
                }
                return Ok(Some(Event::Published));
            }
            Some(Item::Logs) => self.post(hash, Post::Logs, plan.logs.unwrap_or_default()),
            Some(Item::File(number)) => {
                let Some(file) = plan.files.get(number).cloned() else { return Ok(Some(Event::Published)) };
                let handle = self.runs.get(hash).and_then(|run| run.handle);
                let source = Source { run: hash.to_owned(), handle, workspace: plan.workspace };
                self.send(hash, Post::File, Load::File { source, file });
            }
            Some(Item::Files) => {
                let told = |file: &'_ PlannedFile| match (file.done, &file.sha256) {
                    (true, Some(sha256)) => Ok(sha256.clone()),
                    _ => Err(file.why.clone().unwrap_or_default()),
                };
                let told: Vec<_> = plan.files.iter().map(|file| (file.name.clone(), told(file))).collect();
                let told: Vec<_> = told
                    .iter()
                    .map(|(name, sent)| FileTold {
                        name,
                        sent: sent.as_ref().map(String::as_str).map_err(String::as_str),
                    })
                    .collect();
                self.post(hash, Post::Files, report::files(&id, &told, publish));
            }
            Some(Item::Verdict) => {
                let artifact = plan.verdict.map(|it| it.artifact).unwrap_or_default();
                self.send(hash, Post::Verdict, Load::Verdict { artifact });
            }
            Some(Item::NoVerdict) => {
                let why = plan.failed.iter().find(|(what, _)| what == VERDICT).map_or("", |(_, why)| why);
                self.post(hash, Post::NoVerdict, report::no_verdict(&id, why, publish));
            }
        }
        Ok(None)
    }

    /// Hands a load to the porter, as its posting says.
    fn send(&mut self, hash: &str, post: Post, load: Load) {
        let Some(run) = self.runs.get_mut(hash) else { return };
        // Sent twice it is there once: what an earlier process did need not be looked for.
        run.perhaps_posted = false;
        run.load = Some(load);
        run.posts.insert(post, Posting::new(String::new(), Instant::now()));
    }

    /// Hands what a posting of the porter's is about to it.
    pub(super) fn errand(&self, hash: &str) {
        let Some(load) = self.runs.get(hash).and_then(|run| run.load.clone()) else { return };
        // A porter that is gone takes the node with it.
        drop(self.porter.send(Errand { run: hash.to_owned(), load }));
    }

    /// Marks what became of the publication under way, durably, and goes on to the next.
    pub(super) fn publication(&mut self, hash: &str, post: Post, became: Result<(), String>) {
        if let Some(run) = self.runs.get_mut(hash) {
            run.load = None;
        }
        if let Err(why) = &became {
            self.say(
                hash,
                &format!("{}: not published, and not tried again by itself: {why}", super::lane::word(post)),
            );
        }
        if let Ok(Some(mut plan)) = self.store.plan(hash)
            && let Some(item) = plan.next().filter(|item| of(*item) == post)
        {
            plan.mark(item, became);
            if let Err(error) = self.store.save_plan(hash, &plan) {
                // Not marked it would be published again.
                self.say(
                    hash,
                    &format!("the plan could not be written: {error}; what is left of it waits for a publish"),
                );
                self.fire(hash, Event::Published);
                return;
            }
        }
        if let Some(run) = self.runs.get_mut(hash) {
            run.todo.push_back(Do::Publish);
        }
        self.go_on(hash);
    }

    /// Writes that what is left of the plan is tried again.
    pub(super) fn save_retry(&mut self, hash: &str) -> Result<(), String> {
        let Some(run) = self.runs.get_mut(hash) else { return Ok(()) };
        let Some(publish) = run.publish.clone() else { return Ok(()) };
        let plan = self.store.plan(hash).map_err(|error| format!("reading the plan: {error}"))?;
        let Some(mut plan) = plan else { return Ok(()) };
        if plan.retried_for() != Some(publish.as_str()) {
            plan.retry(&publish);
        }
        self.store.save_plan(hash, &plan).map_err(|error| format!("writing the plan: {error}"))?;
        // C-106: it may be on the server all the same. The other texts name the publish, and are new.
        run.perhaps_posted = plan.next() == Some(Item::Logs);
        Ok(())
    }

    /// The publish messages that name a run and stand where it is, each met once.
    pub(super) fn hear_publishes(&mut self, hash: &str, first: bool) {
        let Some(run) = self.runs.get(hash) else { return };
        for publish in self.known.publishes(&run.seen, &self.user) {
            let Some(run) = self.runs.get_mut(hash) else { return };
            if run.heard.insert(publish.hash.clone()) {
                self.hear_publish(hash, publish, first);
            }
        }
    }

    fn hear_publish(&mut self, hash: &str, publish: Seen, first: bool) {
        let (Some(run), Some(id)) = (self.runs.get(hash), RunId::new(hash)) else { return };
        let (state, plan) = (run.state, self.plan_of(hash));
        if let Some(taken_up) = plan.iter().flat_map(|it| &it.publishes).find(|it| it.publish == publish.hash) {
            // By an earlier process: a retry goes on by itself, a reply may have been posted.
            if let (Some(reply), false) = (taken_up.reply.clone(), taken_up.over) {
                self.known.answer_publish(publish, hash, reply, true);
            }
            return;
        }
        if state == State::Settled && plan.as_ref().is_some_and(Plan::is_unfinished) {
            self.say(hash, &format!("publish {} asks for what is left", super::log::short(&publish.hash)));
            if let Some(run) = self.runs.get_mut(hash) {
                run.publish = Some(publish.hash);
            }
            return self.fire(hash, Event::PublishAsked);
        }
        let outcome = plan.as_ref().map(|it| it.outcome.clone()).filter(|it| !it.is_empty());
        let outcome = outcome.or_else(|| self.known.outcome(&run.seen, &self.user)).unwrap_or_default();
        let why = if state == State::Settled { NotPublished::Nothing(&outcome) } else { NotPublished::Held };
        let reply = report::not_published(&id, &publish.hash, why);
        // Of a run settled long ago no file is kept, and so not this either.
        let mut looked_for = first;
        if !self.store.ledger().has(hash) {
            let mut plan = plan.unwrap_or_else(|| Plan { outcome: outcome.clone(), ..Plan::default() });
            plan.publishes.push(TakenUp { publish: publish.hash.clone(), reply: Some(reply.clone()), over: false });
            match self.store.save_plan(hash, &plan) {
                Ok(()) => looked_for = false,
                Err(error) => self.say(hash, &format!("that a publish came could not be written: {error}")),
            }
        }
        self.known.answer_publish(publish, hash, reply, looked_for);
    }

    /// The reply to a publish is on the server, or was refused.
    pub(super) fn publish_answered(&mut self, hash: &str, publish: &str) {
        let Some(mut plan) = self.plan_of(hash) else { return };
        let Some(taken_up) = plan.publishes.iter_mut().find(|it| it.publish == publish) else { return };
        taken_up.over = true;
        if let Err(error) = self.store.save_plan(hash, &plan) {
            self.say(
                hash,
                &format!("the plan could not be written: {error}; the reply is looked for at the next start"),
            );
        }
    }
}

/// Whether files and verdicts of such an end are published.
fn publishes(how: &How) -> bool {
    OUTCOMES.iter().any(|row| row.outcome == how.outcome() && row.publishes)
}

/// The post that an item is.
fn of(item: Item) -> Post {
    match item {
        Item::Logs => Post::Logs,
        Item::File(_) => Post::File,
        Item::Files => Post::Files,
        Item::Verdict => Post::Verdict,
        Item::NoVerdict => Post::NoVerdict,
    }
}

/// Whether a message is a publish of this run that counts: addressed to the clone's user, by someone who may.
pub(super) fn counts(publish: &Seen, run: &Seen, user: &str, sender: &check::Sender) -> bool {
    let named = check::publish_of(&publish.message);
    named.is_some_and(|(to, id)| to == user && id.as_str() == run.hash)
        && check::publish_allowed(sender, run.receipt.from.as_deref())
}
