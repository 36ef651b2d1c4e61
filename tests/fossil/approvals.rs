//! The tools on the server's host: approve, revoke, secret.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use ocx::fossil::Session;
use ocx::server::approving;
use ocx::server::on_host::OnHost;
use serde_json::Value;

use crate::collect::{CODE, approve, pairing, stored};
use crate::lab::Lab;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("v2_2_5_06_approving_another_clone_changes_no_password", another_clone),
    ("who_is_no_plain_user_is_not_approved", no_plain_user),
    ("eight_approvals_at_once_and_none_is_lost", eight_at_once),
    ("the_tools_answer_and_a_dry_run_changes_nothing", the_tools),
    ("card_22_a_secret_is_kept_from_stdin_and_taken_away", a_secret),
    ("what_root_keeps_is_the_serving_accounts_own", as_root),
];

const OTHER: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const NOBODY: u32 = 65534;

/// Runs the program; gives its exit code and its JSON answer.
fn ocx(program: &Path, args: &[&str], input: &[u8], account: Option<u32>) -> (i32, Value) {
    let mut command = Command::new(program);
    command.args(args).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(account) = account {
        command.uid(account).gid(account);
    }
    let mut child = command.spawn().unwrap();
    // One that refuses before it reads has closed its end.
    drop(child.stdin.take().unwrap().write_all(input));
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    let answer = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("{error}: {said}{}", String::from_utf8_lossy(&out.stderr));
    });
    (out.status.code().unwrap(), answer)
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ocx"))
}

