//! `ocx-supervisor explain FILE`: what a process of `once` would see and may do, in words a person can review.

use std::fmt::{self, Write as _};
use std::fs;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use sandbox::op::{Access, Op, Recipe};
use sandbox::promise::{Mount, NamespaceKind, Promise};
use sandbox::seccomp;
use sandbox::spec::Limits;
use serde_json::json;

use crate::capabilities;
use crate::cgroup::Cgroups;
use crate::host::{Host, LANDLOCK_SCOPES};
use crate::launch;
use crate::once::{self, Ready, Trouble};

const HELP: &str = "\
Usage: ocx-supervisor explain [--account NAME|UID:GID] [--json] FILE

Says in words what a file of `once` asks for on this host: whom the process runs
as, what it sees and how, its network, capabilities and limits, the system calls
it is refused, every step of the launch in order, and what this host cannot
give. Nothing is started. It has to be root, since it looks at paths as the
account would.

Exit codes: 0 it would be started; 125 it would not, with the stage and why on
stderr.
";

/// Runs the command with its arguments after `explain`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|it| it == "--help" || it == "-h") {
        return crate::print(HELP);
    }
    let json = arguments.iter().any(|it| it == "--json");
    let rest: Vec<String> = arguments.iter().filter(|it| *it != "--json").cloned().collect();
    match run(&rest, json) {
        Ok(text) => crate::print(&text),
        Err(trouble) => {
            crate::complain(&format!("ocx-supervisor explain: {}\n", trouble.line));
            ExitCode::from(once::OWN_FAILURE)
        }
    }
}

fn run(arguments: &[String], json: bool) -> Result<String, Trouble> {
    let (file, account) = once::usage(arguments)?;
    let Ready { plan, checked, host } = once::ready(file, account)?;
    let null = || fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let null = || null().map_err(|error| Trouble::own("streams", error));
    let prepared = launch::prepare(checked, [null()?, null()?, null()?], None, &host)?;
    Ok(if json {
        format!("{}\n", as_json(&prepared.recipe, &plan.limits, &host))
    } else {
        as_text(&prepared.recipe, &plan.limits, &host)
    })
}

/// The lists of a recipe, each with who carries it out.
fn lists(recipe: &Recipe) -> [(&'static str, &'static str, &[Op]); 3] {
    let init = recipe.inner.as_ref().map_or(&[][..], |it| &it.init);
    [
        ("build", "As root, in namespaces of its own:", &recipe.build),
        ("init", "What then watches the process:", init),
        ("program", "In the process itself, before its program:", &recipe.program),
    ]
}

fn capability_names(promise: &Promise) -> Vec<&'static str> {
    capabilities::names(promise.capabilities)
}

/// The calls a run's filter denies: always, or with some arguments.
fn calls() -> (Vec<String>, Vec<String>) {
    let (mut always, mut some) = (Vec::new(), Vec::new());
    for rule in seccomp::rules() {
        let list = if rule.when.is_empty() { &mut always } else { &mut some };
        let name = rule.name();
        if !list.contains(&name) {
            list.push(name);
        }
    }
    (always, some)
}

/// What a step mounts, in words: one for each mount.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a mount no step has words for is told as such, and fails the tests"
)]
fn mounted(step: &Op) -> &'static [&'static str] {
    match step {
        Op::Root {} => &["an empty root"],
        Op::Proc { .. } => &["its own processes (proc)"],
        Op::Dev { .. } => {
            &["null zero full random urandom tty, shm; nothing else of the host's devices", "terminals of its own"]
        }
        Op::Tmp { .. } => &["empty, in memory"],
        Op::Bind { access: Access::Read, .. } => &["the host's, read-only"],
        Op::Bind { access: Access::Write, .. } => &["the host's, read-write"],
        Op::Bind { access: Access::Device, .. } => &["a device of the host's, opened and not executed"],
        Op::CreatedFile { .. } => &["a file made for it"],
        _ => &[],
    }
}

/// What each mount of the promise shows, in words, by the step that makes it: both are in the same order.
fn seen(recipe: &Recipe) -> Vec<(&Mount, &'static str)> {
    let mut words = recipe.build.iter().flat_map(mounted).copied();
    recipe.promise.mounts.iter().map(|it| (it, words.next().unwrap_or("what no step makes"))).collect()
}

fn ends_with_parent(promise: &Promise) -> bool {
    promise.watcher.is_some_and(|it| it.ends_with_parent)
}

/// The names of its environment's variables: their values may be nobody else's to read.
fn variables(recipe: &Recipe) -> Vec<String> {
    let name = |it: &std::ffi::CString| it.to_string_lossy().split('=').next().unwrap_or_default().to_owned();
    recipe.exec.env.iter().map(name).collect()
}

