#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]
use super::*;
use crate::flat;
use crate::spec::CreatedFile;

fn confinement() -> Confinement {
    Confinement {
        uid: 1000,
        gid: 1000,
        linux_capabilities: Vec::new(),
        network: false,
        isolate_terminal: true,
        ends_with_parent: true,
        proc: "/proc".into(),
        dev: "/dev".into(),
        tmp: "/tmp".into(),
        read_only: Vec::new(),
        read_write: Vec::new(),
        devices: Vec::new(),
        homes: Vec::new(),
        workspace_at: None,
        created_files: Vec::new(),
    }
}

fn shown(path: &str, source: Source) -> Shown {
    Shown { path: path.into(), source, kind: Kind::Folder, link: None }
}

fn launch() -> Launch<'static> {
    Launch {
        fds: (3..20).collect(),
        status: 0,
        lifeline: 1,
        streams: [2, 3, 4],
        groups: Vec::new(),
        in_groups: None,
        account: [900, 901],
        cell: [902, 903],
        init_filter: &[0; 8],
    }
}

fn facts() -> Facts<'static> {
    Facts {
        launch: launch(),
        host_name: "3f2a91c07b".into(),
        capabilities: 0,
        workspace: Some("/w/3f".into()),
        workspace_shown: None,
        read_only: vec![shown("/usr", 5)],
        read_write: vec![shown("/w/3f", 6)],
        devices: Vec::new(),
        homes: Vec::new(),
        filter: &[0; 16],
        scopes: true,
        namespaces: &[],
    }
}

fn made(confinement: &Confinement, limits: &Limits, facts: &Facts<'_>) -> Recipe {
    let command = ["sh".to_owned(), "-c".to_owned(), "true".to_owned()];
    let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    confined(confinement, limits, &Program { command: &command, env: &env, cwd: "/w/3f" }, facts).unwrap()
}

fn words(ops: &[Op]) -> Vec<String> {
    ops.iter().map(ToString::to_string).collect()
}

/// The host paths alone, from the words of a recipe.
fn places(recipe: &Recipe) -> Vec<String> {
    let own = |it: &&Op| matches!(it, Op::Bind { .. } | Op::Link { .. } | Op::CreatedFile { .. });
    recipe.build.iter().filter(own).map(ToString::to_string).collect()
}

#[test]
fn an_ordinary_run_in_words() {
    let limits = Limits { cpu_s: Some(3), processes: Some(5), file_size_bytes: Some(10), ..Limits::default() };
    let mut facts = facts();
    facts.read_only.push(Shown { link: Some(("usr/bin".into(), "/usr/bin".into())), ..shown("/bin", 7) });
    let recipe = made(&confinement(), &limits, &facts);
    assert_eq!(
        words(&recipe.build),
        [
            "cgroups measured",
            "no groups",
            "cgroup namespace",
            "session of its own",
            "keyring of its own",
            "ordinary priority",
            "umask 000",
            "private mounts",
            "empty root",
            "proc at /proc, made",
            "dev at /dev, made",
            "tmp at /tmp, made",
            "read-only folder 5 at /usr, made",
            "link /bin -> usr/bin",
            "read-write folder 6 at /w/3f, made",
            "pivot",
            "read-only root",
            "host name 3f2a91c07b",
            "loopback up",
        ]
    );
    assert_eq!(
        words(&recipe.program),
        [
            "ids 1000:1000",
            "limit core 1 1",
            "limit cpu 3 4",
            "limit file_size 10 10",
            "limit processes 5 5",
            "bounding set 0",
            "capabilities 0",
            "no new privileges",
            "session of its own",
            "start in /w/3f",
            "umask 022",
            "signals reset",
            "streams 2 3 4",
            "only the streams survive exec",
            "all of it measured",
            "filter of 2 instructions",
            "filters measured",
        ]
    );
    let inner = recipe.inner.unwrap();
    assert_eq!(inner.maps, Some(Maps { uid: [1000, 900], gid: [1000, 901] }));
    assert_eq!(
        words(&inner.init),
        [
            "bounding set 0",
            "ids 902:903",
            "capabilities 0",
            "no new privileges",
            "undumpable",
            "ends with its parent",
            "what watches it measured",
            "filter of 1 instructions",
        ]
    );
}

