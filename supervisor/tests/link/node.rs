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

/// A step: as the real tool answers, by exit code and the last line of stderr.
#[expect(clippy::print_stderr, reason = "a step answers there")]
pub(crate) fn step(kind: &str, at: &Path) -> ExitCode {
    let named = |word: &str| at.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(word.as_bytes()));
    if named("sleepy") || (named("stays") && kind == "remove") {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
    if named("fails") {
        eprintln!("it is to fail");
        return ExitCode::FAILURE;
    }
    let removed = match std::fs::remove_dir_all(at) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let done = removed.and_then(|()| if kind == "directory" { std::fs::create_dir(at) } else { Ok(()) });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("not the last line");
            eprintln!("{}: {error}", at.display());
            ExitCode::FAILURE
        }
    }
}
