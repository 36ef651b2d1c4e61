//! `ocx node`, the protocol process: speaks to Fossil, decides, and asks the supervisor for what only root can do.
//!
//! It holds no privilege. It is started by the supervisor with its end of the link as standard input, and ends with it.

pub mod care;
mod carry;
pub mod clock;
mod decide;
pub mod effects;
pub mod files;
pub mod fold;
pub mod gather;
pub mod journal;
pub mod known;
pub mod lane;
pub mod ledger;
pub mod link;
pub mod listener;
pub mod log;
mod over;
pub mod porter;
pub mod poster;
pub mod posting;
pub mod present;
pub mod publication_plan;
mod publish;
pub mod saved;
pub mod serve;
mod showing;
pub mod store;
mod tending;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use supervisor::wire::LINK_VERSION;
use supervisor::wire::message::{Reply, Request};

use self::care::Registry;
use self::journal::Journal;
use self::link::{HELLO_WAIT, Link};
use self::log::{Log, say};
use self::present::Board;
use self::store::Store;

/// Runs the protocol process; `args` are the words after `node`.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let root = match args {
        [option, root] if option == "--root" => PathBuf::from(root),
        _ => {
            say("usage: ocx node --root ROOT (the supervisor starts it, with its link as standard input)");
            return ExitCode::from(2);
        }
    };
    match run(&root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&format!("node: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn run(root: &std::path::Path) -> Result<(), String> {
    // Passwords are in this memory. An exec makes any process dumpable again, so it cannot be done for us.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|error| format!("not dumpable: {error}"))?;
    supervisor::points::begin(root);
    let link = Link::from_stdin()
        .map_err(|error| format!("the link: {error}; the protocol process is started by ocx-supervisor alone"))?;
    let registry = Arc::new(Registry::default());
    let reader = {
        let (link, registry) = (link.clone(), registry.clone());
        std::thread::spawn(move || {
            link.read(|told| {
                if let Err(told) = registry.tell(told) {
                    say(&format!("node: an event of no run in care: {:?}", told.event));
                }
            })
        })
    };
    let state = root.join("state");
    let store = Store::open(&state).map_err(|error| error.to_string())?;
    let board = Board::open(&state).map_err(|error| error.to_string())?;
    let log = Arc::new(Log::open(&state));
    let welcome = link.ask_and_wait(Request::Hello { version: LINK_VERSION }, HELLO_WAIT)?;
    let Reply::Welcome { provides, in_care } = welcome.reply else {
        return Err(format!("hello was answered by {:?}", welcome.reply));
    };
    log.event("node", "start", serde_json::json!({ "kernel": provides.kernel, "projects": provides.projects }));
    board.node(&provides);
    say(&format!("node: {} projects, {in_care} runs in care", provides.projects.len()));
    let journal = Journal::new(&state);
    let shared = serve::Shared { link, registry, store, log, board, journal };
    for project in &provides.projects {
        serve::lane(project, root, &provides, &shared)?;
    }
    if shared.store.ledger().damaged() > 0 {
        say(&format!(
            "node: {} lines of state/ledger cannot be read; they are passed over",
            shared.store.ledger().damaged()
        ));
    }
    let serve::Shared { store, registry, log, .. } = shared.clone();
    std::thread::spawn(move || fold::work(&store, &registry, &log));
    // The end of the link is the end of the supervisor, or its word that this process broke the boundary.
    match reader.join() {
        Ok(supervisor::wire::frame::FrameError::Closed) => Ok(()),
        Ok(error) => Err(format!("the link: {error}")),
        Err(_panicked) => Err("the link's reading thread failed".to_owned()),
    }
}
