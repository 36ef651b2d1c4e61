//! The refusals, in their order (protocol 2.13, 2.14; decisions sections 1 and 9).

use ocx::engine::check::{Accepted, CloneUser, Decision, Sender, User};
use ocx::engine::plan::StepLaid;
use ocx::protocol::forms::Form;
use ocx::protocol::keys::{Acts, KEYS, KeyRow, Within};
use ocx::protocol::kinds::Kind;
use ocx::protocol::steps::StepKind;
use ocx::protocol::values::ValueName;
use serde_json::{Value, json};

use super::support::{RUN, World, installed_ceiling, plain, r_user, setup_user, with, without};

#[test]
fn v2_2_2_03_nothing_is_decided_until_the_server_has_said_who_sent_it() {
    let world = World { sender: None, ..World::new() };
    assert!(matches!(world.decide(&plain()), Decision::Wait(_)));
    // Not even what is malformed.
    assert!(matches!(world.decide(&json!({})), Decision::Wait(_)));
}

#[test]
fn v2_2_3_02_admin_and_setup_may_send_runs() {
    World::from(setup_user("stone")).accepts(&plain());
    World::from(Sender { login: Some("ann".to_owned()), admin: true, ..Sender::default() }).accepts(&plain());
}

#[test]
fn v2_2_14_03_others_may_not() {
    World::from(Sender { login: Some("bob".to_owned()), ..Sender::default() }).refuses(&plain(), 1, "\"bob\"");
    // A user the server has no more holds nothing, whatever is said of them.
    let gone = Sender { login: None, admin: true, setup: true, r: true };
    World::from(gone).refuses(&plain(), 1, "its sender");
}

#[test]
fn v2_2_14_04_a_runs_to_may_not_send_it() {
    World::from(setup_user("lab-1")).refuses(&plain(), 1, "the run's to sent it");
}

/// The isolated run of a user holding R alone.
fn isolated() -> Value {
    plain()
}

#[test]
fn v2_2_3_03_a_user_holding_r_may_send_an_isolated_run() {
    assert!(World::from(r_user("pat")).accepts(&isolated()).is_from_r_alone());
    assert!(!World::new().accepts(&isolated()).is_from_r_alone());
}

#[test]
fn v2_2_14_05_to_10_what_a_run_from_r_alone_must_not_ask_is_refused_by_1_and_taken_from_setup() {
    let pat = World::from(r_user("pat"));
    let file = |name: &str| json!([{"at": "$$workspace$$/a", "as": name}]);
    let cases = [
        (without(isolated(), "/sandbox"), "no sandbox"),
        (with(isolated(), "/sandbox/ends_with_parent", json!(false)), "ends_with_parent"),
        (with(isolated(), "/sandbox/devices", json!(["/dev/fuse"])), "devices"),
        (with(isolated(), "/sandbox/read_only/0", json!("/usr/../etc")), "/usr/../etc"),
        (with(isolated(), "/workspace/0/at", json!("$$root$$/../x/$$run$$")), "workspace[0].at"),
        (with(isolated(), "/process/cwd", json!("/usr/..")), "process.cwd"),
        (with(isolated(), "/sandbox/created_files", json!([{"at": "/../a", "text": ""}])), "created_files[0].at"),
        (with(isolated(), "/workspace/0/at", json!("$$root$$/x")), "does not end in $$run$$"),
        (with(isolated(), "/workspace/0/at", json!("$$root$$/$$run$$/x")), "does not end in $$run$$"),
        (with(isolated(), "/process/unversioned_files", file("out-$run.tgz")), "without $$run$$"),
        (with(isolated(), "/process/unversioned_files", file("$$running$$")), "without $$run$$"),
        (with(isolated(), "/process/unversioned_files", file(super::support::RUN)), "without $$run$$"),
        (with(isolated(), "/process/env", json!({"T": "$$secret:X$$"})), "names a secret"),
        (with(isolated(), "/workspace", json!([{"step": "password"}])), "password step"),
        (
            with(with(isolated(), "/process/user", json!("..")), "/process/cwd", json!("/$$process_user$$")),
            "process.cwd",
        ),
    ];
    for (content, naming) in cases {
        pat.refuses(&content, 1, naming);
        // The control: the same from a user holding setup is not refused by 1.
        if let Decision::Refuse(refusal) = World::new().decide(&content) {
            assert_ne!(refusal.row, 1, "{}", refusal.note);
        }
    }
    pat.accepts(&with(isolated(), "/process/unversioned_files", file("out-$$run$$.tgz")));
    pat.accepts(&with(isolated(), "/sandbox/devices", json!([])));
}