fn limit_words(limits: &Limits) -> Vec<(&'static str, String)> {
    let all = [
        ("wall", limits.wall_s, "seconds from the launch"),
        ("cpu", limits.cpu_s, "processor seconds of each process"),
        ("processes", limits.processes, "processes and threads"),
        ("file_size", limits.file_size_bytes, "bytes of each file"),
        ("memory", limits.memory_bytes, "bytes, all of it together"),
    ];
    all.into_iter().filter_map(|(key, amount, what)| Some((key, format!("{} {what}", amount?)))).collect()
}

/// What this host lacks, and what that means.
fn lacks(host: &Host) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if !host.user_namespaces {
        all.push(("user namespaces", "every run with a sandbox is refused".to_owned()));
    }
    if host.landlock_abi < LANDLOCK_SCOPES {
        let then = if host.shared_abstract_sockets { "shows its abstract sockets" } else { "is refused" };
        let why = format!("its ABI is {} and not {LANDLOCK_SCOPES}: network true {then}", host.landlock_abi);
        all.push(("Landlock scopes", why));
    }
    match &host.cgroups {
        None => all.push(("cgroups", "runs without a sandbox and ends_with_parent false are refused".to_owned())),
        Some(cgroups) if !Cgroups::memory(cgroups) => {
            all.push(("a memory controller", "limits.memory is refused".to_owned()));
        }
        Some(_) => {}
    }
    all
}

fn as_json(recipe: &Recipe, limits: &Limits, host: &Host) -> serde_json::Value {
    let promise = &recipe.promise;
    let text = |it: &std::ffi::CString| it.to_string_lossy().into_owned();
    let mounts: Vec<_> = seen(recipe)
        .into_iter()
        .map(|(it, shows)| json!({"at": text(&it.at), "shows": shows, "flags": it.denies.to_string()}))
        .collect();
    let links: Vec<_> =
        promise.links.iter().map(|it| json!({"at": text(&it.at), "target": text(&it.target)})).collect();
    let steps: serde_json::Map<_, _> =
        lists(recipe).into_iter().map(|(name, _, ops)| (name.to_owned(), json!(words(ops)))).collect();
    let (always, some) = calls();
    let own = |kind| promise.namespaces.iter().any(|it| it.kind == kind);
    json!({
        "uid": promise.ids[0], "gid": promise.ids[1],
        "host_uid": promise.maps.map(|it| it.uid[1]), "host_gid": promise.maps.map(|it| it.gid[1]),
        "capabilities": capability_names(promise),
        "network": !own(NamespaceKind::Net), "abstract_sockets_closed": own(NamespaceKind::Net) || promise.scoped,
        "namespaces": promise.namespaces.iter().map(|it| it.kind.word()).collect::<Vec<_>>(),
        "mounts": mounts, "links": links, "cwd": text(&promise.directory),
        "session_of_its_own": promise.leads_session, "ends_with_parent": ends_with_parent(promise),
        "environment": variables(recipe), "command": recipe.exec.argv.iter().map(text).collect::<Vec<_>>(),
        "host_name": promise.host_name.as_ref().map(text),
        "limits": limit_words(limits).into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "calls_refused": always, "calls_refused_with_some_arguments": some,
        "steps": steps,
        "host_lacks": lacks(host).into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    })
}

fn words(ops: &[Op]) -> Vec<String> {
    ops.iter().map(ToString::to_string).collect()
}

/// Lines of words, broken where a terminal ends.
fn wrapped(to: &mut String, all: &[String]) {
    const WIDTH: usize = 96;
    let mut line = String::from(" ");
    for word in all {
        if line.len() + word.len() > WIDTH {
            put(to, format_args!("{line}\n"));
            line = String::from(" ");
        }
        line = line + " " + word;
    }
    put(to, format_args!("{line}\n"));
}

fn put(to: &mut String, what: fmt::Arguments<'_>) {
    // A String takes whatever is written to it.
    to.write_fmt(what).unwrap_or(());
}

