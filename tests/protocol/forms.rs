//! Refusal 2: what each key may hold, said by naming the key (protocol 2.7 to 2.10, 2.14).

use ocx::engine::read;
use serde_json::{Value, json};

use super::support::{World, asking, plain, with, without};

#[track_caller]
fn fault(content: &Value, key: &str) {
    let fault = read::run(&asking(content).content).unwrap_err();
    assert_eq!(fault.key, key, "{fault}");
    World::new().refuses(content, 2, key);
}

#[track_caller]
fn fine(content: &Value) {
    read::run(&asking(content).content).unwrap();
}

#[test]
fn v2_2_14_11_a_required_key_that_is_missing_is_named_with_its_layer() {
    for (pointer, key) in [
        ("/objective", "objective"),
        ("/process", "process"),
        ("/process/user", "process.user"),
        ("/process/command", "process.command"),
        ("/workspace/0/at", "workspace[0].at"),
        ("/workspace/0/step", "workspace[0].step"),
    ] {
        fault(&without(plain(), pointer), key);
    }
}

#[test]
fn v2_2_8_01_every_sandbox_key_but_two_is_required() {
    let required = "uid gid linux_capabilities network isolate_terminal ends_with_parent proc dev tmp read_only read_write \
                    homes created_files";
    for key in required.split_whitespace() {
        fault(&without(plain(), &format!("/sandbox/{key}")), &format!("sandbox.{key}"));
    }
    fine(&plain());
}

#[test]
fn v2_2_14_12_a_key_version_2_does_not_have_is_named() {
    for (pointer, key) in [
        ("/sandbox/capabilities", "sandbox.capabilities"),
        ("/sandbox/own_session", "sandbox.own_session"),
        ("/sandbox/ends_with_node", "sandbox.ends_with_node"),
        ("/sandbox/files", "sandbox.files"),
        ("/limits/files", "limits.files"),
        ("/limits/gpu", "limits.gpu"),
        ("/process/shares", "process.shares"),
        ("/node", "node"),
        ("/to", "to"),
        ("/ocx", "ocx"),
        ("/workspace/0/password", "workspace[0].password"),
    ] {
        fault(&with(plain(), pointer, json!([])), key);
    }
}

#[test]
fn a_hostile_unknown_key_is_named_as_a_json_string() {
    fault(&with(plain(), "/limits/```json\n{", json!(1)), "limits.\"```json\\u000a{\"");
}

#[test]
fn v2_2_7_06_and_13_a_step_takes_no_key_of_another() {
    let steps = json!([{"step": "password", "user": "x"}]);
    fault(&with(plain(), "/workspace", steps), "workspace[0].user");
    let steps = json!([{"step": "clone", "into": "$$workspace$$/c", "password": "x"}]);
    fault(&with(plain(), "/workspace", steps), "workspace[0].password");
}

#[test]
fn v2_2_7_01_a_step_is_an_object_with_a_step() {
    fault(&with(plain(), "/workspace", json!(["directory"])), "workspace[0]");
    fault(&with(plain(), "/workspace", json!([{"step": 1}])), "workspace[0].step");
    fault(&with(plain(), "/workspace", json!({})), "workspace");
}

#[test]
fn v2_2_7_23_and_v1_5_04_removal_takes_the_one_value_saved_by_either_name() {
    fine(&with(plain(), "/workspace/0/remove_on", json!("saved")));
    fine(&with(plain(), "/workspace/0/remove", json!("saved")));
    fault(&with(plain(), "/workspace/0/remove_on", json!("always")), "workspace[0].remove_on");
    let both = with(plain(), "/workspace/0/remove_on", json!("saved"));
    fault(&with(both, "/workspace/0/remove", json!("x")), "workspace[0].remove");
}

#[test]
fn v2_2_7_22_removal_needs_a_sandbox_that_ends_with_its_parent() {
    let removed = with(plain(), "/workspace/0/remove_on", json!("saved"));
    fault(&with(removed.clone(), "/sandbox/ends_with_parent", json!(false)), "workspace[0].remove_on");
    fault(&without(removed, "/sandbox"), "workspace[0].remove_on");
}

