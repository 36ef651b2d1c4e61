//! The root process of OCX. The first word says what is done; nothing else is here.

mod answers;
mod as_account;
mod audit;
mod backoff;
mod capabilities;
mod care;
mod cgroup;
mod checked_steps;
mod child;
mod credentials;
mod deadlines;
mod durable;
mod ending;
mod explain;
mod floor;
mod host;
mod in_care;
mod kept_logs;
mod launch;
mod launched;
mod link;
mod log;
mod names;
mod node_files;
mod node_process;
mod once;
mod once_file;
mod opened;
mod orphans;
mod outputs;
mod own_files;
mod places;
mod policy;
mod process;
mod provides;
mod requests;
mod rings;
mod run;
mod run_hash;
mod serve;
mod service;
mod settings;
mod signals;
mod status;
mod steps;
mod strays;
mod streams;
mod sys;
mod tails;
#[cfg(test)]
mod testing;
mod turn;
mod workspaces;

use std::path::Path;
use std::process::ExitCode;

use supervisor::wire::accounts::SERVICE_ROOT;

const HELP: &str = "\
ocx-supervisor: the root process of OCX

  ocx-supervisor serve [--root ROOT]    serves ROOT (/var/lib/ocx): starts the protocol process,
                                        launches, watches and ends runs, until TERM
  ocx-supervisor once FILE [--account NAME|UID:GID]
                                        confines and runs one process from a JSON file
  ocx-supervisor explain FILE [--json]  says what such a file asks for, in words; runs nothing
  ocx-supervisor audit RUN|PID          says what the process of a run is, beside what was promised
  ocx-supervisor --help | --version
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let text: Vec<&str> = words.iter().map(String::as_str).collect();
    match text.as_slice() {
        ["serve"] => serve(Path::new(SERVICE_ROOT)),
        ["serve", "--root", root] => serve(Path::new(root)),
        ["once", ..] => once::main(words.get(1..).unwrap_or_default()),
        ["explain", ..] => explain::main(words.get(1..).unwrap_or_default()),
        ["audit", ..] => audit::main(words.get(1..).unwrap_or_default()),
        ["--help" | "-h" | "help"] => print(HELP),
        ["--version" | "-V"] => print(concat!("ocx-supervisor ", env!("CARGO_PKG_VERSION"), "\n")),
        _ => {
            complain(HELP);
            ExitCode::from(2)
        }
    }
}

fn serve(root: &Path) -> ExitCode {
    match serve::serve(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(&format!("ocx-supervisor: {why}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Says something on stdout; a reader that is gone is no fault.
fn print(text: &str) -> ExitCode {
    let _unread = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    ExitCode::SUCCESS
}

/// Says something on stderr.
fn complain(text: &str) {
    let _unread = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}