fn approvals(lab: &Lab) -> Value {
    let file = lab.repository.with_file_name("ocx").join("approvals.json");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn another_clone() {
    let lab = Lab::new();
    let host = OnHost::at(&lab.repository).unwrap();
    let before = stored(&lab, "builder");
    let first = approving::approve(&host, &pairing("builder", "lab-1", CODE), false).unwrap();
    assert_eq!(first.result["password_set"], true);
    let set = stored(&lab, "builder");
    assert_ne!(set, before);
    for (login, clone) in [("lab-1", OTHER), ("lab-2", CODE), ("lab-1", CODE)] {
        let next = approving::approve(&host, &pairing("builder", login, clone), false).unwrap();
        assert_eq!(next.result["password_set"], false);
        assert_eq!(stored(&lab, "builder"), set);
    }
    let kept = approvals(&lab);
    let builder = &kept["users"]["builder"];
    assert_eq!(builder["clones"].as_array().unwrap().len(), 3, "the same pair again is not another");
    let password = builder["password"].as_str().unwrap();
    Session::new(lab.url(), "builder", password).unwrap().sign_in().unwrap();
    // Taken back one by one; the last takes the entry along, and the next approval sets another password.
    for (login, clone, left) in [("lab-1", OTHER, 2), ("lab-2", CODE, 1), ("lab-1", CODE, 0)] {
        let done = approving::revoke(&host, &pairing("builder", login, clone), false).unwrap();
        assert_eq!(done.result["clones"].as_array().unwrap().len(), left);
        assert!(approving::revoke(&host, &pairing("builder", login, clone), false).is_err());
        assert_eq!(stored(&lab, "builder"), set);
    }
    assert_eq!(approvals(&lab)["users"].as_object().unwrap().len(), 0);
    approve(&lab, "builder", "lab-1", CODE);
    assert_ne!(stored(&lab, "builder"), set);
    assert!(Session::new(lab.url(), "builder", password).unwrap().sign_in().is_err());
}

fn no_plain_user() {
    let lab = Lab::new();
    let host = OnHost::at(&lab.repository).unwrap();
    for (user, login, why) in [
        ("admin", "lab-1", "holds admin"),
        ("lab-2", "lab-1", "clone's letters"),
        ("nobody", "lab-1", "Fossil's own"),
        ("mason", "lab-1", "no user mason"),
        ("builder", "lab-9", "no user lab-9"),
    ] {
        let before: String = lab.ask("SELECT group_concat(login || pw) FROM user");
        let told = approving::approve(&host, &pairing(user, login, CODE), false).unwrap_err();
        assert!(told.contains(why), "{user}: {told}");
        assert_eq!(lab.ask::<String>("SELECT group_concat(login || pw) FROM user"), before);
    }
    assert!(!lab.repository.with_file_name("ocx").join("approvals.json").exists());
    // The control; what a person should know is told.
    let done = approving::approve(&host, &pairing("looker", "bob", CODE), false).unwrap();
    for told in ["no host has listed clone", "bob lacks letters", "looker lacks g or o"] {
        assert!(done.log.iter().any(|line| line.contains(told)), "{told}: {:?}", done.log);
    }
    lab.session("lab-1").list_clone(CODE, "here", "r").unwrap();
    let done = approving::approve(&host, &pairing("builder", "lab-1", CODE), false).unwrap();
    assert!(!done.log.iter().any(|line| line.contains("listed") || line.contains("lacks")), "{:?}", done.log);
}

fn eight_at_once() {
    let lab = Lab::new();
    std::thread::scope(|scope| {
        for clone in 0..8 {
            let lab = &lab;
            scope.spawn(move || approve(lab, "builder", "lab-1", &format!("{clone:040}")));
        }
    });
    let kept = approvals(&lab);
    assert_eq!(kept["users"]["builder"]["clones"].as_array().unwrap().len(), 8);
    let password = kept["users"]["builder"]["password"].as_str().unwrap();
    Session::new(lab.url(), "builder", password).unwrap().sign_in().unwrap();
}

fn the_tools() {
    let lab = Lab::new();
    let repository = lab.repository.to_str().unwrap();
    let before = stored(&lab, "builder");
    let call = |tool: &str, more: &[&str]| {
        let args = [&[tool, repository, "builder", "lab-1", CODE, "--json"], more].concat();
        ocx(program(), &args, b"", None)
    };
    let (code, answer) = call("approve", &["--dry-run"]);
    assert_eq!(
        (code, &answer["dry_run"], &answer["result"]["password_set"]),
        (0, &Value::Bool(true), &Value::Bool(true))
    );
    assert_eq!(stored(&lab, "builder"), before);
    assert!(!lab.repository.with_file_name("ocx").join("approvals.json").exists());
    let (code, answer) = call("revoke", &[]);
    assert_eq!(code, 1);
    assert!(answer["stopped"].as_str().unwrap().contains("nothing to revoke") && answer["result"].is_null());
    let (code, answer) = call("approve", &[]);
    assert_eq!((code, &answer["tool"], &answer["stopped"]), (0, &Value::from("approve"), &Value::Null));
    let kept = approvals(&lab);
    let password = kept["users"]["builder"]["password"].as_str().unwrap();
    assert!(!answer.to_string().contains(password));
    assert_ne!(stored(&lab, "builder"), before);
    let (code, answer) = call("revoke", &["--dry-run"]);
    assert_eq!((code, &answer["result"]["clones"]), (0, &serde_json::json!([])));
    assert_eq!(approvals(&lab), kept);
    let (code, _) = call("revoke", &[]);
    assert_eq!((code, approvals(&lab)), (0, serde_json::json!({"users": {}})));
    let (code, answer) = ocx(program(), &["approve", "/bin/true", "builder", "lab-1", CODE, "--json"], b"", None);
    assert_eq!(code, 1);
    assert!(answer["stopped"].as_str().unwrap().contains("/bin/true"), "{answer}");
    // The crash that came between password and store: the next call sets another, and all holds again.
    approve(&lab, "builder", "lab-1", CODE);
    fs::remove_file(lab.repository.with_file_name("ocx").join("approvals.json")).unwrap();
    fs::write(lab.repository.with_file_name("ocx").join("approvals.json.part"), "{\"us").unwrap();
    assert_eq!(call("approve", &[]).0, 0);
    let kept = approvals(&lab);
    let password = kept["users"]["builder"]["password"].as_str().unwrap();
    Session::new(lab.url(), "builder", password).unwrap().sign_in().unwrap();
}

fn a_secret() {
    let lab = Lab::new();
    let repository = lab.repository.to_str().unwrap();
    let folder = lab.repository.with_file_name("ocx").join("secrets");
    let keep = |text: &[u8], more: &[&str]| {
        let args = [&["secret", repository, "TOKEN", "--json"], more].concat();
        ocx(program(), &args, text, None)
    };
    assert_eq!(keep(b"one", &["--dry-run"]).0, 0);
    assert!(!folder.join("TOKEN").exists());
    let (code, answer) = keep(b"hunter2\n", &[]);
    assert_eq!((code, &answer["result"]["was_there"]), (0, &Value::Bool(false)));
    assert!(!answer.to_string().contains("hunter2"));
    assert_eq!(fs::read(folder.join("TOKEN")).unwrap(), b"hunter2");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.join("TOKEN")), mode(&folder)), (0o600, 0o700));
    let (code, answer) = keep(b"hunter3", &[]);
    assert_eq!((code, &answer["result"]["was_there"]), (0, &Value::Bool(true)));
    // What is no secret leaves the one there.
    for bad in [b"".as_slice(), b"\n", b"a\0b", b"\xff\xfe", &vec![b'x'; (64 << 10) + 1]] {
        let (code, answer) = keep(bad, &[]);
        assert!(code == 1 && answer["stopped"].as_str().unwrap().contains("the secret"), "{answer}");
    }
    assert_eq!(fs::read(folder.join("TOKEN")).unwrap(), b"hunter3");
    assert_eq!(keep(b"", &["--remove", "--dry-run"]).0, 0);
    assert!(folder.join("TOKEN").exists());
    assert_eq!(keep(b"", &["--remove"]).0, 0);
    assert!(!folder.join("TOKEN").exists());
    let (code, answer) = keep(b"", &["--remove"]);
    assert!(code == 1 && answer["stopped"].as_str().unwrap().contains("no secret TOKEN"), "{answer}");
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["secrets.lock"]);
}