fn as_text(recipe: &Recipe, limits: &Limits, host: &Host) -> String {
    let promise = &recipe.promise;
    let mut text = String::new();
    let to = &mut text;
    let [uid, gid] = promise.ids;
    put(to, format_args!("It runs as user {uid}, group {gid}, in no other group"));
    match promise.maps {
        Some(maps) => put(to, format_args!(": on this host user {}, group {}.\n", maps.uid[1], maps.gid[1])),
        None => put(to, format_args!(".\n")),
    }
    let names = capability_names(promise);
    if names.is_empty() {
        put(to, format_args!("It has no capability, and nothing it runs can gain one.\n"));
    } else {
        let all = names.join(", ");
        put(
            to,
            format_args!("Over what is its own, it has {all}; over the host none. Nothing it runs can gain more.\n"),
        );
    }
    let session = if promise.leads_session {
        "It leads a session of its own: no terminal outside is its."
    } else {
        "It leads no session of its own, and is in one of its sandbox: no terminal outside is its."
    };
    put(to, format_args!("It starts in {}. {session}\n", promise.directory.to_string_lossy()));
    let goes_on = "It goes on when its supervisor ends, until the next one ends it.";
    let ends = if ends_with_parent(promise) { "It ends when its supervisor ends." } else { goes_on };
    put(to, format_args!("{ends}\n"));
    let variables = variables(recipe);
    let variables = if variables.is_empty() { "none".to_owned() } else { variables.join(", ") };
    put(to, format_args!("Its environment variables: {variables}.\n"));
    if let Some(name) = &promise.host_name {
        put(to, format_args!("The host's name is {} to it.\n", name.to_string_lossy()));
    }
    let network = if promise.namespaces.iter().any(|it| it.kind == NamespaceKind::Net) {
        "lo alone, of its own"
    } else if promise.scoped {
        "the host's, with every service that listens there; abstract sockets outside are closed by Landlock"
    } else {
        "the host's, with every service that listens there, abstract sockets too: its owner has it so"
    };
    put(to, format_args!("Network: {network}.\n"));
    let kinds: Vec<&str> = promise.namespaces.iter().map(|it| it.kind.word()).collect();
    put(to, format_args!("Namespaces of its own: {}.\n", kinds.join(", ")));

    put(to, format_args!("\nIt sees, and nothing else of the host:\n"));
    let places = promise
        .mounts
        .iter()
        .map(|it| it.at.to_string_lossy())
        .chain(promise.links.iter().map(|it| it.at.to_string_lossy()));
    let width = places.map(|it| it.chars().count()).max().unwrap_or(0);
    for (mount, shows) in seen(recipe) {
        let at = mount.at.to_string_lossy();
        put(to, format_args!("  {at:width$}  {shows} ({})\n", mount.denies));
    }
    for link in &promise.links {
        put(to, format_args!("  {:width$}  a link to {}\n", link.at.to_string_lossy(), link.target.to_string_lossy()));
    }

    put(to, format_args!("\nLimits:\n"));
    let all = limit_words(limits);
    if all.is_empty() {
        put(to, format_args!("  none\n"));
    }
    for (key, words) in all {
        put(to, format_args!("  {key:10} {words}\n"));
    }
    put(to, format_args!("  {:10} none is written, and no helper of the host's is given one\n", "core"));

    let (always, some) = calls();
    put(to, format_args!("\nSystem calls refused:\n"));
    wrapped(to, &always);
    put(to, format_args!("and these with some arguments:\n"));
    wrapped(to, &some);
    put(to, format_args!("A call by another architecture's numbers ends the process.\n"));

    put(to, format_args!("\nSteps, in order:\n"));
    for (_, who, ops) in lists(recipe) {
        put(to, format_args!("  {who}\n"));
        for (count, words) in words(ops).iter().enumerate() {
            put(to, format_args!("    {:2}. {words}\n", count + 1));
        }
    }
    put(
        to,
        format_args!(
            "  Then {} is executed.\n",
            recipe.exec.argv.first().map_or_else(|| "nothing".into(), |it| it.to_string_lossy())
        ),
    );

    put(to, format_args!("\nThis host cannot give:\n"));
    let lacks = lacks(host);
    if lacks.is_empty() {
        put(to, format_args!("  nothing is missing\n"));
    }
    for (what, why) in lacks {
        put(to, format_args!("  {what}: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]
    use std::path::Path;

    use supervisor::wire::accounts::derive;

    use super::*;

    #[test]
    fn what_a_host_cannot_give_is_said_with_what_that_means() {
        let root = Path::new("/var/lib/ocx-none-such");
        let mut host = Host::look(root, derive(root), root, root).unwrap();
        let names = |host: &Host| lacks(host).iter().map(|it| it.0).collect::<Vec<_>>();
        (host.user_namespaces, host.landlock_abi, host.cgroups) = (true, LANDLOCK_SCOPES, None);
        assert_eq!(names(&host), ["cgroups"]);
        (host.user_namespaces, host.landlock_abi) = (false, LANDLOCK_SCOPES - 1);
        assert_eq!(names(&host), ["user namespaces", "Landlock scopes", "cgroups"]);
        let network = |host: &Host| lacks(host)[1].1.clone();
        assert!(network(&host).ends_with("network true is refused"), "{}", network(&host));
        host.shared_abstract_sockets = true;
        assert!(network(&host).ends_with("network true shows its abstract sockets"), "{}", network(&host));
    }
}