/// C-92, case 34: the host as the account sees it; what holds it is its cgroup, joined before anything else.
#[test]
fn without_a_sandbox_it_becomes_the_account_in_a_session_of_its_own_and_gains_nothing() {
    let (command, env) = (["/bin/true".to_owned()], BTreeMap::new());
    let run = Program { command: &command, env: &env, cwd: "/w" };
    let launch = Launch { groups: vec![5], ..launch() };
    let limits = Limits { cpu_s: Some(3), ..Limits::default() };
    let recipe = unconfined(&limits, &run, &launch).unwrap();
    assert_eq!(
        words(&recipe.build),
        [
            "join the cgroup of descriptor 5",
            "cgroups measured",
            "no groups",
            "session of its own",
            "keyring of its own",
            "ordinary priority",
            "reaps what is left"
        ]
    );
    assert_eq!(
        words(&recipe.program),
        [
            "limit core 1 1",
            "limit cpu 3 4",
            "bounding set 0",
            "ids 900:901",
            "capabilities 0",
            "no new privileges",
            "session of its own",
            "start in /w",
            "umask 022",
            "signals reset",
            "streams 2 3 4",
            "only the streams survive exec",
            "all of it measured",
            "filters measured",
        ]
    );
    assert_eq!(flat::read::<Recipe>(&flat::write(&recipe)).unwrap(), recipe);
    let inner = recipe.inner.unwrap();
    assert_eq!((inner.maps, inner.ends_with_parent), (None, false));
    assert_eq!(
        words(&inner.init),
        [
            "bounding set 0",
            "ids 902:903",
            "capabilities 0",
            "no new privileges",
            "undumpable",
            "what watches it measured",
            "filter of 1 instructions"
        ]
    );
}

#[test]
fn a_recipe_crosses_whole_and_no_part_of_one_is_read() {
    let mut confinement = confinement();
    confinement.created_files = vec![CreatedFile { at: "/etc/x".into(), text: "made".into() }];
    let recipe = made(&confinement, &Limits::default(), &facts());
    let bytes = flat::write(&recipe);
    assert_eq!(flat::read::<Recipe>(&bytes).unwrap(), recipe);
    for length in 0..bytes.len() {
        assert!(flat::read::<Recipe>(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(flat::read::<Recipe>(&[bytes, vec![0]].concat()).is_err());
}

/// Decisions C-17: the workspace before anything seen beneath it; a later list over an earlier one; C-11: host paths in
/// the lists, the process's view in created files.
#[test]
fn the_workspace_comes_before_what_is_seen_beneath_it() {
    let mut confinement = confinement();
    confinement.workspace_at = Some("/workspace".into());
    confinement.created_files = vec![CreatedFile { at: "/workspace/made".into(), text: "x".into() }];
    let mut facts = facts();
    facts.workspace_shown = Some(shown("/w/3f", 9));
    facts.read_only.push(shown("/w/3f/clone", 7));
    facts.read_write.clear();
    facts.homes = vec![shown("/root/.claude", 8)];
    assert_eq!(
        places(&made(&confinement, &Limits::default(), &facts)),
        [
            "read-only folder 5 at /usr, made",
            "read-write folder 9 at /workspace, made",
            "read-only folder 7 at /workspace/clone, made as the account",
            "read-write folder 8 at /workspace/.claude, made as the account",
            "file of 1 bytes at /workspace/made, made as the account",
        ]
    );
    // Named itself in read_only it is seen read-only there.
    facts.read_only = vec![shown("/w/3f", 7)];
    facts.homes.clear();
    confinement.created_files.clear();
    assert_eq!(places(&made(&confinement, &Limits::default(), &facts)), ["read-only folder 7 at /workspace, made"]);
}

#[test]
fn a_link_is_shown_as_one_only_where_nothing_differs() {
    let bin = |source| Shown { link: Some(("usr/bin".into(), "/usr/bin".into())), ..shown("/bin", source) };
    let mut facts = facts();
    facts.read_write = vec![bin(6)];
    // Another access than its target's: a mount of its own.
    let bound = "read-write folder 6 at /bin, made";
    assert_eq!(places(&made(&confinement(), &Limits::default(), &facts)).last().unwrap(), bound);
    // Something to be put beneath it, here through created_files: a mount of its own, and the file in it.
    facts.read_write.clear();
    facts.read_only.push(bin(7));
    let mut confinement = confinement();
    confinement.created_files = vec![CreatedFile { at: "/bin/x".into(), text: String::new() }];
    assert_eq!(
        places(&made(&confinement, &Limits::default(), &facts)),
        ["read-only folder 5 at /usr, made", "read-only folder 7 at /bin, made", "file of 0 bytes at /bin/x, found",]
    );
}

#[test]
fn capabilities_over_the_network_move_it_into_the_process_own_user_namespace() {
    let mut facts = facts();
    facts.capabilities = 1 << 12;
    let recipe = made(&confinement(), &Limits::default(), &facts);
    assert!(!new_network(&confinement(), facts.capabilities));
    assert!(!words(&recipe.build).contains(&"loopback up".to_owned()));
    assert_eq!(
        words(&recipe.program)[..4],
        ["network and host name of its own user namespace", "host name 3f2a91c07b", "loopback up", "ids 1000:1000",]
    );
}

#[test]
fn a_program_is_looked_for_on_the_environments_path_alone() {
    let command = ["tool".to_owned()];
    let with = |path: Option<&str>| {
        let env: BTreeMap<_, _> = path.iter().map(|it| ("PATH".to_owned(), (*it).to_owned())).collect();
        let exec = exec(&Program { command: &command, env: &env, cwd: "/" }).unwrap();
        exec.candidates.iter().map(|it| it.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(with(Some("/a::/b")), ["/a/tool", "./tool", "/b/tool"]);
    assert!(with(None).is_empty() && with(Some("")).is_empty());
}
