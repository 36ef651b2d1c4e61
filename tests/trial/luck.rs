//! Bad luck, each in words a person can act on and before anything is made.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{Scratch, nothing_left, ocx, ocx_try, stderr, stdout, stopped_before_anything};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("fossil_missing_is_told_with_the_package", fossil_missing),
    ("a_port_taken_is_told", port_taken),
    ("a_caller_who_is_not_root_is_told_what_to_type", not_root),
    ("user_namespaces_off_are_told_with_the_setting", namespaces_off),
    ("too_little_space_is_told", no_space),
    ("a_directory_that_is_not_empty_stays_as_it_is", not_empty),
    ("a_directory_others_may_not_reach_is_told", out_of_reach),
    ("nothing_that_was_not_kept_is_stopped", no_kept_trial),
    ("wrong_usage_exits_2", usage),
];

fn fossil_missing() {
    let empty = Scratch::new("path");
    let output = Command::new(ocx()).arg("try").env("PATH", empty.path()).output().unwrap();
    stopped_before_anything(&output, &["fossil is not on PATH", "apt-get install fossil"]);
}

fn port_taken() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let scratch = Scratch::new("port");
    let dir = scratch.path().join("try");
    let output = ocx_try(&["--port", &port, "--dir", dir.to_str().unwrap()]);
    stopped_before_anything(&output, &[&format!("port {port} of 127.0.0.1 is taken"), "--port"]);
    nothing_left(&dir);
}

fn not_root() {
    // The program must be reached by anyone for this to say anything.
    let scratch = Scratch::new("nobody");
    for program in ["ocx", "ocx-supervisor"] {
        std::fs::copy(ocx().with_file_name(program), scratch.path().join(program)).unwrap();
    }
    let output = Command::new(scratch.path().join("ocx")).arg("try").uid(65534).gid(65534).output().unwrap();
    stopped_before_anything(&output, &["needs root", "sudo"]);
}

fn namespaces_off() {
    // A user namespace of its own, so that the setting is changed for this process alone.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" try";
    let output = Command::new("unshare").args(["--user", "--map-root-user", "sh", "-c", script]).arg(ocx()).output();
    stopped_before_anything(&output.unwrap(), &["user namespaces are off", "sysctl -w user.max_user_namespaces"]);
}

fn no_space() {
    let scratch = Scratch::new("small");
    let script = "mount -t tmpfs -o size=8m none \"$1\" && exec \"$0\" try --dir \"$1\"";
    let output = Command::new("unshare").args(["--mount", "sh", "-c", script]).arg(ocx()).arg(scratch.path()).output();
    stopped_before_anything(&output.unwrap(), &["no space", "--dir"]);
}

fn not_empty() {
    let scratch = Scratch::new("full");
    std::fs::write(scratch.path().join("mine"), "kept").unwrap();
    stopped_before_anything(&ocx_try(&["--dir", scratch.text()]), &["is not empty"]);
    assert_eq!(std::fs::read_to_string(scratch.path().join("mine")).unwrap(), "kept");
}

fn out_of_reach() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("shut");
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let dir = scratch.path().join("try");
    stopped_before_anything(&ocx_try(&["--dir", dir.to_str().unwrap()]), &["others may not enter", scratch.text()]);
    assert!(!dir.exists());
}

fn no_kept_trial() {
    let scratch = Scratch::new("stranger");
    std::fs::write(scratch.path().join("mine"), "kept").unwrap();
    stopped_before_anything(&ocx_try(&["--stop", scratch.text()]), &["is no trial that --keep left running"]);
    assert!(scratch.path().join("mine").exists());
}

fn usage() {
    let output = ocx_try(&["--nosuch"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--nosuch"));
    let help = ocx_try(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for option in ["--ticket", "--json", "--keep", "--dir", "--port", "Exit codes"] {
        assert!(stdout(&help).contains(option), "{option}");
    }
}
