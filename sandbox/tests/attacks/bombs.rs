//! Taking more than was given: each is ended or refused, and the host goes on.

use std::fs;
use std::io::Write as _;

use libtest_mimic::Failed;
use serde_json::json;

use crate::inside::{Given, Got};
use crate::outside::{self, Stage};
use crate::raw::{self, Ended, text};
use crate::run::{Came, Folder, Run, same};
use crate::table::{self, Attack, Control, attack, whole};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("bombs::processes", "limits", forks).staged(few_processes).control(Control::Asked(more_processes)),
    attack("bombs::processes_that_make_processes", "limits", forks_of_forks)
        .staged(few_processes)
        .control(Control::Asked(more_processes)),
    attack("bombs::bytes_in_tmp_and_shm", "limits", bytes),
    attack("bombs::files_in_tmp_and_dev", "limits", inodes),
    attack("bombs::a_file_past_its_size", "limits", long_file).staged(small_files).control(Control::Asked(large_files)),
    whole("bombs::memory", "limits", memory),
    whole("bombs::memory_that_is_files", "limits", memory_as_files),
    whole("bombs::descriptors", "limits", descriptors),
    whole("bombs::processor_time", "limits", processor_time),
];

/// Processes a bomb may have.
const FEW: u64 = 20;
/// Processes a bomb tries to have.
const MANY: u64 = 60;

fn few_processes() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.key("/limits/processes", json!(FEW)).giving("few", FEW).giving("many", MANY))
}

fn more_processes(stage: Stage) -> Stage {
    stage.key("/limits/processes", json!(4 * MANY))
}

/// As many children as there may be, all alive at once.
fn forks(given: &Given, got: &mut Got) {
    let mut children = Vec::new();
    let mut error = 0;
    while u64::try_from(children.len()).is_ok_and(|it| it < given.number("many")) {
        match raw::fork() {
            Ok(0) => sleep_out(),
            Ok(child) => children.push(child),
            Err(why) => {
                error = why;
                break;
            }
        }
    }
    let count = children.len();
    for child in children {
        end(child);
    }
    let many = u64::try_from(count).is_ok_and(|it| it >= given.number("few"));
    got.holds(format!("{count} children, then error {error}"), many);
}

fn sleep_out() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

fn end(child: i32) {
    let _signalled = raw::raw(libc::SYS_kill, [u64::from(child.unsigned_abs()), 9, 0, 0, 0, 0]);
    let _waited = raw::wait_for(child);
}

/// Each child makes two more, and all live until the first ends; their number is that of the process folders.
fn forks_of_forks(given: &Given, got: &mut Got) {
    let first = raw::fork();
    if first == Ok(0) {
        multiply();
    }
    let living = || {
        fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter(|it| it.file_name().to_string_lossy().parse::<u32>().is_ok())
            .count()
    };
    let mut most = 0;
    for _ in 0..100 {
        most = most.max(living());
        if u64::try_from(most).is_ok_and(|it| it >= given.number("many")) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Its init is not counted by the limit.
    got.holds(format!("{most} processes at once"), u64::try_from(most).is_ok_and(|it| it > given.number("few") + 1));
}

/// A hundred and twenty-eight processes, where so many may be.
fn multiply() -> ! {
    for _ in 0..7 {
        let _more = raw::fork();
    }
    sleep_out()
}

/// What the file systems say of themselves, since filling them would take the host's memory; and two gibibytes at once,
/// which are refused before any is taken where there is room for one.
fn room(got: &mut Got, what: fn(&rustix::fs::StatVfs) -> u64, most: u64) {
    for folder in ["/tmp", "/dev/shm"] {
        // In a control its tmp alone is its own.
        if folder == "/dev/shm" && in_a_control() {
            continue;
        }
        match rustix::fs::statvfs(folder) {
            Ok(about) => got.holds(format!("{folder}: {}", what(&about)), what(&about) > most || what(&about) == 0),
            Err(error) => got.through(format!("{folder}: {error}")),
        }
    }
}

fn in_a_control() -> bool {
    fs::File::open("/proc/1/environ").is_ok()
}

fn bytes(_: &Given, got: &mut Got) {
    const TOO_MANY: u64 = 2 << 30;
    room(got, |it| it.f_blocks * it.f_frsize, TOO_MANY / 2);
    if in_a_control() {
        return;
    }
    for folder in ["/tmp", "/dev/shm"] {
        let came = fs::File::create(format!("{folder}/bomb"))
            .and_then(|file| Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, TOO_MANY)?));
        got.tried(folder, &came);
    }
}

