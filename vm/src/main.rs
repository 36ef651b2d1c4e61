//! `cargo try` and `cargo vm`: builds the workspace in release, then starts the trial or the tests.
//!
//! What it changes on the host, it says first. It makes build output and, for guests, a cache, and as root installs what
//! [`packages`] lists.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command speaks to whoever typed it")]

mod archive;
mod checks;
mod ci;
mod closure;
mod cpio;
mod guests;
mod image;
mod leftovers;
mod licences;
mod packages;
mod programs;
mod qemu;
mod recipe;
mod sum;
mod tally;
mod verdict;
mod words;
mod workspace;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use workspace::Workspace;

const HELP: &str = "\
cargo try [OPTIONS]   builds the workspace, then runs one real run on this machine (options: cargo try --help)
cargo ci              every check and test of this project, as root, and a short form of them in guests; the last line counts
cargo ci --here       the same without guests; --long with every test program in every guest, which takes hours
cargo vm try|ci       the same two
cargo vm closure      only what ocx-supervisor depends on, and the licences of all that is linked or built with

Whole hosts under QEMU, as root; ARCH is x86_64 or aarch64. What they are made of is fetched from Debian's archive once
and kept in /var/cache/ocx-vm, or in $XDG_CACHE_HOME/ocx-vm.
cargo vm test [ARCH|all [NAME...]]   runs test programs in a guest, all or those named; NAME/FILTER runs some tests of one
   --variant V                       on another host: one that lacks something, or has the newest kernel
   --whole                           with systemd as PID 1; without it a small init of our own is, and a guest is up in seconds
cargo vm shell ARCH                  a console in a guest, with the programs in it; takes the same two options
cargo vm image ARCH|all              only fetches and makes what guests are made of
cargo vm list                        what there is, and what of it is in the cache
";

/// Exit codes as the tools have them: 0 done, 1 stopped, 2 usage.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let word = args.next().unwrap_or_default();
    let rest: Vec<_> = args.collect();
    let done = match word.to_str() {
        Some("try") => try_it(&rest),
        Some("ci") => ci::run(&rest),
        Some("closure") => checks::closure_alone(),
        Some("list") => guests::list(),
        Some("image") => guests::image(&rest),
        Some("shell") => guests::shell(&rest),
        Some("test") => guests::test(&rest),
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(_) => {
            eprint!("cargo vm: no command {word:?}\n\n{HELP}");
            return ExitCode::from(USAGE);
        }
    };
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("cargo vm: {why}");
            ExitCode::FAILURE
        }
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Builds everything, then becomes `ocx try`.
fn try_it(args: &[std::ffi::OsString]) -> Result<ExitCode, String> {
    // Help changes nothing and needs no rights, so it is never held back by either.
    let asks_help = args.iter().take_while(|a| *a != "--").any(|a| a == "--help" || a == "-h");
    if !asks_help {
        let words = args.iter().map(|word| quoted(&word.to_string_lossy()));
        packages::require(&std::iter::once(String::from("cargo try")).chain(words).collect::<Vec<_>>().join(" "))?;
    }
    let workspace = Workspace::find()?;
    workspace.build()?;
    let program = workspace.program("ocx");
    // The programs stand where the rest of the build does; ocx finds ocx-supervisor beside itself.
    let failure = Command::new(&program).arg("try").args(args).exec();
    Err(format!("{}: {failure}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn the_line_to_type_is_the_line_typed() {
        assert_eq!(quoted("--ticket"), "--ticket");
        assert_eq!(quoted("id; it's"), "'id; it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