fn as_root() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        // Only root can become another; the rest of these tests ran as an ordinary account already.
        return;
    }
    let lab = Lab::new();
    let repository = lab.repository.to_str().unwrap();
    let folder = lab.repository.with_file_name("ocx");
    // Where every account may start it.
    let anyones = lab.dir.join("ocx");
    fs::copy(program(), &anyones).unwrap();
    let args = ["approve", repository, "builder", "lab-1", CODE, "--json"];
    // The file is root's still: another account is told who must call.
    let (code, answer) = ocx(&anyones, &args, b"", Some(NOBODY));
    assert!(code == 1 && answer["stopped"].as_str().unwrap().contains("served by root"), "{answer}");
    for path in [lab.repository.parent().unwrap(), &lab.repository] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    assert_eq!(ocx(&anyones, &args, b"", None).0, 0);
    assert_eq!(ocx(&anyones, &["secret", repository, "TOKEN", "--json"], b"x", None).0, 0);
    for path in
        [folder.clone(), folder.join("approvals.json"), folder.join("approvals.lock"), folder.join("secrets/TOKEN")]
    {
        let about = fs::metadata(&path).unwrap();
        assert_eq!((about.uid(), about.gid(), about.mode() & 0o077), (NOBODY, NOBODY, 0), "{}", path.display());
    }
    assert_eq!(approvals(&lab)["users"]["builder"]["by"], "root");
    // The serving account itself goes on from there.
    let args = ["approve", repository, "builder", "lab-1", OTHER, "--json"];
    assert_eq!(ocx(&anyones, &args, b"", Some(NOBODY)).0, 0);
    // Root follows no link that the account puts in its way.
    let victim = lab.dir.join("victim");
    fs::write(&victim, "root's own").unwrap();
    fs::remove_file(folder.join("approvals.lock")).unwrap();
    std::os::unix::fs::symlink(&victim, folder.join("approvals.lock")).unwrap();
    assert_eq!(ocx(&anyones, &args, b"", None).0, 1);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's own");
}
