//! Who the process is, what it holds, and where it starts.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use libtest_mimic::Failed;
use serde_json::json;

use crate::Test;
use crate::run::{ACCOUNT, Folder, Run, same};

pub(crate) const TESTS: &[Test] = &[
    ("process::v2_2_8_03_its_ids_are_those_asked_and_map_to_the_account", ids),
    ("process::v2_2_8_03_even_as_uid_0_it_is_the_account_on_the_host", root_inside),
    ("process::v2_2_8_04_it_keeps_the_capabilities_asked_and_no_other", capabilities),
    ("process::v2_2_8_06_the_host_name_is_ten_digits_of_the_run", host_name),
    ("process::v2_2_8_06_it_sees_only_its_own_processes", processes),
    ("process::v2_2_8_07_it_leads_a_session_without_a_terminal", session),
    ("process::v2_2_8_05_network_false_shows_lo_alone_and_true_the_hosts", network),
    ("process::v2_2_8_05_network_with_capabilities_is_its_own_too", own_network),
    ("process::v2_2_10_04_its_environment_is_exactly_the_one_given", environment),
    ("process::it_inherits_no_descriptor_but_the_streams", descriptors),
    ("process::signals_and_umask_are_reset", signals),
    ("process::v2_2_10_02_arguments_arrive_unsplit", arguments),
    ("process::v2_2_10_03_a_program_is_found_on_its_own_path", path),
    ("process::c_45_exit_codes_of_what_cannot_start", cannot_start),
    ("process::exit_codes_are_its_own", exit_codes),
    ("process::streams_are_passed_through_untouched", streams),
];

fn ids() -> Result<(), Failed> {
    let script =
        "id -u; id -g; id -G; tr -s ' ' < /proc/self/uid_map; tr -s ' ' < /proc/self/gid_map; cat /proc/self/setgroups";
    let run = Run::sh(script).with("/sandbox/uid", json!(1234)).with("/sandbox/gid", json!(5678));
    let expected = format!("1234\n5678\n5678\n 1234 {ACCOUNT} 1\n 5678 {ACCOUNT} 1\ndeny\n");
    run.run()?.exits(0)?.prints(&expected)?;
    Ok(())
}

fn root_inside() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let script = format!(
        "id -u; touch {path}/x; grep CapEff /proc/self/status; (echo x > /proc/sys/kernel/core_pattern) 2>&1 | grep -o denied"
    );
    let run = Run::sh(&script).writing(&[&path]).with("/sandbox/uid", json!(0)).with("/sandbox/gid", json!(0));
    run.run()?.exits(0)?.prints("0\nCapEff:\t0000000000000000\ndenied\n")?;
    same("on the host", fs::metadata(folder.0.join("x"))?.uid(), ACCOUNT)
}

fn capabilities() -> Result<(), Failed> {
    let script = "grep -E 'Cap|NoNew|Seccomp:' /proc/self/status";
    let sets = |bits: &str| {
        let all = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|it| format!("Cap{it}:\t{bits}\n")).concat();
        format!("{all}NoNewPrivs:\t1\nSeccomp:\t2\n")
    };
    let run = Run::sh(script);
    run.run()?.exits(0)?.prints(&sets("0000000000000000"))?;
    let one = run.clone().with("/sandbox/linux_capabilities", json!(["CAP_KILL"]));
    one.run()?.exits(0)?.prints(&sets("0000000000000020"))?;
    let root = one.with("/sandbox/uid", json!(0)).with("/sandbox/gid", json!(0));
    root.run()?.exits(0)?.prints(&sets("0000000000000020"))?;
    let unknown = run.with("/sandbox/linux_capabilities", json!(["CAP_KILL", "cap_chown"]));
    unknown.run()?.exits(125)?.says("refused (6)")?.says("linux_capabilities[1]")?.says("cap_chown")?;
    Ok(())
}

fn host_name() -> Result<(), Failed> {
    let before = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = Run::sh("hostname").run()?.exits(0)?.out;
    let digits = name.trim_end();
    same("ten digits", digits.len() == 10 && digits.bytes().all(|it| it.is_ascii_hexdigit()), true)?;
    same("the host's", fs::read_to_string("/proc/sys/kernel/hostname")?, before)
}

fn processes() -> Result<(), Failed> {
    let host = fs::read_dir("/proc")?.flatten().filter(|it| it.file_name().to_string_lossy().parse::<u32>().is_ok());
    same("the host has more", host.count() > 3, true)?;
    let came = Run::sh("cd /proc; echo [0-9]*; tr -d '\\0' < 1/comm").run()?.exits(0)?;
    came.prints("1 2\nocx-cell\n")?;
    Ok(())
}

