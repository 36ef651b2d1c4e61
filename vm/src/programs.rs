//! What a guest runs: built here for its architecture, and put on a disk under the very paths it was built at.
//!
//! Tests have paths of the build in them (`CARGO_BIN_EXE_…`, the target directory around themselves), so the guest
//! mounts the disk where the target directory is on this machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::recipe::ScriptJob;
use crate::words::Job;
use crate::workspace::Workspace;
use crate::{cpio, image, packages, words};

/// The packages whose programs go into guests.
const PACKAGES: &[&str] = &["ocx", "supervisor", "sandbox"];
/// Test programs that say nothing more in a guest, and why.
const NOT_IN_GUESTS: &[(&str, &str)] =
    &[("tidy", "it reads the sources"), ("vm", "it is what makes guests"), ("guest-init", "it is what runs there")];
/// Tests left out of guests, by job, and why; the last lines of a run say so.
pub(crate) const LEFT_OUT: &[(&str, &str, &str)] = &[(
    "fossil",
    "damaged_artifacts_are_errors_and_never_a_panic",
    "it asks nothing of a host, and under emulation it is not over within its program's bound",
)];
/// How long a test program may take, in seconds, under emulation on a machine that does other things too.
const JOB_SECONDS: u64 = 1800;
/// The same for whole programs that wait for much: back-offs of half a minute, hundreds of deaths.
const WHOLE_JOB_SECONDS: &[(&str, u64)] = &[("crash", 10_800), ("link", 5_400), ("node", 3_600), ("outage", 3_600)];
/// What tests read in place of building; `tests/support` has the other half.
const PROGRAMS_ENV: &str = "OCX_TEST_PROGRAMS";
/// The same for the programs with failpoints, which the test programs of [`WITH_FAILPOINTS`] run.
const FAILPOINTS_ENV: &str = "OCX_TEST_FAILPOINT_PROGRAMS";
/// Says to the tests that the host's clock is theirs to set.
const CLOCK_ENV: &str = "OCX_TEST_CLOCK_IS_OURS";
/// Says to the tests how many systems may work at once.
const AT_ONCE_ENV: &str = "OCX_TEST_AT_ONCE";
/// How many that is: as many as a guest has processors.
const AT_ONCE: &str = crate::qemu::PROCESSORS;
/// The test programs that need them.
pub(crate) const WITH_FAILPOINTS: &[&str] = &["crash", "outage"];
/// The programs of a release.
const RELEASED: &[&str] = &["ocx", "ocx-supervisor"];

/// Debian's compiler: the one whose library for another architecture Debian has too.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// Where programs are found in a guest, behind ours.
const GUEST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs built for one architecture.
pub(crate) struct Programs {
    /// Where the guest mounts them.
    at: PathBuf,
    /// Every file, below `at`.
    files: BTreeSet<PathBuf>,
    /// Every job there can be.
    pub(crate) jobs: Vec<Job>,
    /// The directory of the release programs.
    release: PathBuf,
    /// The directory of the programs with failpoints, where there are such.
    apart: Option<PathBuf>,
    /// The guest's init.
    init: PathBuf,
}

/// What one guest is given, gone with its value.
pub(crate) struct Packed {
    place: PathBuf,
}

impl Packed {
    /// The disk of programs.
    pub(crate) fn disk(&self) -> PathBuf {
        self.place.join("programs.ext4")
    }

    /// The init, the modules and the plan.
    pub(crate) fn initramfs(&self) -> PathBuf {
        self.place.join("initramfs")
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.place) {
            eprintln!("cargo vm: {} is left: {error}", self.place.display());
        }
    }
}

/// How cargo is told to build for an architecture.
struct Target {
    triple: String,
    /// It is another architecture than this machine's.
    foreign: bool,
}

impl Target {
    fn of(arch: &str) -> Self {
        Self { triple: format!("{arch}-unknown-linux-gnu"), foreign: arch != std::env::consts::ARCH }
    }