fn inodes(_: &Given, got: &mut Got) {
    room(got, |it| it.f_files, 1 << 20);
}

fn small_files() -> Result<Stage, Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    Ok(Stage::plain()?.writing(&path).giving("rw", &path).key("/limits/file_size", json!("4K")).holding(folder))
}

fn large_files(stage: Stage) -> Stage {
    stage.key("/limits/file_size", json!("1G"))
}

/// The signal ignored, by every way a file becomes longer.
fn long_file(given: &Given, got: &mut Got) {
    let ignore = [1_u64, 0, 0, 0]; // SIG_IGN
    got.call_if_failed("SIGXFSZ ignored", &raw::raw(libc::SYS_rt_sigaction, [25, raw::pointer(&ignore), 0, 8, 0, 0]));
    let at = |name: &str| format!("{}/{name}", given.text("rw"));
    got.tried("written", &fs::write(at("a"), [0; 8192]));
    got.tried("lengthened", &fs::File::create(at("b")).and_then(|it| it.set_len(1 << 20)));
    let far = fs::File::create(at("c")).and_then(|it| std::os::unix::fs::FileExt::write_all_at(&it, b"x", 1 << 20));
    got.tried("written far out", &far);
    let mode = rustix::fs::FallocateFlags::empty();
    let made = fs::File::create(at("d")).and_then(|it| Ok(rustix::fs::fallocate(&it, mode, 0, 1 << 20)?));
    got.tried("allocated", &made);
    let appended = fs::File::options().append(true).create(true).open(at("e"));
    got.tried("appended", &appended.and_then(|mut it| (0..8).try_for_each(|_| it.write_all(&[0; 4096]))));
}

/// A script that takes a hundred megabytes, in children too, and what came of it with a limit and without.
fn takes_too_much(script: &str) -> Result<(), Failed> {
    let take = Run::sh(script);
    let little = take.clone().with("/limits/memory", json!("24M")).run()?;
    if little.err.contains("no memory controller") {
        // Refused by name, as it has to be where there is none.
        little.exits(125)?.says("refused (6): limits.memory")?;
        return Ok(());
    }
    little.exits(137)?.says("limits.memory")?;
    take.run()?.exits(0)?.prints("100000000\n")?;
    host_goes_on()
}

/// The host still makes processes, files and descriptors.
fn host_goes_on() -> Result<(), Failed> {
    same("a process of the host", std::process::Command::new("true").status()?.success(), true)?;
    let folder = Folder::new()?;
    let files: Result<Vec<fs::File>, _> = (0..100).map(|it| fs::File::create(folder.0.join(it.to_string()))).collect();
    same("files of the host", files?.len(), 100)
}

fn memory() -> Result<(), Failed> {
    // Perl holds the whole of it in one text; the shell waits for its child.
    takes_too_much("perl -e '$x = \"x\" x 100000000; print length($x), \"\\n\"' || { sleep 60; exit 1; }")
}

fn memory_as_files() -> Result<(), Failed> {
    takes_too_much(
        "head -c 60000000 /dev/zero > /tmp/a; head -c 40000000 /dev/zero > /dev/shm/b; cat /tmp/a /dev/shm/b | wc -c",
    )
}

fn descriptors() -> Result<(), Failed> {
    let script = "perl -e 'for (1..4) { fork } while (@f < 5000 and open my $f, \"<\", \"/dev/null\") { push @f, $f } \
                  syswrite STDOUT, \"some\\n\" if @f > 10; 1 while wait != -1'";
    let came = Run::sh(script).run()?.exits(0)?;
    same("every process had some", came.out.lines().count(), 16)?;
    host_goes_on()
}

fn processor_time() -> Result<(), Failed> {
    // Caught, and gone on with in a child: the limit is each process's own.
    let script = "trap 'echo caught' XCPU; while :; do :; done";
    let came = Run::sh(script).with("/limits/cpu", json!(1)).run()?.exits(137)?.says("limits.cpu")?;
    same("it was asked first", came.out.contains("caught"), true)?;
    // The control: without the limit it takes longer, and ends by itself.
    let longer = "exec perl -e 'while ((times)[0] < 1.5) { } print \"took longer\\n\"'";
    Run::sh(longer).run()?.exits(0)?.prints("took longer\n")?;
    host_goes_on()
}