#[test]
fn c_63_the_hosts_owner_sets_a_ceiling_for_r() {
    let pat = World::from(r_user("pat"));
    let none =
        World { host: ocx::engine::check::Host { r_senders: None, ..World::new().host }, ..World::from(r_user("pat")) };
    none.refuses(&isolated(), 1, "owner allows no run");
    let cases = [
        (with(isolated(), "/sandbox/linux_capabilities", json!(["CAP_NET_RAW"])), "CAP_NET_RAW"),
        (with(isolated(), "/sandbox/read_only/0", json!("/root/.ssh")), "/root/.ssh"),
        (with(isolated(), "/sandbox/read_only/0", json!("/usrlocal")), "/usrlocal"),
        (with(isolated(), "/sandbox/read_write", json!(["/data"])), "/data"),
        (with(isolated(), "/sandbox/read_write", json!(["/usr"])), "/usr"),
        (with(isolated(), "/sandbox/homes", json!(["/root/.claude"])), "/root/.claude"),
        (without(isolated(), "/limits/wall"), "limits.wall"),
        (with(isolated(), "/limits/wall", json!("481m")), "limits.wall"),
        (with(isolated(), "/limits/cpu", json!(3601)), "limits.cpu"),
        (without(isolated(), "/limits"), "limits.wall"),
    ];
    for (content, naming) in cases {
        pat.refuses(&content, 1, naming);
        World::new().accepts(&content);
    }
    pat.accepts(&with(isolated(), "/limits/wall", json!("480m")));
    pat.accepts(&with(isolated(), "/sandbox/read_only/0", json!("/usr/lib")));
    pat.accepts(&with(isolated(), "/sandbox/network", json!(true)));
    let ceiling = ocx::engine::ceiling::Ceiling { network: false, ..installed_ceiling() };
    let host = ocx::engine::check::Host { r_senders: Some(ceiling), ..World::new().host };
    let world = World { host, ..World::from(r_user("pat")) };
    world.refuses(&with(isolated(), "/sandbox/network", json!(true)), 1, "sandbox.network");
}

#[test]
fn v2_2_13_17_runs_from_r_alone_wait_for_each_other_and_others_do_not() {
    let world = World { other_r_run_in_care: true, ..World::from(r_user("pat")) };
    assert!(matches!(world.decide(&isolated()), Decision::Wait(_)));
    World { other_r_run_in_care: true, ..World::new() }.accepts(&isolated());
}

#[test]
fn v2_2_13_15_a_stop_comes_after_refusals_1_and_2_and_before_the_rest() {
    let stopped = World { stop_stands: true, ..World::new() };
    stopped.refuses(&with(plain(), "/limits/gpu", json!(1)), 2, "limits.gpu");
    assert_eq!(stopped.decide(&with(plain(), "/process/cwd", json!("$$tree$$"))), Decision::Stopped);
    assert_eq!(stopped.decide(&plain()), Decision::Stopped);
    let bob = Sender { login: Some("bob".to_owned()), ..Sender::default() };
    World { stop_stands: true, ..World::from(bob) }.refuses(&plain(), 1, "bob");
}

