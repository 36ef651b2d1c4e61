//! `ocx-supervisor`: the root process of OCX. The first word says what it does.

mod capabilities;
mod cgroup;
mod host;
mod launch;
mod once;
mod once_file;
mod own_files;
mod policy;
mod status;
mod sys;

use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "its one line")]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned()).collect();
    match words.split_first() {
        Some((first, rest)) if first == "once" => once::main(rest),
        _ => {
            eprintln!("ocx-supervisor: say what to do: once");
            ExitCode::from(2)
        },
    }
}
