//! What a lane shows people: facts it has anyway, in the words of `present`.

use std::time::Instant;

use super::clock::utc_of;
use super::lane::{Ear, Lane, word};
use super::present::{LaneNow, RunNow, Trouble, Wait};
use super::tending::Tending;
use crate::protocol::life::State;

impl Lane {
    /// Shows the lane as it is, if that has changed.
    pub(super) fn show(&mut self) {
        let (runs, ear, serves) = (&self.runs, &self.ear, self.serves);
        self.shown.look(Instant::now(), |last| lane_now(last, ear, serves, runs));
    }
}

fn lane_now(last: &LaneNow, ear: &Ear, serves: bool, runs: &std::collections::BTreeMap<String, Tending>) -> LaneNow {
    let mut unsettled: Vec<(&String, &Tending)> = runs.iter().filter(|(_, it)| it.state != State::Settled).collect();
    unsettled.sort_by_key(|(_, it)| (it.seen.receipt.receipt, it.seen.receipt.row));
    LaneNow {
        pulled: ear.pulled.map(utc_of),
        trouble: ear.trouble.as_ref().map(|(since, why)| Trouble { since: utc_of(*since), why: why.clone() }),
        not_served: (!serves).then(|| "its user holds admin or setup on the server".to_owned()),
        runs: unsettled.into_iter().map(|(hash, run)| run_now(hash, run)).collect(),
        more: 0,
        project: last.project.clone(),
        server: last.server.clone(),
        user: last.user.clone(),
        clone: last.clone.clone(),
    }
}

fn run_now(hash: &str, run: &Tending) -> RunNow {
    let mut waits = Vec::new();
    if let Some(why) = run.why_waiting.as_ref().filter(|_| run.state == State::Unseen) {
        waits.push(Wait { what: "its turn".to_owned(), since: None, why: Some(why.clone()), again: None });
    }
    if let Some((since, why)) = &run.trouble
        && let Some(effect) = run.todo.front()
    {
        waits.push(Wait {
            what: format!("this host to do `{effect}`"),
            since: Some(utc_of(*since)),
            why: Some(why.clone()),
            again: run.again_at.map(utc_of),
        });
    }
    for (post, posting) in &run.posts {
        let waiting = posting.waits();
        let what = if waiting.unknown {
            format!("a pull that shows whether the server has {}", word(*post))
        } else {
            format!("the server to take {}", word(*post))
        };
        waits.push(Wait {
            what,
            since: Some(utc_of(waiting.since)),
            why: waiting.why.map(str::to_owned),
            again: waiting.again.map(utc_of),
        });
    }
    RunNow { run: hash.to_owned(), state: run.state.word().to_owned(), since: utc_of(run.since), waits }
}