#[test]
fn v2_2_14_13_a_step_or_value_that_nothing_provides_is_named() {
    let world = World::new();
    let steps = |steps: Value| with(plain(), "/workspace", steps);
    world.refuses(&steps(json!([{"step": "mirror"}])), 3, "\"mirror\"");
    world.refuses(&steps(json!([{"step": "clone", "into": "$$workspace$$/c"}])), 3, "clone needs password");
    let checkout = json!([{"step": "password"}, {"step": "checkout", "of": "trunk", "into": "$$workspace$$/t"}]);
    world.refuses(&steps(checkout), 3, "checkout needs clone");
    world.refuses(&with(plain(), "/process/cwd", json!("$$tree$$")), 3, "process.cwd names \"$$tree$$\"");
    world.refuses(&with(plain(), "/process/command/1", json!("$$no_such$$")), 3, "process.command[1]");
    // A step's own value is not set before it.
    world.refuses(&steps(json!([{"step": "directory", "at": "$$workspace$$/x"}])), 3, "workspace[0].at");
    let files = json!([{"step": "files", "of": "trunk", "into": "$$workspace$$/t"}]);
    world.refuses(&steps(files), 3, "workspace[0].into names \"$$workspace$$\"");
}

#[test]
fn v2_2_6_16_and_21_passwords_and_secrets_are_unset() {
    let world = World::new();
    world.refuses(&with(plain(), "/process/env", json!({"P": "$$password$$"})), 3, "$$password$$");
    world.refuses(&with(plain(), "/process/env", json!({"T": "a$$secret:TOK$$"})), 3, "$$secret:TOK$$");
}

#[test]
fn what_needs_a_workspace_is_refused_without_one() {
    let world = World::new();
    let bare = without(with(plain(), "/sandbox/read_write", json!([])), "/workspace");
    world.accepts(&bare);
    // C-46
    world.refuses(&with(bare.clone(), "/sandbox/homes", json!(["/root/.claude"])), 3, "sandbox.homes");
    // V1-6-13
    world.refuses(&with(bare.clone(), "/sandbox/workspace_at", json!("/workspace")), 3, "sandbox.workspace_at");
    // V2-2.10-19
    world.refuses(&with(bare.clone(), "/process/verdict", json!(true)), 3, "process.verdict");
    world.refuses(&with(bare, "/process/env", json!({"W": "$$workspace$$"})), 3, "$$workspace$$");
}

#[test]
fn v2_2_14_14_to_17_a_processs_user_is_no_clones_user_and_holds_no_admin() {
    let user = |login: &str| with(plain(), "/process/user", json!(login));
    World::new().refuses(&user("lab-1"), 4, "is the run's to");
    World::new().refuses(&user("lab-2"), 4, "a clone's user");
    let holds = |user: User| World { users: [("builder".to_owned(), Some(user))].into(), ..World::new() };
    holds(User { admin: true, ..User::default() }).refuses(&plain(), 4, "admin or setup");
    holds(User { setup: true, ..User::default() }).refuses(&plain(), 4, "admin or setup");
    holds(User { node: true, ..User::default() }).refuses(&plain(), 4, "goC4w");
    holds(User { letters: "abw4xCog".to_owned(), ..User::default() }).refuses(&plain(), 4, "goC4w");
    for lacking in ["oC4w", "gC4w", "go4w", "goCw", "goC4"] {
        holds(User { letters: lacking.to_owned(), ..User::default() }).accepts(&plain());
    }
}

#[test]
fn c_60_a_user_the_server_does_not_know_holds_nothing_and_one_not_asked_about_is_waited_for() {
    World { users: [("builder".to_owned(), None)].into(), ..World::new() }.accepts(&plain());
    let world = World { users: [].into(), ..World::new() };
    assert!(matches!(world.decide(&plain()), Decision::Wait(_)));
}

#[test]
fn v2_2_14_18_without_a_sandbox_5_and_on_a_host_that_would_6_for_what_a_sandbox_counts() {
    let bare = without(plain(), "/sandbox");
    World::new().refuses(&bare, 5, "sandbox");
    let host = ocx::engine::check::Host { unconfined: true, ..World::new().host };
    let world = World { host, ..World::new() };
    // V2-2.9-10
    world.refuses(&bare, 6, "limits.processes without sandbox");
    // Control, and C-96: its workspace lies with the account it runs as.
    let accepted = world.accepts(&without(bare, "/limits/processes"));
    let workspace = accepted.plan().workspace.clone().unwrap();
    assert!(workspace.starts_with("/var/lib/ocx/workspaces-open/"), "{workspace}");
}

