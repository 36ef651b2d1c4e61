//! Launches that `once` has no form for: runs with a workspace, workspace steps, the protocol process.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use sandbox::op::Grant;
use sandbox::spec::{Confinement, CreatedFile, Limits};
use sandbox::status::{Ended, Listener, Said};
use supervisor::wire::accounts::{Account, Accounts, derive};
use supervisor::wire::plan::{LaunchPlan, Process};

use crate::Test;
use crate::host::Host;
use crate::launch::{self, Launching};
use crate::policy;
use crate::run::{ACCOUNT, Folder, lives, same, unique, wait_until};

pub(crate) const TESTS: &[Test] = &[
    ("launches::v2_2_8_18_workspace_at_shows_the_workspace_there", workspace_at),
    (
        "launches::c_17_own_folders_are_seen_in_the_workspace_and_a_host_path_is_not_taken_for_it",
        seen_beneath_the_workspace,
    ),
    ("launches::v2_2_8_02_later_keys_are_seen_over_earlier_ones", later_over_earlier),
    ("launches::c_88_without_scopes_a_shared_network_is_refused_unless_the_owner_has_it_so", shared_abstract_sockets),
    ("launches::v2_2_8_17_homes_are_seen_in_the_workspace_by_base_name", homes),
    ("launches::c_46_homes_of_one_base_name_or_without_a_workspace_are_refused", homes_refused),
    ("launches::c_90_a_workspace_path_goes_through_no_link", links_in_the_workspace),
    ("launches::a_link_an_earlier_run_left_at_a_home_is_not_followed", link_at_home),
    ("launches::v2_2_8_23_the_workspace_release_and_staged_may_be_named", exceptions),
    ("launches::a_workspace_outside_the_workspaces_is_refused", workspace_elsewhere),
    ("launches::c_104_the_end_of_the_lifeline_before_go_ends_it", no_go),
    ("launches::c_104_nothing_runs_before_go", waits_for_go),
    ("launches::a_step_sees_own_files_as_the_run_account", step),
    ("launches::the_protocol_process_has_nothing_but_its_streams", becomes),
    ("launches::the_protocol_process_ends_without_go", becomes_nothing),
];

/// A ROOT of a test's own, with one workspace.
pub(crate) struct Rooted {
    folder: Folder,
    pub(crate) host: Host,
    workspace: String,
}

impl Rooted {
    pub(crate) fn new() -> Result<Self, Failed> {
        let folder = Folder::new()?;
        chown(&folder.0, Some(0), Some(0))?;
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o711))?;
        folder.folder("workspaces", ACCOUNT)?;
        let workspace = folder.folder("workspaces/one", ACCOUNT)?;
        folder.folder("settings", 0)?;
        folder.folder("releases", 0)?;
        folder.folder("releases/r1", 0)?;
        folder.folder("releases/staged", ACCOUNT)?;
        let run = Account { uid: ACCOUNT, gid: ACCOUNT };
        let accounts = Accounts { run, ..derive(&folder.0) };
        let releases = folder.0.join("releases");
        let host = Host::look(&folder.0, accounts, &releases, &releases.join("r1"))?;
        Ok(Self { folder, host, workspace })
    }

    pub(crate) fn plan(&self, script: &str) -> LaunchPlan {
        LaunchPlan {
            run: "3f2a91c07b".repeat(4),
            workspace: Some(self.workspace.clone()),
            sandbox: Some(confinement()),
            limits: Limits::default(),
            process: process(script),
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.0.clone()
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        PathBuf::from(&self.workspace)
    }

    /// A plan with this path in one of its lists.
    pub(crate) fn shows(&self, list: &str, path: &str) -> LaunchPlan {
        with(self.plan("true"), |it| match list {
            "read_only" => it.read_only.push(path.to_owned()),
            "read_write" => it.read_write.push(path.to_owned()),
            _ => it.homes.push(path.to_owned()),
        })
    }

    fn launch(&self, plan: &LaunchPlan) -> Result<(Launching, OwnedFd), Failed> {
        let checked = policy::check(plan, &self.host).map_err(|it| format!("{it:?}"))?;
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let cell = launch::start(checked, streams(input)?, None, &self.host).map_err(|it| format!("{it:?}"))?;
        Ok((cell, output))
    }

    /// Makes one of the owner's settings.
    pub(crate) fn setting(&self, name: &str, text: &str) -> Result<(), Failed> {
        self.folder.file(&format!("settings/{name}"), text).map(drop)
    }

    /// A plan with something of every kind: without a sandbox, with the host's network, with capabilities, or ordinary.
    pub(crate) fn of(&self, which: &str, home: &str, script: &str) -> LaunchPlan {
        let mut plan = self.plan(script);
        plan.limits = Limits { cpu_s: Some(50), processes: Some(50), file_size_bytes: Some(1 << 20), ..plan.limits };
        plan.process.cwd.clone_from(&self.workspace);
        if which == "open" {
            plan.workspace = None;
            plan.sandbox = None;
            plan.limits.processes = None;
            plan.process.cwd = "/usr".to_owned();
            return plan;
        }
        with(plan, |it| {
            it.read_write = vec![self.workspace.clone()];
            it.homes = vec![home.to_owned()];
            it.created_files = vec![CreatedFile { at: "/etc/passwd".to_owned(), text: String::new() }];
            it.network = which == "network";
            if which == "capabilities" {
                it.linux_capabilities = vec!["CAP_NET_BIND_SERVICE".to_owned(), "CAP_CHOWN".to_owned()];
            }
        })
    }

    /// What it prints on both streams, and how it ends.
    fn prints(&self, plan: &LaunchPlan) -> Result<(String, Option<Said>), Failed> {
        let (cell, output) = self.launch(plan)?;
        go(&cell)?;
        to_the_end(cell, output)
    }

    fn refused(&self, plan: &LaunchPlan) -> Result<(u8, String), Failed> {
        match policy::check(plan, &self.host) {
            Ok(_) => Err("it was permitted".into()),
            Err(it) => Ok((it.row, format!("{}: {}", it.field, it.why))),
        }
    }
}