#[test]
fn v2_2_8_03_and_c_47_ids_are_whole_numbers_to_4294967294() {
    for id in [json!(0), json!(4_294_967_294_u32)] {
        fine(&with(plain(), "/sandbox/uid", id));
    }
    for wrong in [json!("0"), json!(1.5), json!(-1), json!(4_294_967_295_u32), json!(1.0), json!(true)] {
        fault(&with(plain(), "/sandbox/uid", wrong.clone()), "sandbox.uid");
        fault(&with(plain(), "/sandbox/gid", wrong), "sandbox.gid");
    }
}

#[test]
fn v2_2_8_19_workspace_at_is_an_absolute_normal_path_that_names_no_value() {
    fine(&with(plain(), "/sandbox/workspace_at", json!("/workspace")));
    for wrong in ["/", "w", "/a/", "/a//b", "/a/../b", "/./a", "/$$run$$", "/$$secret:X$$", ""] {
        fault(&with(plain(), "/sandbox/workspace_at", json!(wrong)), "sandbox.workspace_at");
    }
}

#[test]
fn v2_2_8_16_and_c_30_a_devices_form_is_refused_by_2_and_its_place_by_7() {
    fine(&with(plain(), "/sandbox/devices", json!(["/dev/fuse"])));
    for wrong in ["/dev/", "/dev//fuse", "/dev/../etc/shadow", "/dev/./fuse", ""] {
        fault(&with(plain(), "/sandbox/devices", json!([wrong])), "sandbox.devices[0]");
    }
    for outside in ["/dev", "/tmp/x", "dev/fuse"] {
        World::new().refuses(&with(plain(), "/sandbox/devices", json!([outside])), 7, outside);
    }
}

#[test]
fn v2_2_9_01_and_c_14_a_wall_is_a_time() {
    for fine_one in ["90s", "2m", "8h", "1d"] {
        fine(&with(plain(), "/limits/wall", json!(fine_one)));
    }
    for wrong in [json!(90), json!("90"), json!("1.5h"), json!("1w"), json!(" 1h"), json!("1H"), json!("0s")] {
        fault(&with(plain(), "/limits/wall", wrong), "limits.wall");
    }
}

#[test]
fn c_14_cpu_and_processes_are_whole_numbers_from_1() {
    for key in ["cpu", "processes"] {
        fine(&with(plain(), &format!("/limits/{key}"), json!(1)));
        for wrong in [json!(0), json!(-1), json!(1.5), json!("1"), json!(u64::MAX)] {
            fault(&with(plain(), &format!("/limits/{key}"), wrong), &format!("limits.{key}"));
        }
    }
}

#[test]
fn v2_2_9_08_and_09_and_c_13_a_size_is_a_number_or_text_with_a_unit() {
    for size in [json!(65536), json!("64K"), json!(0), json!(9_223_372_036_854_775_807_u64), json!("1G")] {
        fine(&with(plain(), "/limits/file_size", size));
    }
    for wrong in [
        json!("64k"),
        json!("64KB"),
        json!("1.5M"),
        json!("-1"),
        json!(1.5),
        json!(-1),
        json!("65536"),
        json!(9_223_372_036_854_775_808_u64),
        json!("9007199254740992K"),
        json!("8589934592G"),
        json!(1e30),
    ] {
        fault(&with(plain(), "/limits/file_size", wrong.clone()), "limits.file_size");
        fault(&with(plain(), "/limits/memory", wrong.clone()), "limits.memory");
        fault(&with(plain(), "/process/keep", json!({"stderr": wrong})), "process.keep.stderr");
    }
}

#[test]
fn v2_2_10_02_a_command_is_a_program_and_its_arguments() {
    fine(&with(plain(), "/process/command", json!(["printf", "%s|", "a b", ""])));
    for (wrong, key) in [
        (json!([]), "process.command"),
        (json!("echo"), "process.command"),
        (json!([""]), "process.command[0]"),
        (json!(["echo", 1]), "process.command[1]"),
        (json!(["echo", "a\u{0}"]), "process.command[1]"),
    ] {
        fault(&with(plain(), "/process/command", wrong), key);
    }
}