    fn cargo(&self, workspace: &Workspace, args: &[&str]) -> Command {
        let mut cargo = workspace.cargo(args);
        if self.foreign {
            cargo.args(["--target", &self.triple]);
            self.compilers(&mut cargo);
        }
        cargo
    }

    /// Debian's compilers for another architecture, for what is Rust, for what is C and for what is linked.
    fn compilers(&self, cargo: &mut Command) {
        if self.foreign {
            cargo.env("RUSTC", DEBIAN_RUSTC);
            let compiler = format!("{}-linux-gnu-gcc", self.triple.split('-').next().unwrap_or_default());
            let name = self.triple.replace('-', "_");
            cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), &compiler);
            cargo.env(format!("CC_{name}"), &compiler);
        }
    }
}

fn done(what: &str, command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{what} failed; cargo's words stand above")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

impl Programs {
    /// Builds the release programs, every test program, and the init; with `failpoints` those that [`WITH_FAILPOINTS`] need too.
    ///
    /// # Errors
    /// What does not build.
    pub(crate) fn build(workspace: &Workspace, arch: &str, failpoints: bool) -> Result<Self, String> {
        let target = Target::of(arch);
        if target.foreign {
            packages::require_to_cross_build("cargo vm")?;
        }
        let init = build_init(workspace, &target)?;
        // For this machine as everything else here is built, so that it is built once. For another architecture without the
        // commands' own package, which says nothing in a guest.
        let packages: Vec<&str> = if target.foreign {
            PACKAGES.iter().flat_map(|it| ["--package", it]).collect()
        } else {
            vec!["--workspace"]
        };
        let build = [["build", "--release", "--locked"].as_slice(), &packages].concat();
        done("cargo build", &mut target.cargo(workspace, &build))?;
        let at = workspace.target.clone();
        let built = if target.foreign { at.join(&target.triple) } else { at.clone() };
        // Before the tests: cargo puts both kinds of programs in one place, and there those without failpoints are to stay.
        let apart = failpoints.then(|| build_failpoints(workspace, &target, &built)).transpose()?;
        let test = ["test", "--locked", "--no-run", "--message-format", "json-render-diagnostics"];
        let output = target
            .cargo(workspace, &[test.as_slice(), &packages].concat())
            .stdout(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .map_err(|e| format!("cargo test --no-run: {e}"))?;
        if !output.status.success() {
            return Err(String::from("cargo test --no-run failed; cargo's words stand above"));
        }
        let release = built.join("release");
        let (mut jobs, mut files) = artifacts(&String::from_utf8_lossy(&output.stdout));
        for directory in std::iter::once(&release).chain(&apart) {
            files.extend(RELEASED.iter().map(|it| directory.join(it)));
        }
        if apart.is_none() {
            jobs.retain(|job| !WITH_FAILPOINTS.contains(&job.name.as_str()));
        }
        let ocx = release.join("ocx").display().to_string();
        for (name, words) in [("try", [].as_slice()), ("try-ticket", ["--ticket"].as_slice())] {
            let words = [[ocx.as_str(), "try", "--json"].as_slice(), words].concat();
            jobs.push(job(name, words.into_iter().map(String::from).collect()));
        }
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { at, files, jobs, release, apart, init })
    }

    /// The jobs of these names. `NAME/FILTER` gives a test program its filter.
    ///
    /// # Errors
    /// A name that is none, with those that are.
    pub(crate) fn named(&self, names: &[String]) -> Result<Vec<Job>, String> {
        names.iter().map(|name| pick(&self.jobs, name)).collect()
    }

    /// Makes the disk of programs, and the initramfs that runs these jobs (a shell where there are none), in a directory
    /// beside the build.
    ///
    /// # Errors
    /// What cannot be written, and where.
    pub(crate) fn pack(&self, jobs: &[Job], whole: bool, modules: &[PathBuf]) -> Result<Packed, String> {
        // Of this process: another command's guest of the same architecture may be running.
        let guests = self.at.join("vm").join("guests");
        clear_dead(&guests);
        let packed = Packed { place: guests.join(std::process::id().to_string()) };
        let tree = packed.place.join("disk");
        for file in &self.files {
            let below = file.strip_prefix(&self.at).map_err(|e| format!("{}: {e}", file.display()))?;
            let into = tree.join(below);
            fs::create_dir_all(into.parent().unwrap_or(&tree)).map_err(|e| format!("{}: {e}", into.display()))?;
            fs::hard_link(file, &into).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        image::ext4(&tree, &packed.disk(), 0)?;
        fs::remove_dir_all(&tree).map_err(|e| format!("{}: {e}", tree.display()))?;
        let initramfs = packed.initramfs();
        fs::write(&initramfs, self.initramfs(jobs, whole, modules)?)
            .map_err(|e| format!("{}: {e}", initramfs.display()))?;
        Ok(packed)
    }

    fn initramfs(&self, jobs: &[Job], whole: bool, modules: &[PathBuf]) -> Result<Vec<u8>, String> {
        let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let mut cpio = cpio::Cpio::default();
        for directory in ["dev", "root", "modules"] {
            cpio.directory(directory);
        }
        cpio.device("dev/console", 5, 1);
        cpio.file(words::INIT, &read(&self.init)?);
        for (number, module) in modules.iter().enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            cpio.file(&format!("{}/{number:02}-{name}", words::MODULES), &read(module)?);
        }
        let plan = words::Plan {
            programs_at: self.at.display().to_string(),
            env: [
                Some((PROGRAMS_ENV, self.release.display().to_string())),
                Some((CLOCK_ENV, String::from("yes"))),
                Some((AT_ONCE_ENV, String::from(AT_ONCE))),
                Some(("PATH", format!("{}:{GUEST_PATH}", self.release.display()))),
                self.apart.as_ref().map(|it| (FAILPOINTS_ENV, it.display().to_string())),
            ]
            .into_iter()
            .flatten()
            .map(|(name, value)| (String::from(name), value))
            .collect(),
            jobs: jobs.to_vec(),
            shell: jobs.is_empty(),
            whole,
        };
        cpio.file(words::PLAN, plan.text()?.as_bytes());
        Ok(cpio.finish())
    }
}

/// Builds the programs with failpoints, and puts them in a directory of their own.
fn build_failpoints(workspace: &Workspace, target: &Target, built: &Path) -> Result<PathBuf, String> {
    let args = ["build", "--locked", "--package", "ocx", "--package", "supervisor", "--features", "failpoints"];
    done("cargo build with failpoints", &mut target.cargo(workspace, &args))?;
    let apart = built.join("failpoints");
    fs::create_dir_all(&apart).map_err(|e| format!("{}: {e}", apart.display()))?;
    for program in RELEASED {
        let from = built.join("debug").join(program);
        fs::copy(&from, apart.join(program)).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    Ok(apart)
}

/// Removes what commands that were killed left for their guests; each directory has its command's process ID for a name.
fn clear_dead(guests: &Path) {
    for entry in fs::read_dir(guests).into_iter().flatten().flatten() {
        if !Path::new("/proc").join(entry.file_name()).exists() {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// Links the init statically, in a target directory of its own: the flag would reach proc macros and rebuild the rest.
fn build_init(workspace: &Workspace, target: &Target) -> Result<PathBuf, String> {
    let into = workspace.target.join("vm").join("init");
    let mut cargo = workspace.cargo(&["build", "--release", "--locked", "--quiet", "--package", "guest-init"]);
    cargo.args(["--target", &target.triple, "--target-dir"]).arg(&into).env_remove("CARGO_ENCODED_RUSTFLAGS");
    target.compilers(&mut cargo);
    done("cargo build of the guest's init", cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(into.join(&target.triple).join("release/guest-init"))
}

/// What a guest with all its programs does not run, and why: a line each.
pub(crate) fn left_out() -> impl Iterator<Item = String> {
    let programs = NOT_IN_GUESTS.iter().map(|(name, why)| format!("{name}: {why}"));
    programs.chain(LEFT_OUT.iter().map(|(program, test, why)| format!("{program}/{test}: {why}")))
}

fn job(name: &str, words: Vec<String>) -> Job {
    let seconds = WHOLE_JOB_SECONDS.iter().find(|(program, _)| *program == name).map_or(JOB_SECONDS, |(_, it)| *it);
    Job { name: String::from(name), seconds, exit: 0, words }
}

/// Scripts as jobs.
pub(crate) fn of_scripts(scripts: &[ScriptJob]) -> Vec<Job> {
    let words = |script: &str| ["sh", "-c", &script.trim().replace('\n', " ")].map(String::from).to_vec();
    scripts.iter().map(|it| Job { exit: it.exit, ..job(&it.name, words(&it.script)) }).collect()
}

/// The jobs, and every file built, of cargo's messages: one JSON object a line.
fn artifacts(messages: &str) -> (Vec<Job>, BTreeSet<PathBuf>) {
    let (mut jobs, mut files) = (Vec::new(), BTreeSet::new());
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let (Some(program), Some(target), Some(kind)) =
            (text("/executable"), text("/target/name"), text("/target/kind/0"))
        else {
            continue;
        };
        if NOT_IN_GUESTS.iter().any(|(name, _)| *name == target) {
            continue;
        }
        files.insert(PathBuf::from(program));
        if message.pointer("/profile/test") == Some(&Value::Bool(true)) {
            let name = if kind == "test" { String::from(target) } else { format!("{target}-{kind}") };
            let skips = LEFT_OUT.iter().filter(|(of, ..)| *of == name);
            let skips = skips.flat_map(|(_, test, _)| ["--skip", test]).map(String::from);
            jobs.push(job(&name, std::iter::once(String::from(program)).chain(skips).collect()));
        }
    }
    (jobs, files)
}

fn pick(jobs: &[Job], name: &str) -> Result<Job, String> {
    let (program, filter) = name.split_once('/').map_or((name, None), |(program, filter)| (program, Some(filter)));
    let Some(found) = jobs.iter().find(|job| job.name == program) else {
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        return Err(format!("no test program {program:?} for guests: there are {}", names.join(", ")));
    };
    let mut job = found.clone();
    name.clone_into(&mut job.name);
    if let Some(filter) = filter {
        job.words.push(String::from(filter));
        job.seconds = JOB_SECONDS;
    }
    Ok(job)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"link"},"profile":{"test":true},"executable":"/t/debug/deps/link-1"}
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"sandbox"},"profile":{"test":true},"executable":"/t/debug/deps/sandbox-1"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"ocx"},"profile":{"test":false},"executable":"/t/debug/ocx"}
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"serde"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"tidy"},"profile":{"test":true},"executable":"/t/debug/deps/tidy-1"}
not json"#;

    #[test]
    fn test_programs_are_jobs_and_every_program_is_a_file() {
        let (jobs, files) = artifacts(MESSAGES);
        assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["link", "sandbox-lib"]);
        assert_eq!(files.len(), 3);
        assert!(files.contains(Path::new("/t/debug/ocx")));
    }

    #[test]
    fn a_name_may_have_a_filter_and_one_that_is_none_is_told() {
        let (jobs, _) = artifacts(MESSAGES);
        let job = pick(&jobs, "link/start::a").unwrap();
        assert_eq!((job.name.as_str(), job.words.last().map(String::as_str)), ("link/start::a", Some("start::a")));
        let seconds = |name: &str| pick(&jobs, name).unwrap().seconds;
        assert_eq!(
            (seconds("link"), seconds("link/start::a"), seconds("sandbox-lib")),
            (5400, JOB_SECONDS, JOB_SECONDS)
        );
        assert!(pick(&jobs, "lnik").unwrap_err().contains("link, sandbox-lib"));
    }
}