/// Nothing to read, and one place for both outputs.
pub(crate) fn streams(output: OwnedFd) -> Result<[OwnedFd; 3], Failed> {
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    Ok([null.into(), output.try_clone()?, output])
}

fn process(script: &str) -> Process {
    Process {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        cwd: "/".to_owned(),
        keep_stderr_bytes: 0,
        keep_stdout_bytes: 0,
    }
}

fn confinement() -> Confinement {
    let programs = ["/usr", "/bin", "/lib", "/lib64"].into_iter().filter(|it| Path::new(it).exists());
    Confinement {
        uid: 1000,
        gid: 1000,
        linux_capabilities: Vec::new(),
        network: false,
        isolate_terminal: true,
        ends_with_parent: true,
        proc: "/proc".to_owned(),
        dev: "/dev".to_owned(),
        tmp: "/tmp".to_owned(),
        read_only: programs.map(str::to_owned).collect(),
        read_write: Vec::new(),
        devices: Vec::new(),
        homes: Vec::new(),
        workspace_at: None,
        created_files: Vec::new(),
    }
}

/// Changes the sandbox of a plan.
fn with(mut plan: LaunchPlan, change: impl FnOnce(&mut Confinement)) -> LaunchPlan {
    plan.sandbox.as_mut().map(change);
    plan
}