/// A value of this form that is not what a key's absence means.
fn sample(row: &KeyRow) -> Value {
    match row.form {
        Form::Flag => json!(true),
        Form::Word(words) => json!(words.last().unwrap()),
        Form::Hears => json!(["pat"]),
        Form::List(_) => json!(["dev"]),
        Form::Name => json!("trunk"),
        Form::Objects(Within::UnversionedFile) => json!([{"at": "$$workspace$$/a", "as": "a"}]),
        other => panic!("{}: no sample of {other:?}", row.key),
    }
}

/// Where a key of this place stands in `plain`.
fn place(within: Within) -> &'static str {
    match within {
        Within::Content(Kind::Run) => "",
        Within::Step(StepKind::Directory) => "/workspace/0",
        Within::Process => "/process",
        other => panic!("no place for {other:?}"),
    }
}

#[test]
fn every_key_that_is_not_acted_on_is_refused_by_6_by_name() {
    let mut seen = Vec::new();
    for row in KEYS.iter().filter(|row| row.acts != Acts::Yes) {
        let content = with(plain(), &format!("{}/{}", place(row.within), row.key), sample(row));
        World::new().refuses(&content, 6, row.key);
        if let Acts::Only(meaning) = row.acts {
            let meaning: Value = serde_json::from_str(meaning).unwrap();
            World::new().accepts(&with(plain(), &format!("{}/{}", place(row.within), row.key), meaning));
        }
        seen.push(row.key);
    }
    assert_eq!(seen.join(" "), "manual session hears checkins deliveries terminal ends");
}

#[test]
fn v2_2_7_01_every_kind_of_step_is_laid_out_in_its_order() {
    let all = json!([
        {"step": "directory", "at": "$$root$$/$$run$$"},
        {"step": "password"},
        {"step": "clone", "into": "$$workspace$$/clone.fossil"},
        {"step": "checkout", "of": "trunk", "into": "$$workspace$$/tree"},
        {"step": "files", "of": "$$process_user$$-$$run$$", "into": "$$tree$$/files/."}
    ]);
    let content = with(with(plain(), "/workspace", all), "/process/command/1", json!("$$process_clone$$ $$tree$$"));
    let accepted = World::new().accepts(&content);
    let at = |below: &str| format!("/var/lib/ocx/workspaces/{RUN}{below}");
    let clone = at("/clone.fossil");
    assert_eq!(
        accepted.steps(),
        [
            StepLaid::Directory { at: at("") },
            StepLaid::Password,
            StepLaid::Clone { into: clone.clone() },
            StepLaid::Checkout { clone: clone.clone(), of: "trunk".into(), into: at("/tree") },
            StepLaid::Files { of: "$$process_user$$-$$run$$".into(), into: at("/tree/files") },
        ]
    );
    assert_eq!(accepted.name_of("$$process_user$$-$$run$$", None).unwrap(), format!("builder-{RUN}"));
    // The last step that sets a value is who sets it (C-15).
    assert_eq!(accepted.plan().process.command.last().unwrap(), &format!("{clone} {}", at("/tree/files")));
}

/// C-15: `of` is there for the steps and the process; until the steps are done the plan holds a hash of zeros.
#[test]
fn v2_2_6_20_the_check_in_is_put_in_place_once_it_is_known() {
    let content = with(with(plain(), "/of", json!("trunk")), "/process/command/1", json!("at $$checkin$$"));
    let mut accepted = World::new().accepts(&content);
    let command = |accepted: &Accepted| accepted.plan().process.command.last().cloned().unwrap();
    assert_eq!(command(&accepted), format!("at {}", "0".repeat(64)));
    assert!(!accepted.values().contains_key(&ValueName::Checkin));
    let checkin = "c".repeat(64);
    assert_eq!(accepted.name_of("$$checkin$$", Some(&checkin)).as_deref(), Ok(checkin.as_str()));
    accepted.set_checkin(&checkin).unwrap();
    assert_eq!(command(&accepted), format!("at {checkin}"));
    assert_eq!(accepted.values().get(&ValueName::Checkin), Some(&checkin));
}

