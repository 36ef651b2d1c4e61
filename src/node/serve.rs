//! Starts a clone's lane: its passwords, its clone, its threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use serde::Deserialize;
use serde_json::json;
use supervisor::wire::frame;
use supervisor::wire::message::{Reply, Request};
use supervisor::wire::plan::Provides;

use super::care::Registry;
use super::clock::utc_now;
use super::gather::Gatherer;
use super::journal::Journal;
use super::known::Known;
use super::lane::{Ear, Lane};
use super::link::{HELLO_WAIT, Link};
use super::listener::{LANE_WAIT, Listener, Watched};
use super::log::{Log, say};
use super::porter::Porter;
use super::poster::Poster;
use super::present::{Board, LaneNow, Shown, Trouble};
use super::store::Store;
use crate::engine::check::Host;
use crate::fossil::http::ANSWER_WAIT;
use crate::fossil::{CloneFile, Program, Session};

/// Largest passwords file believed, in bytes.
const PASSWORDS_BYTES_MAX: u64 = 1 << 20;

/// A project's passwords, without the `runs` map (decisions C-66, C-99).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Passwords {
    server: String,
    user: String,
    password: String,
}

/// What all lanes work with.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The way to the supervisor.
    pub link: Arc<Link>,
    /// What is in care.
    pub registry: Arc<Registry>,
    /// Durable state.
    pub store: Store,
    /// The node's log.
    pub log: Arc<Log>,
    /// Where people are shown what lanes do.
    pub board: Board,
    /// The runs' own logs.
    pub journal: Journal,
}