pub(crate) fn go(cell: &Launching) -> Result<(), Failed> {
    match rustix::io::write(&cell.lifeline, &[sandbox::init::GO]) {
        // A cell that has failed already reads no more.
        Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn to_the_end(cell: Launching, output: OwnedFd) -> Result<(String, Option<Said>), Failed> {
    let mut text = String::new();
    fs::File::from(output).read_to_string(&mut text)?;
    waitid(WaitId::PidFd(cell.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    let mut said = Vec::new();
    fs::File::from(cell.status).read_to_end(&mut said)?;
    let mut listener = Listener::default();
    listener.hear(&said);
    let mut last = None;
    while let Some(next) = listener.next_said().map_err(|it| format!("{it:?}"))? {
        last = Some(next);
    }
    Ok((text, last))
}

fn exits(got: &(String, Option<Said>), text: &str) -> Result<(), Failed> {
    same(&format!("what it printed, and then {:?}", got.1), got.0.as_str(), text)?;
    let ended = matches!(got.1, Some(Said::Ended { how: Ended::Code(0), .. }));
    if ended { Ok(()) } else { Err(format!("{got:?}").into()) }
}

fn workspace_at() -> Result<(), Failed> {
    let root = Rooted::new()?;
    fs::create_dir(format!("{}/clone", root.workspace))?;
    let script =
        "echo x > /workspace/file; touch /workspace/clone/x 2>&1 | grep -o Read-only; test -e $0 || echo only there";
    let mut plan = with(root.plan(script), |it| {
        it.workspace_at = Some("/workspace".into());
        it.read_only.push(format!("{}/clone", root.workspace));
        it.created_files.push(CreatedFile { at: "/workspace/made".into(), text: "x".into() });
    });
    plan.process.command.push(root.workspace.clone());
    exits(&root.prints(&plan)?, "Read-only\nonly there\n")?;
    let made = fs::metadata(format!("{}/file", root.workspace))?;
    same("whose it is", made.uid(), ACCOUNT)
}

fn homes() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let home = Folder::new()?;
    let named = home.folder(".claude", ACCOUNT)?;
    let file = home.file(".netrc", "secret\n")?;
    let script = format!("echo kept > {0}/.claude/x; cat {0}/.netrc", root.workspace);
    let plan = with(root.plan(&script), |it| {
        it.read_write.push(root.workspace.clone());
        it.homes = vec![named.clone(), file];
    });
    exits(&root.prints(&plan)?, "secret\n")?;
    same("it appears there", fs::read_to_string(format!("{named}/x"))?, "kept\n".to_owned())?;
    same("whose the mount point is", fs::metadata(format!("{}/.claude", root.workspace))?.uid(), ACCOUNT)
}

fn homes_refused() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let home = Folder::new()?;
    let (one, _) = (home.folder("a", ACCOUNT)?, home.folder("b", ACCOUNT)?);
    let other = home.folder("b/a", ACCOUNT)?;
    let plan = with(root.plan("true"), |it| it.homes = vec![one, other]);
    same("why", root.refused(&plan)?.1.contains("same base name"), true)?;
    let plan = with(LaunchPlan { workspace: None, ..root.plan("true") }, |it| it.homes = vec![home.text()]);
    same("why", root.refused(&plan)?.1.contains("no workspace"), true)
}

fn links_in_the_workspace() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let outside = Folder::new()?;
    symlink(outside.text(), format!("{}/link", root.workspace))?;
    for path in ["link", "link/x"] {
        let plan = with(root.plan("true"), |it| it.read_write = vec![format!("{}/{path}", root.workspace)]);
        let (row, why) = root.refused(&plan)?;
        same("row", row, 7)?;
        same("why", why.contains("symbolic link"), true)?;
    }
    fs::create_dir(format!("{}/plain", root.workspace))?;
    let plan = with(root.plan("true"), |it| it.read_write = vec![format!("{}/plain", root.workspace)]);
    exits(&root.prints(&plan)?, "")
}

fn link_at_home() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let (home, outside) = (Folder::new()?, Folder::new()?);
    let named = home.folder(".claude", ACCOUNT)?;
    symlink(outside.text(), format!("{}/.claude", root.workspace))?;
    let plan = with(root.plan("true"), |it| {
        it.read_write.push(root.workspace.clone());
        it.homes = vec![named];
    });
    let (_, said) = root.prints(&plan)?;
    let failed = matches!(&said, Some(Said::Failed(it)) if it.code == 125 && it.errno == libc::ELOOP);
    same(&format!("{said:?}"), failed, true)
}

fn exceptions() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let path = |name: &str| root.folder.0.join(name).display().to_string();
    let reads = |name: &str| with(root.plan("true"), |it| it.read_only.push(path(name)));
    let writes = |name: &str| with(root.plan("true"), |it| it.read_write.push(path(name)));
    let home = with(root.plan("true"), |it| it.homes = vec![root.workspace.clone()]);
    let mut plans = vec![reads("workspaces/one"), writes("workspaces/one"), home];
    plans.extend([reads("releases/r1"), writes("releases/staged")]);
    for plan in plans {
        exits(&root.prints(&plan)?, "")?;
    }
    for plan in [
        writes("releases/r1"),
        reads("releases"),
        writes("releases"),
        reads("settings"),
        reads("workspaces"),
        with(root.plan("true"), |it| it.homes = vec![path("releases/staged")]),
    ] {
        same("row", root.refused(&plan)?.0, 7)?;
    }
    // Another run's workspace is not this one's.
    root.folder.folder("workspaces/two", ACCOUNT)?;
    same("row", root.refused(&reads("workspaces/two"))?.0, 7)
}