#[test]
fn v2_2_7_07_a_step_after_directory_is_strictly_within_the_workspace() {
    let steps = |into: &str| {
        let files = json!({"step": "files", "of": "trunk", "into": into});
        with(plain(), "/workspace", json!([{"step": "directory", "at": "$$root$$/$$run$$"}, files]))
    };
    World::new().accepts(&steps("$$workspace$$/tree"));
    for into in ["$$workspace$$", "$$workspace$$/", "$$workspace$$/..", "$$root$$/x", "$$workspace$$x", "/tmp", "tree"]
    {
        World::new().refuses(&steps(into), 7, "workspace[1].into");
    }
}

#[test]
fn what_of_checkin_is_not_carried_out_is_refused_by_6() {
    let steps = |more: &[Value]| {
        let mut all = vec![
            json!({"step": "directory", "at": "$$root$$/$$run$$"}),
            json!({"step": "password"}),
            json!({"step": "clone", "into": "$$workspace$$/c"}),
            json!({"step": "checkout", "of": "trunk", "into": "$$workspace$$/t"}),
        ];
        all.extend(more.iter().cloned());
        with(plain(), "/workspace", json!(all))
    };
    let files = |of: &str, into: &str| json!({"step": "files", "of": of, "into": format!("$$workspace$$/{into}")});
    World::new().accepts(&steps(&[files("trunk", "f")]));
    World::new().refuses(&steps(&[files("trunk", "$$checkin$$")]), 6, "path of workspace[4]");
    World::new().refuses(&steps(&[files("$$checkin$$", "f")]), 6, "workspace[4].of");
    let three = ["1", "2", "3"].map(|into| files("trunk", into));
    World::new().accepts(&steps(&three));
    World::new().refuses(&steps(&[&three[..], &[files("trunk", "4")]].concat()), 6, "5 clone and files steps");
}

#[test]
fn c_87_keeping_more_than_4_mebibytes_of_a_stream_is_not_provided() {
    let keep = |size: Value| with(plain(), "/process/keep", json!({"stdout": size}));
    World::new().accepts(&keep(json!("4M")));
    World::new().refuses(&keep(json!(4_194_305)), 6, "process.keep.stdout");
}

#[test]
fn a_run_that_grows_too_large_with_its_values_in_place_is_refused_not_carried() {
    let at = format!("$$root$$/{}", "x".repeat(3000));
    let text = "$$workspace$$".repeat(2000);
    let content = with(with(plain(), "/workspace/0/at", json!(at)), "/process/command/1", json!(text));
    World::new().refuses(&content, 6, "larger than 2097152 bytes");
    let objective = with(plain(), "/objective", json!("\u{7f}".repeat(200_000)));
    World::new().refuses(&objective, 6, "objective");
    let steps: Vec<Value> = (0..2000).map(|n| json!({"step": "directory", "at": format!("$$root$$/{n}")})).collect();
    World::new().refuses(&with(plain(), "/workspace", json!(steps)), 6, "workspace");
}

#[test]
fn v2_2_7_18_and_19_a_directory_is_strictly_within_the_root() {
    let at = |at: &str| with(plain(), "/workspace/0/at", json!(at));
    for outside in ["/tmp/x", "$$root$$", "$$root$$/", "$$root$$/..", "$$root$$/x/../../y", "$$root$$x", "x"] {
        World::new().refuses(&at(outside), 7, "workspace[0].at");
    }
    let accepted = World::new().accepts(&at("$$root$$/../workspaces/./x"));
    assert_eq!(accepted.plan().workspace.as_deref(), Some("/var/lib/ocx/workspaces/x"));
}