/// Starts the lane of one project in threads of its own.
///
/// # Errors
/// When the supervisor cannot be asked. A fault of the project's own is logged, and the other lanes go on.
pub fn lane(project: &str, root: &Path, provides: &Provides, shared: &Shared) -> Result<(), String> {
    let not_served = |why: String, about: LaneNow| {
        say(&format!("lane {project}: {why}; it is not served"));
        shared.board.lane(&LaneNow { project: project.to_owned(), not_served: Some(why), ..about });
    };
    let answer =
        shared.link.ask_and_wait(Request::Credential { project: project.to_owned(), user: None }, HELLO_WAIT)?;
    let (Reply::Descriptor, Some(fd)) = (&answer.reply, answer.descriptors.into_iter().next()) else {
        not_served(format!("its passwords file is not to be had: {:?}", answer.reply), LaneNow::default());
        return Ok(());
    };
    // Sealed, and read from its start: the offset is shared with the supervisor, which left it at the end.
    let read = frame::read_sealed(&fd, PASSWORDS_BYTES_MAX).map_err(|error| error.to_string());
    let parsed = read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    let passwords: Passwords = match parsed {
        Ok(passwords) => passwords,
        Err(why) => {
            not_served(format!("its passwords file: {why}"), LaneNow::default());
            return Ok(());
        }
    };
    let mut now = LaneNow {
        project: project.to_owned(),
        server: passwords.server.clone(),
        user: passwords.user.clone(),
        ..LaneNow::default()
    };
    let Some(fossil) = Program::find() else {
        not_served("the program fossil is not installed: apt-get install fossil".to_owned(), now);
        return Ok(());
    };
    // Each lane's fossil has a HOME of its own: it writes its configuration there, and two at once meet its lock.
    let home = root.join("state/homes").join(project);
    if let Err(error) = std::fs::create_dir_all(&home) {
        not_served(format!("{}: {error}", home.display()), now);
        return Ok(());
    }
    let program = Program::new(&fossil, &home, &passwords.user);
    let file = root.join("clones").join(format!("{project}.fossil"));
    let (project, provides) = (project.to_owned(), provides.clone());
    let Shared { link, registry, store, log, board, journal } = shared.clone();
    std::thread::spawn(move || {
        let session = match Session::new(&passwords.server, &passwords.user, &passwords.password) {
            Ok(session) => Arc::new(session.answer_within(supervisor::points::wait("answer", ANSWER_WAIT))),
            Err(error) => {
                say(&format!("lane {project}: {error}; it is not served"));
                now.not_served = Some(error.to_string());
                board.lane(&now);
                return;
            }
        };
        board.lane(&now);
        let server_code = loop {
            match clone_of(&program, &passwords, &file) {
                Ok(code) => break code,
                Err(why) => {
                    say(&format!("lane {project}: {why}; trying again in {} s", LANE_WAIT.as_secs()));
                    log.event(&project, "end", json!({ "why": why }));
                    let since = now.trouble.take().map_or_else(utc_now, |it| it.since);
                    now.trouble = Some(Trouble { since, why });
                    board.lane(&now);
                    std::thread::sleep(supervisor::points::wait("lane", LANE_WAIT));
                    log.event(&project, "start", json!({}));
                }
            }
        };
        now.trouble = None;
        now.clone = Some(server_code.clone());
        say(&format!("lane {project}: serving clone {server_code} as {}", passwords.user));
        let release = Path::new(&provides.release).file_name().map_or_else(String::new, |it| it.display().to_string());
        // V2-2.13-07: a convenience; nothing is decided from it.
        if let Err(error) = session.list_clone(&server_code, &provides.host_name, &release) {
            say(&format!("lane {project}: the clone could not be listed on the server: {error}; serving goes on"));
            log.event(&project, "listing_failure", json!({ "why": error.to_string() }));
        }
        let (me, inputs) = channel();
        let (voice, jobs) = channel();
        let watched = Watched::default();
        let gatherer = Gatherer {
            clone: CloneFile::new(&file, &program),
            link: link.clone(),
            project: project.clone(),
            server_code: server_code.clone(),
            session: session.clone(),
        };
        let poster =
            Poster { session: session.clone(), program: program.clone(), file: file.clone(), to_lane: me.clone() };
        std::thread::spawn(move || poster.work(&jobs));
        let (porter, errands) = channel();
        let carrier = Porter {
            session: session.clone(),
            link: link.clone(),
            program: program.clone(),
            file: file.clone(),
            to_lane: me.clone(),
        };
        std::thread::spawn(move || carrier.work(&errands));
        let listener = Listener {
            lane: project.clone(),
            session: session.clone(),
            program,
            file,
            store: store.clone(),
            log: log.clone(),
            to_lane: me.clone(),
            watched: watched.clone(),
        };
        std::thread::spawn(move || listener.listen());
        // C-89: without cgroups nothing could end such a run whole.
        let unconfined_at = provides.cgroup.then(|| Path::new(&provides.root).join("settings/unconfined"));
        let server_url = session.server().to_owned();
        let host = Host {
            unconfined: false,
            r_senders: None,
            root: provides.workspaces,
            root_open: provides.workspaces_open,
            releases: provides.releases,
            release: provides.release,
            repository_name: server_url.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned(),
            server_url,
        };
        let lane = Lane {
            name: project,
            server_code,
            user: passwords.user,
            host,
            unconfined_at,
            link,
            registry,
            store,
            log,
            journal,
            shown: Shown::new(board, now),
            ear: Ear::default(),
            me,
            voice,
            porter,
            gatherer,
            watched,
            known: Known::default(),
            published: std::collections::BTreeSet::new(),
            runs: std::collections::BTreeMap::new(),
            serves: true,
        };
        lane.work(&inputs);
    });
    Ok(())
}

/// The server-code of the project's clone, which is made when there is none (decisions C-61).
fn clone_of(program: &Program, passwords: &Passwords, file: &Path) -> Result<String, String> {
    if !file.exists() {
        crate::fossil::clone::make(program, &passwords.server, &passwords.user, &passwords.password, file)
            .map_err(|error| error.to_string())?;
    }
    CloneFile::open(file, program).and_then(|clone| clone.server_code()).map_err(|error| error.to_string())
}