#[test]
fn v2_2_10_04_an_environment_is_an_object_of_texts() {
    fine(&with(plain(), "/process/env", json!({"$$run$$": "x", "EMPTY": ""})));
    for (wrong, key) in [
        (json!([]), "process.env"),
        (json!({"A": 1}), "process.env[\"A\"]"),
        (json!({"A=B": "x"}), "process.env[\"A=B\"]"),
        (json!({"": "x"}), "process.env[\"\"]"),
        (json!({"A": "x\u{0}"}), "process.env[\"A\"]"),
    ] {
        fault(&with(plain(), "/process/env", wrong), key);
    }
}

#[test]
fn c_06_everyone_is_heard_alone_or_not_at_all() {
    fine(&with(plain(), "/process/hears", json!(["*"])));
    fine(&with(plain(), "/process/hears", json!(["pat", "ann"])));
    for wrong in [json!(["*", "pat"]), json!(["*", "*"]), json!("*")] {
        fault(&with(plain(), "/process/hears", wrong), "process.hears");
    }
    fault(&with(plain(), "/process/hears", json!([""])), "process.hears[0]");
}

#[test]
fn v2_2_10_20_and_c_48_a_session_has_no_verdict_and_a_start_session_no_files() {
    let session = with(plain(), "/process/session", json!(true));
    fault(&with(session.clone(), "/process/verdict", json!(true)), "process.verdict");
    let start = with(session, "/process/deliveries", json!("start"));
    let files = json!([{"at": "$$workspace$$/a", "as": "a-$$run$$"}]);
    fault(&with(start.clone(), "/process/unversioned_files", files), "process.unversioned_files");
    fine(&with(start, "/process/unversioned_files", json!([])));
}

#[test]
fn v2_2_10_15_each_keep_key_has_its_own_default() {
    let keep = |keep: Value| read::run(&asking(&with(plain(), "/process/keep", keep)).content).unwrap().process.keep;
    let default = read::run(&asking(&plain()).content).unwrap().process.keep;
    assert_eq!((default.stderr_bytes, default.stdout_bytes, default.stdout_when.word()), (65536, 65536, "failure"));
    assert_eq!(keep(json!({})), default);
    let some = keep(json!({"stderr": "1K", "stdout_when": "always"}));
    assert_eq!((some.stderr_bytes, some.stdout_bytes, some.stdout_when.word()), (1024, 65536, "always"));
    fault(&with(plain(), "/process/keep", json!({"stdout_when": "sometimes"})), "process.keep.stdout_when");
}

#[test]
fn c_46_homes_have_base_names_of_their_own() {
    let homes = |homes: Value| with(plain(), "/sandbox/homes", homes);
    fine(&homes(json!(["/root/.claude", "/root/.claude.json"])));
    let world = World::new();
    world.refuses(&homes(json!(["/root/.claude", "/home/x/.claude/"])), 2, "sandbox.homes[1]");
    world.refuses(&homes(json!(["/root/$$run$$", "/home/$$run$$"])), 2, "sandbox.homes[1]");
    world.refuses(&homes(json!(["/"])), 2, "sandbox.homes[0]");
}

#[test]
fn c_26_two_files_have_two_names() {
    let files =
        json!([{"at": "$$workspace$$/a", "as": "$$run$$"}, {"at": "$$workspace$$/b", "as": super::support::RUN}]);
    World::new().refuses(&with(plain(), "/process/unversioned_files", files), 2, "process.unversioned_files[1].as");
}

#[test]
fn v2_2_3_14_and_c_14_an_objective_is_text_that_may_be_empty() {
    fine(&with(plain(), "/objective", json!("")));
    fault(&with(plain(), "/objective", json!(7)), "objective");
}

#[test]
fn d_14_04_what_the_draft_left_open_is_unknown() {
    fault(&with(plain(), "/when", json!("daily")), "when");
    let step = json!([{"step": "command", "run": ["make"]}]);
    World::new().refuses(&with(plain(), "/workspace", step), 3, "command");
}
