//! Each step of a launch left out on purpose, one at a time: what was promised is measured before the program is executed,
//! so it never is.

use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use sandbox::op::{Grant, Op, Recipe, Stage};
use sandbox::status::Said;
use supervisor::wire::accounts::{Account, cgroup_name};

use crate::Test;
use crate::cgroup::Cgroups;
use crate::launch::{self, Prepared};
use crate::launches::{Rooted, go, streams, to_the_end};
use crate::policy;
use crate::run::{ACCOUNT, Folder, same, wait_until};

pub(crate) const TESTS: &[Test] = &[
    ("verify::each_step_of_a_sandbox_left_out_is_found", || apart("sandbox")),
    ("verify::each_step_with_the_hosts_network_left_out_is_found", || apart("network")),
    ("verify::each_step_with_capabilities_left_out_is_found", || apart("capabilities")),
    ("verify::each_step_without_a_sandbox_left_out_is_found", || apart("open")),
    ("verify::each_step_of_the_protocol_process_left_out_is_found", || apart("node")),
    ("verify::what_is_done_by_halves_is_found", || apart("halves")),
];

/// The word that says which of them this process is to do itself.
const APART: &str = "OCX_TEST_VERIFY";

/// A test that is done in a process of its own, since a step left out may reach what is around it: its mounts are no one
/// else's, and it has what a step takes away: a group, a lower priority, ignored signals (SIGPIPE, Rust's own doing).
fn apart(which: &str) -> Result<(), Failed> {
    let script = "mount --make-rshared / && umask 002 && exec setpriv --groups 64999 nice -n 3 \"$0\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(std::env::current_exe()?);
    let child = command.env(APART, which).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    let output = child.wait_with_output();
    tidy_after(pid);
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    same(&format!("{which}: {text}"), output.status.success(), true)
}

/// Removes what such a process could not: its mounts may have ended up where it finds nothing any more.
fn tidy_after(pid: u32) {
    for folder in Folder::of(pid) {
        if let Some(cgroups) = Cgroups::find(&cgroup_name(&folder)) {
            let group = cgroups.found(&cgroups.path_of(&group_name(pid)));
            drop(group.kill().and_then(|()| group.remove()));
        }
        drop(std::fs::remove_dir_all(&folder));
    }
}

fn group_name(pid: u32) -> String {
    format!("verify-{pid}")
}

/// What this process is to do, if it is one of those.
pub(crate) fn asked() -> Option<Result<(), Failed>> {
    let which = std::env::var(APART).ok()?;
    Some(match which.as_str() {
        "halves" => halves(),
        other => left_out(other),
    })
}

/// Steps that are not missed, since without them the process has less, or no less than with them: for which launches (all
/// when there is no word), of which list, and why.
const NOT_MISSED: [(&[&str], &str, &str, &str); 7] = [
    (&[], "build", "umask 000", "device nodes get fewer rights"),
    (&[], "build", "loopback up", "it has no network at all"),
    (&[], "program", "loopback up", "it has no network at all"),
    (&[], "init", "undumpable", "the change of ids made it so already"),
    (&[], "init", "capabilities 0", "the change of ids, from root's, took them already"),
    (&["node"], "program", "wait for go on 1", "it starts too early, and is what it is to be"),
    (&["open", "node"], "program", "capabilities 0", "the change of ids, from root's, took them already"),
];

/// The lists of a recipe, each with its name.
fn lists(recipe: &mut Recipe) -> [(&'static str, Option<&mut Vec<Op>>); 3] {
    let init = recipe.inner.as_mut().map(|it| &mut it.init);
    [("build", Some(&mut recipe.build)), ("init", init), ("program", Some(&mut recipe.program))]
}

/// Everything a launch of this kind is made from.
struct World {
    rooted: Rooted,
    which: String,
    home: String,
    _outside: Folder,
}

impl World {
    fn new(which: &str) -> Result<Self, Failed> {
        let outside = Folder::new()?;
        let mut rooted = Rooted::new()?;
        rooted.host.accounts.node = Account { uid: ACCOUNT, gid: ACCOUNT };
        rooted.setting("unconfined", "")?;
        let home = outside.folder("home", ACCOUNT)?;
        Ok(Self { rooted, which: which.to_owned(), home, _outside: outside })
    }

    /// Launches it with a recipe changed so; gives what was printed and said.
    fn launch(&self, change: impl FnOnce(&mut Recipe)) -> Result<(String, Option<Said>), Failed> {
        let (output, input) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let streams = streams(input)?;
        let group = match (&self.rooted.host.cgroups, self.which.as_str()) {
            (_, "node") | (None, _) => None,
            (Some(cgroups), _) => Some(cgroups.create(&group_name(std::process::id()), &self.rooted.plan("").limits)?),
        };
        let mut prepared: Prepared<'_> = if self.which == "node" {
            let argv = ["/bin/sh", "-c", "echo ran"].map(str::to_owned);
            // No grant can be left out and not be missed.
            let grants = vec![(std::fs::File::open("/usr")?.into(), Grant::Runs)];
            launch::prepare_node(&argv, &[], grants, streams, &self.rooted.host)
        } else {
            let plan = self.rooted.of(&self.which, &self.home, "echo ran");
            let checked = policy::check(&plan, &self.rooted.host).map_err(|it| format!("{it:?}"))?;
            launch::prepare(checked, streams, group.as_ref(), &self.rooted.host)
        }
        .map_err(|it| format!("{it:?}"))?;
        change(&mut prepared.recipe);
        let cell = prepared.start().map_err(|it| format!("{it:?}"))?;
        // A cell that has given up hears nothing more.
        drop(go(&cell));
        let got = to_the_end(cell, output);
        if let Some(group) = group {
            group.kill()?;
            wait_until("its group is empty", || !group.populated())?;
            group.remove()?;
        }
        got
    }
}