fn session() -> Result<(), Failed> {
    // Its session is its own pid; opening /dev/tty fails, since the session has no terminal.
    let script = "set -- $(cat /proc/$$/stat); echo $6 $7; (: < /dev/tty) 2>&1 | grep -o 'No such device'";
    Run::sh(script).run()?.prints("2 0\nNo such device\n")?;
    Ok(())
}

fn interfaces(text: &str) -> Vec<String> {
    let mut names: Vec<String> =
        text.lines().filter_map(|it| it.split_once(':')).map(|it| it.0.trim().to_owned()).collect();
    names.sort();
    names
}

fn network() -> Result<(), Failed> {
    let look = Run::sh("cat /proc/net/dev");
    same("without", interfaces(&look.run()?.exits(0)?.out), vec!["lo".to_owned()])?;
    let shared = look.with("/sandbox/network", json!(true)).run()?.exits(0)?;
    same("with", interfaces(&shared.out), interfaces(&fs::read_to_string("/proc/net/dev")?))
}

fn own_network() -> Result<(), Failed> {
    let script = "cat /proc/net/dev; hostname | wc -c; grep CapEff /proc/self/status >&2";
    let run = Run::sh(script).with("/sandbox/linux_capabilities", json!(["CAP_NET_BIND_SERVICE"]));
    let came = run.run()?.exits(0)?.says("0000000000000400")?;
    same("its interfaces", interfaces(&came.out), vec!["lo".to_owned()])?;
    same("its name", came.out.lines().last().map(str::trim), Some("11"))
}

fn environment() -> Result<(), Failed> {
    let run = Run::command(&["/usr/bin/env"]);
    let two = run.clone().with("/process/env", json!({"A": "1", "B": "x y=z"}));
    two.run()?.exits(0)?.prints("A=1\nB=x y=z\n")?;
    run.with("/process/env", json!({})).run()?.exits(0)?.prints("")?;
    Ok(())
}

fn descriptors() -> Result<(), Failed> {
    let list = Run::command(&["/usr/bin/ls", "/proc/self/fd"]);
    // The fourth is ls's own. The control: without a sandbox what the caller left open shows.
    list.around(&[], "exec 7< /dev/null; exec $ONCE")?.exits(0)?.prints("0\n1\n2\n3\n")?;
    let outside = list.around(&[], "exec 7< /dev/null; ls /proc/self/fd")?.exits(0)?;
    same("without a sandbox 7 shows", outside.out.lines().any(|it| it == "7"), true)
}

fn signals() -> Result<(), Failed> {
    let script = "grep -E 'Sig(Blk|Ign)' /proc/self/status; umask";
    // Started with SIGHUP and SIGINT ignored, as nohup and a shell's background do.
    let came = Run::sh(script).around(&[], "trap '' HUP INT; umask 077; exec $ONCE")?.exits(0)?;
    came.prints("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0022\n")?;
    Ok(())
}

fn arguments() -> Result<(), Failed> {
    Run::command(&["printf", "%s|", "a b", ""]).run()?.exits(0)?.prints("a b||")?;
    Ok(())
}

fn path() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let tool = folder.file("tool", "#!/bin/sh\necho found\n")?;
    std::process::Command::new("chmod").args(["755", &tool]).status()?;
    let run = Run::command(&["tool"]).reading(&[&folder.text()]);
    let on = run.clone().with("/process/env", json!({"PATH": format!("/nowhere:{}", folder.text())}));
    on.run()?.exits(0)?.prints("found\n")?;
    run.with("/process/env", json!({})).run()?.exits(127)?.says("exec: tool: No such file or directory")?;
    Ok(())
}

fn cannot_start() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let (plain, script) = (folder.file("plain", "x")?, folder.file("script", "#!/no/such/interpreter\n")?);
    std::process::Command::new("chmod").args(["755", &script]).status()?;
    let run = |program: &str| Run::command(&[program]).reading(&[&path]).run();
    run("/no/such")?.exits(127)?.says("exec: /no/such: No such file or directory")?;
    run(&plain)?.exits(126)?.says("Permission denied")?;
    run(&script)?.exits(126)?.says("interpreter")?;
    let nowhere = Run::sh("true").with("/process/cwd", json!("/no/where"));
    nowhere.run()?.exits(125)?.says("cwd: /no/where: No such file or directory")?;
    // One line each.
    same("lines", nowhere.run()?.err.lines().count(), 1)
}

fn exit_codes() -> Result<(), Failed> {
    Run::sh("exit 3").run()?.exits(3)?;
    Run::sh("kill -9 $$").run()?.exits(137)?;
    Run::sh("kill -TERM $$").run()?.exits(143)?;
    Ok(())
}

fn streams() -> Result<(), Failed> {
    let came = Run::sh("cat; echo err >&2").around(&[], "printf 'in\\n' | $ONCE")?.exits(0)?.prints("in\n")?;
    same("stderr", came.err.as_str(), "err\n")
}