fn workspace_elsewhere() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let text = root.folder.text();
    for path in ["/etc", &text, &format!("{text}/workspaces"), &format!("{text}/workspaces/../settings"), "relative"] {
        let plan = LaunchPlan { workspace: Some(path.to_owned()), ..root.plan("true") };
        same("row", root.refused(&plan)?.0, 7)?;
    }
    Ok(())
}

fn no_go() -> Result<(), Failed> {
    let root = Rooted::new()?;
    for ends_with_parent in [true, false] {
        let plan = with(root.plan("echo ran"), |it| it.ends_with_parent = ends_with_parent);
        let (cell, output) = root.launch(&plan)?;
        let Launching { pidfd, status, lifeline, pid, promise } = cell;
        drop(lifeline);
        let (null, _) = pipe_with(PipeFlags::CLOEXEC)?;
        let got = to_the_end(Launching { pidfd, status, lifeline: null, pid, promise }, output)?;
        same("what it printed", got, (String::new(), None))?;
    }
    Ok(())
}

fn waits_for_go() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let word = unique();
    let (cell, output) = root.launch(&root.plan(&format!("sleep {word} & echo ran")))?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    same("before go", lives(&word), false)?;
    go(&cell)?;
    exits(&to_the_end(cell, output)?, "ran\n")
}

fn step() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let workspaces = root.folder.0.join("workspaces").display().to_string();
    let confined = Confinement { read_write: vec![workspaces.clone()], uid: ACCOUNT, gid: ACCOUNT, ..confinement() };
    let argv = ["/bin/sh", "-c", &format!("mkdir {workspaces}/new && ls {workspaces}")].map(str::to_owned);
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    let null = fs::File::open("/dev/null")?.into();
    let streams = [null, input.try_clone()?, input];
    let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let cell = launch::start_step(
        &argv,
        &env,
        &launch::StepSees { confinement: &confined, account: root.host.accounts.run, workspace: None },
        &Limits::default(),
        streams,
        None,
        &root.host,
    );
    let cell = cell.map_err(|it| format!("{it:?}"))?;
    go(&cell)?;
    exits(&to_the_end(cell, output)?, "new\none\n")?;
    same("whose it is", fs::metadata(format!("{workspaces}/new"))?.uid(), ACCOUNT)
}

fn becoming(script: &str) -> Result<(Launching, OwnedFd), Failed> {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned);
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    let null = fs::File::open("/dev/null")?.into();
    let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let mut root = Rooted::new()?;
    root.host.accounts.node = Account { uid: ACCOUNT, gid: ACCOUNT };
    // The program's own, and its view of itself.
    let places = ["/usr", "/bin", "/lib", "/lib64", "/proc"].into_iter().filter(|it| fs::metadata(it).is_ok());
    let grants = places.map(|it| Ok((fs::File::open(it)?.into(), Grant::Runs))).collect::<std::io::Result<_>>()?;
    let cell = launch::become_node(&argv, &env, grants, [null, input.try_clone()?, input], &root.host);
    Ok((cell.map_err(|it| format!("{it:?}"))?, output))
}

fn becomes() -> Result<(), Failed> {
    let script = "id -u; id -G; grep -E 'Cap(Eff|Bnd)|NoNew|Seccomp:' /proc/self/status; echo /proc/self/fd/*; env | sort | grep -v -E '^(PWD|_|OLDPWD|SHLVL)='";
    let (cell, output) = becoming(script)?;
    go(&cell)?;
    let (text, said) = to_the_end(cell, output)?;
    if let Some(Said::Failed(failed)) = said {
        return Err(format!("{failed:?}").into());
    }
    let none = "0000000000000000";
    let expected = format!(
        "{ACCOUNT}\n{ACCOUNT}\nCapEff:\t{none}\nCapBnd:\t{none}\nNoNewPrivs:\t1\nSeccomp:\t2\n\
         /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\nPATH=/usr/bin:/bin\n"
    );
    // The shell's own reading of the folder is the fourth.
    same("what it is", text, expected)
}