fn left_out(which: &str) -> Result<(), Failed> {
    let world = World::new(which)?;
    let mut all = Vec::new();
    let whole = world.launch(|recipe| {
        for (name, list) in lists(recipe) {
            let list = list.map(|it| it.clone()).unwrap_or_default();
            all.extend(list.into_iter().enumerate().map(|(at, op)| (name, at, op)));
        }
    })?;
    // The control: with every step it runs.
    same("with every step", whole.0.as_str(), "ran\n")?;
    let mut wrong = Vec::new();
    let mut verified = 0;
    // What is shared with this process's own mounts spoils them: that comes last.
    all.sort_by_key(|(.., op)| matches!(op, Op::PrivateMounts {}));
    for (name, at, op) in all.iter().filter(|(.., op)| !matches!(op, Op::Measure { .. })) {
        let got = world.launch(|recipe| {
            let list = lists(recipe).into_iter().find(|it| it.0 == *name).and_then(|it| it.1);
            if let Some(list) = list {
                list.remove(*at);
            }
        })?;
        let missed = NOT_MISSED.iter().any(|(launches, list, words, _)| {
            (launches.is_empty() || launches.contains(&which)) && list == name && op.to_string() == *words
        });
        match &got {
            (out, _) if out.is_empty() != missed => {}
            _ => wrong.push(format!("without {name} {at}, {op}: {got:?}")),
        }
        if matches!(&got.1, Some(Said::Failed(failed)) if failed.stage == Stage::Verify) {
            verified += 1;
        }
    }
    same("steps whose absence was not found", wrong, Vec::new())?;
    // Most are found by measuring; the others cannot be left out at all.
    if verified * 2 < all.len() { Err(format!("{verified} of {} were measured", all.len()).into()) } else { Ok(()) }
}

/// Steps that are done, and not as promised.
fn halves() -> Result<(), Failed> {
    type Change = (&'static str, fn(&mut Op));
    let changes: [Change; 8] = [
        ("writing", |op| {
            if let Op::Bind { access: access @ sandbox::op::Access::Read, .. } = op {
                *access = sandbox::op::Access::Write;
            }
        }),
        ("bounding", |op| {
            if let Op::Bounding { keep } = op {
                *keep |= 1;
            }
        }),
        ("capabilities", |op| {
            if let Op::Bounding { keep } | Op::Capabilities { keep } = op {
                *keep |= 1;
            }
        }),
        ("limits", |op| {
            if let Op::Limit { soft, hard, .. } = op {
                (*soft, *hard) = (soft.saturating_add(7), hard.saturating_add(7));
            }
        }),
        ("mask", |op| {
            if let Op::Mask { bits: bits @ 0o022 } = op {
                *bits = 0;
            }
        }),
        ("host name", |op| {
            if let Op::HostName { name } = op {
                *name = c"other".to_owned();
            }
        }),
        ("link", |op| {
            if let Op::Tmp { at, .. } = op {
                *at = c"/other".to_owned();
            }
        }),
        // Lets everything through: BPF_RET | BPF_K, SECCOMP_RET_ALLOW.
        ("filter", |op| {
            if let Op::Filter { program } = op {
                *program = vec![6, 0, 0, 0, 0, 0, 0xff, 0x7f];
            }
        }),
    ];
    let world = World::new("sandbox")?;
    for (what, change) in changes {
        let got = world.launch(|recipe| {
            recipe.build.iter_mut().chain(&mut recipe.program).for_each(change);
        })?;
        let found = matches!(&got.1, Some(Said::Failed(failed)) if failed.stage == Stage::Verify);
        same(&format!("{what}: {got:?}"), found && got.0.is_empty(), true)?;
    }
    let got = world.launch(|recipe| {
        if let Some(inner) = &mut recipe.inner {
            inner.maps = None;
        }
    })?;
    same(&format!("without a user namespace: {got:?}"), got.0.is_empty(), true)
}