#[test]
fn a_steps_place_is_read_with_what_stands_before_it() {
    let steps = json!([
        {"step": "directory", "at": "$$root$$/a"},
        {"step": "directory", "at": "$$workspace$$/b"}
    ]);
    let accepted = World::new().accepts(&with(plain(), "/workspace", steps));
    let places: Vec<_> =
        ["a", "a/b"].map(|place| StepLaid::Directory { at: format!("/var/lib/ocx/workspaces/{place}") }).into();
    assert_eq!(accepted.steps(), places);
    assert_eq!(accepted.plan().workspace.as_deref(), Some("/var/lib/ocx/workspaces/a/b"));
}

#[test]
fn paths_too_long_to_be_looked_at_are_refused_to_r_by_1() {
    let long = format!("/usr/{}", "$$run$$".repeat(60_000));
    let content = with(isolated(), "/sandbox/read_only/0", json!(long));
    World::from(r_user("pat")).refuses(&content, 1, "too long");
    World::new().refuses(&content, 6, "larger than");
}

#[test]
fn v2_2_7_20_a_directory_meets_no_workspace_in_care() {
    let world = World { workspaces_in_care: vec!["/var/lib/ocx/workspaces/a/b".to_owned()], ..World::new() };
    let at = |at: &str| with(plain(), "/workspace/0/at", json!(at));
    for met in ["$$root$$/a/b", "$$root$$/a", "$$root$$/a/b/c"] {
        world.refuses(&at(met), 7, "another run in care");
    }
    world.accepts(&at("$$root$$/a/bc"));
}

#[test]
fn v1_6_02_every_sandbox_path_is_absolute_once_its_values_are_in_place() {
    for (pointer, key) in [
        ("/sandbox/proc", "sandbox.proc"),
        ("/sandbox/dev", "sandbox.dev"),
        ("/sandbox/tmp", "sandbox.tmp"),
        ("/sandbox/read_only/0", "sandbox.read_only[0]"),
        ("/sandbox/read_write/0", "sandbox.read_write[0]"),
        ("/process/cwd", "process.cwd"),
    ] {
        World::new().refuses(&with(plain(), pointer, json!("usr/x")), 7, key);
        World::new().accepts(&with(plain(), pointer, json!("$$workspace$$/x")));
    }
    World::new().refuses(&with(plain(), "/sandbox/homes", json!(["x/y"])), 7, "sandbox.homes[0]");
    let files = json!([{"at": "x", "text": ""}]);
    World::new().refuses(&with(plain(), "/sandbox/created_files", files), 7, "sandbox.created_files[0].at");
}

/// One run with a fault of every row that can be had at once; each mended, the next holds.
#[test]
fn v2_2_14_01_the_first_refusal_that_holds_is_the_one() {
    let bob = Sender { login: Some("bob".to_owned()), ..Sender::default() };
    let mut world = World::from(bob);
    world.users.insert("builder".to_owned(), Some(User { admin: true, ..User::default() }));
    world.clone_user = CloneUser { login: "lab-1".to_owned(), letters: "goC4w".to_owned() };
    let mut content = with(plain(), "/limits/gpu", json!(1));
    content = with(content, "/process/cwd", json!("$$tree$$"));
    content = with(content, "/process/terminal", json!(true));
    content = with(content, "/workspace/0/at", json!("/tmp/x"));
    let sandbox = content["sandbox"].clone();
    content = without(content, "/sandbox");
    world.refuses(&content, 1, "bob");
    world.sender = Some(setup_user("stone"));
    world.refuses(&content, 2, "gpu");
    content = without(content, "/limits/gpu");
    world.refuses(&content, 3, "tree");
    content = without(content, "/process/cwd");
    world.refuses(&content, 4, "builder");
    world.users.insert("builder".to_owned(), None);
    world.refuses(&content, 5, "sandbox");
    content = with(content, "/sandbox", sandbox);
    world.refuses(&content, 6, "process.terminal");
    content = without(content, "/process/terminal");
    world.refuses(&content, 7, "/tmp/x");
    content = with(content, "/workspace/0/at", json!("$$root$$/x"));
    world.accepts(&content);
}