fn becomes_nothing() -> Result<(), Failed> {
    let word = unique();
    let (cell, output) = becoming(&format!("sleep {word}"))?;
    drop(cell.lifeline);
    let mut text = String::new();
    fs::File::from(output).read_to_string(&mut text)?;
    waitid(WaitId::PidFd(cell.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    wait_until("it is gone", || !lives(&word))?;
    same("what it printed", text.as_str(), "")
}

/// V2-2.8-02, C-17: own folders beneath `workspace_at` are seen over it, and a host path of that name is not taken for it.
fn seen_beneath_the_workspace() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let outside = Folder::new()?;
    let at = outside.folder("at", ACCOUNT)?;
    fs::write(format!("{at}/hosts"), "")?;
    fs::write(format!("{}/own", root.workspace), "")?;
    let script = format!("ls -A {at}; echo x > {at}/tmp/x; cat {at}/proc/1/comm | tr -d '\\0'; readlink {at}/dev/fd");
    let plan = |tmp: &str, proc: &str, dev: &str| {
        with(root.plan(&script), |it| {
            it.workspace_at = Some(at.clone());
            it.read_only.push(at.clone());
            it.read_write.push(outside.text());
            [it.tmp, it.proc, it.dev] = [tmp, proc, dev].map(|own| format!("{at}/{own}"));
        })
    };
    let expected = format!("dev\nown\nproc\ntmp\nocx-cell\n{at}/proc/self/fd\n");
    exits(&root.prints(&plan("tmp", "proc", "dev"))?, &expected)?;
    same("written in the workspace", fs::read_dir(format!("{}/tmp", root.workspace))?.count(), 0)?;
    same("whose the mount point is", fs::metadata(format!("{}/tmp", root.workspace))?.uid(), ACCOUNT)?;
    same("made beside the host's", fs::read_dir(&at)?.count(), 1)?;
    // A link an earlier run left where one goes.
    fs::remove_dir(format!("{}/tmp", root.workspace))?;
    symlink(&at, format!("{}/tmp", root.workspace))?;
    let (_, said) = root.prints(&plan("tmp", "proc", "dev"))?;
    let failed = matches!(&said, Some(Said::Failed(it)) if it.code == 125 && it.errno == libc::ELOOP);
    same(&format!("{said:?}"), failed, true)
}

/// V2-2.8-02: later keys over earlier ones.
fn later_over_earlier() -> Result<(), Failed> {
    let root = Rooted::new()?;
    let host = Folder::new()?;
    let (shown, home) = (host.folder("shown", ACCOUNT)?, host.folder("home", ACCOUNT)?);
    fs::write(format!("{shown}/file"), "")?;
    let script = format!(
        "ls -A {shown}; touch {shown}/x 2>&1 | grep -o Read-only; touch {0}/x 2>&1 | grep -o Read-only; touch {0}/home/kept",
        root.workspace
    );
    let plan = with(root.plan(&script), |it| {
        // Hides the empty folder.
        it.tmp.clone_from(&shown);
        it.read_only.extend([shown.clone(), root.workspace.clone()]);
        it.homes.push(home.clone());
    });
    // In what is read-only nothing is made: the place has to be there.
    let (_, said) = root.prints(&plan)?;
    same(&format!("{said:?}"), matches!(&said, Some(Said::Failed(it)) if it.errno == libc::ENOENT), true)?;
    root.folder.folder("workspaces/one/home", ACCOUNT)?;
    exits(&root.prints(&plan)?, "file\nRead-only\nRead-only\n")?;
    same("the home is written", Path::new(&home).join("kept").exists(), true)
}

/// C-88: refused by name where the kernel cannot keep the host's abstract sockets away, unless the owner has it so.
fn shared_abstract_sockets() -> Result<(), Failed> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let mut root = Rooted::new()?;
    let name = unique();
    let _listens = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let script = format!(
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; \
         print connect(S, pack(\"Sa*\", AF_UNIX, \"\\x00{name}\")) ? \"reached\" : \"kept away\"'"
    );
    let plan = with(root.plan(&script), |it| it.network = true);
    if root.host.landlock_abi >= crate::host::LANDLOCK_SCOPES {
        exits(&root.prints(&plan)?, "kept away")?;
    }
    root.host.landlock_abi = crate::host::LANDLOCK_SCOPES - 1;
    let (row, why) = root.refused(&plan)?;
    same(&why, (row, why.starts_with("sandbox.network: ")), (6, true))?;
    root.host.shared_abstract_sockets = true;
    exits(&root.prints(&plan)?, "reached")
}
