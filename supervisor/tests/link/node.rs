//! The other two programs this one is: the protocol process and the step tool of a test.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use supervisor::wire::frame;

/// Hands its end of the link, which is its descriptor 0, to the test that listens beside `ROOT`, and lives until the
/// test is done with it. Asked to, it makes the test's attempts and says what came of them.
pub(crate) fn main(root: &Path, attempts: fn(&Path) -> String) -> ExitCode {
    let Ok(mut test) = UnixStream::connect(root.with_file_name("node.sock")) else { return ExitCode::from(3) };
    // A program it drives, as fossil is.
    let program = std::env::current_exe().map(|program| {
        // Not our standard input: that is the link.
        std::process::Command::new(program).arg("idle").arg(root).stdin(std::process::Stdio::null()).spawn()
    });
    if !matches!(program, Ok(Ok(_))) {
        return ExitCode::from(7);
    }
    let stdin = rustix::stdio::stdin();
    if frame::send(test.as_fd(), &"link", &[stdin]).is_err() {
        return ExitCode::from(4);
    }
    // The test's is then the only other end: what it closes is closed.
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty());
    if null.is_ok_and(|null| rustix::stdio::dup2_stdin(null).is_err()) {
        return ExitCode::from(5);
    }
    loop {
        let mut byte = [0];
        let answered = match test.read(&mut byte) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(_) if byte == [MAKE_ATTEMPTS] => {
                let dir = root.parent().unwrap_or(root);
                frame::send(test.as_fd(), &attempts(dir), &[])
            }
            _ => return ExitCode::from(6),
        };
        if answered.is_err() {
            return ExitCode::from(8);
        }
    }
}

/// What the test writes to have this process make all attempts.
pub(crate) const MAKE_ATTEMPTS: u8 = b'a';

/// Outlives its parent, if it is let.
pub(crate) fn idle() -> ExitCode {
    std::thread::sleep(std::time::Duration::from_secs(120));
    ExitCode::SUCCESS
}

/// A step: as the real tool answers, by exit code, standard output and the last line of standard error.
#[expect(clippy::print_stderr, clippy::print_stdout, reason = "a step answers there")]
pub(crate) fn step(words: &[&str]) -> ExitCode {
    let [kind, _seen, at, ..] = words else { return ExitCode::from(9) };
    // Of those with more words the last path is what it makes.
    let at = Path::new(if *kind == "checkout" { words.get(3).unwrap_or(at) } else { words.last().unwrap_or(at) });
    let name = at.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.starts_with("sleepy") || (name.starts_with("stays") && *kind == "remove") {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
    if name.starts_with("fails") {
        eprintln!("it is to fail");
        return ExitCode::FAILURE;
    }
    if name == "tell" {
        eprintln!("{}", tell(words));
        return ExitCode::FAILURE;
    }
    if let Some(answer) = name.strip_prefix("answer-") {
        println!("{answer}");
        return ExitCode::SUCCESS;
    }
    if *kind == "inspect" {
        print!("{}", std::fs::read_to_string(at).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    let removed = match std::fs::remove_dir_all(at) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let done = removed.and_then(|()| if *kind == "directory" { std::fs::create_dir(at) } else { Ok(()) });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("not the last line");
            eprintln!("{}: {error}", at.display());
            ExitCode::FAILURE
        }
    }
}

/// What this step was started with, in one line.
fn tell(words: &[&str]) -> serde_json::Value {
    let mut stdin = String::new();
    std::io::stdin().read_to_string(&mut stdin).unwrap_or_default();
    let seen = Path::new(words.get(1).copied().unwrap_or("/"));
    // Of a root of workspaces what is in it, of a workspace what is beside it.
    let folder = if words.first() == Some(&"directory") { Some(seen) } else { seen.parent() };
    let mut beside: Vec<String> = folder
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .map(|list| list.flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    beside.sort();
    let mut variables: Vec<String> = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    variables.sort();
    let network = std::fs::read_link("/proc/self/ns/net").map(|it| it.display().to_string()).unwrap_or_default();
    serde_json::json!({
        "words": words, "stdin": stdin, "beside": beside, "variables": variables, "network": network,
        "is_there": seen.is_dir(),
    })
}
