//! A path is swapped in a loop while runs that name it are launched: between what may be shown and a link to what may not.
//! What is shown is what was checked, or nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use libtest_mimic::Failed;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandbox::spec::CreatedFile;
use serde_json::json;
use supervisor::wire::plan::LaunchPlan;

use crate::outside::Rooted;
use crate::run::{ACCOUNT, Folder, Run, same};
use crate::table::{Attack, whole};

pub(crate) const ATTACKS: &[Attack] = &[
    whole("races::a_read_only_path", "checked-is-shown", read_only),
    whole("races::a_read_write_path", "checked-is-shown", read_write),
    whole("races::a_home", "checked-is-shown", home),
    whole("races::a_device", "checked-is-shown", device),
    whole("races::a_path_in_the_workspace", "no-links", in_the_workspace),
    whole("races::where_a_created_file_goes", "no-links", created_file),
    whole("races::where_a_home_goes", "no-links", home_point),
];

/// Launches of a race, at least.
const LAUNCHES: usize = 40;
/// Launches until each outcome was seen, at most.
const LAUNCHES_MAX: usize = 1000;
/// Looks of a control, at most.
const LOOKS_MAX: usize = 2_000_000;

/// Two paths that change places until this is dropped.
struct Swapping {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapping {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _swapped = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A folder whose file says "mine", and a link to one whose file says "secret", under the names `x` and `y`.
fn pair(at: &Path, secret: &Path) -> Result<(), Failed> {
    fs::create_dir(at.join("x"))?;
    fs::write(at.join("x/word"), "mine")?;
    for path in ["x", "x/word"] {
        std::os::unix::fs::chown(at.join(path), Some(ACCOUNT), Some(ACCOUNT))?;
    }
    symlink(secret, at.join("y"))?;
    Ok(())
}

/// Launches until the plan has been carried out and been refused or failed, and never shown the secret.
fn never_secret(root: &Rooted, plan: &LaunchPlan) -> Result<(), Failed> {
    let (mut mine, mut nothing) = (0, 0);
    for launches in 0..LAUNCHES_MAX {
        match root.prints(plan)?.unwrap_or_default().as_str() {
            "mine" => mine += 1,
            shown if shown.contains("secret") => return Err(format!("launch {launches} was shown the secret").into()),
            _ => nothing += 1,
        }
        if launches >= LAUNCHES && mine > 0 && nothing > 0 {
            return Ok(());
        }
    }
    Err(format!("it was no race: {mine} launches went through, {nothing} did not").into())
}

/// The control: looked at by name and then opened by name, the link wins now and then.
fn a_look_by_name_loses(at: &Path) -> Result<(), Failed> {
    for _ in 0..LOOKS_MAX {
        let folder = fs::symlink_metadata(at).is_ok_and(|it| it.is_dir());
        if folder && fs::read_to_string(at.join("word")).is_ok_and(|it| it == "secret") {
            return Ok(());
        }
    }
    Err("looking twice by name never lost".into())
}

/// OCX's own settings, readable to everybody.
fn own(root: &Rooted) -> Result<PathBuf, Failed> {
    let settings = root.folder.0.join("settings");
    fs::write(settings.join("word"), "secret")?;
    Ok(settings)
}

fn with(
    root: &Rooted,
    script: &str,
    change: impl FnOnce(&mut sandbox::spec::Confinement),
) -> Result<LaunchPlan, Failed> {
    let mut plan = root.plan(&Run::sh(script))?;
    plan.sandbox.as_mut().map(change);
    Ok(plan)
}

/// A path outside the workspace goes through ordinary links, so the link is followed, and refused for where it leads.
fn of_a_list(list: fn(&mut sandbox::spec::Confinement) -> &mut Vec<String>) -> Result<(), Failed> {
    let (root, folder) = (Rooted::new()?, Folder::new()?);
    pair(&folder.0, &own(&root)?)?;
    let path = format!("{}/x", folder.text());
    let plan = with(&root, &format!("cat {path}/word"), |it| list(it).push(path.clone()))?;
    let _swapping = Swapping::start(folder.0.join("x"), folder.0.join("y"));
    a_look_by_name_loses(&folder.0.join("x"))?;
    never_secret(&root, &plan)
}

fn read_only() -> Result<(), Failed> {
    of_a_list(|it| &mut it.read_only)
}

fn read_write() -> Result<(), Failed> {
    of_a_list(|it| &mut it.read_write)
}

fn home() -> Result<(), Failed> {
    let (root, folder) = (Rooted::new()?, Folder::new()?);
    pair(&folder.0, &own(&root)?)?;
    let (path, workspace) = (format!("{}/x", folder.text()), root.workspace.clone());
    let plan = with(&root, &format!("cat {workspace}/x/word"), |it| {
        it.read_write.push(workspace.clone());
        it.homes.push(path);
    })?;
    let _swapping = Swapping::start(folder.0.join("x"), folder.0.join("y"));
    a_look_by_name_loses(&folder.0.join("x"))?;
    never_secret(&root, &plan)
}

/// Anybody may put a link in `/dev/shm`, which lies within `/dev`.
fn device() -> Result<(), Failed> {
    let (root, folder) = (Rooted::new()?, Folder::new()?);
    let secret = folder.file("word", "secret")?;
    let name = |it: &str| PathBuf::from(format!("/dev/shm/ocx-attack-{}-{it}", std::process::id()));
    let (one, other) = (name("x"), name("y"));
    symlink("/dev/zero", &one)?;
    symlink(&secret, &other)?;
    let path = one.display().to_string();
    let script = format!("if test -c {path}; then printf mine; else cat {path}; fi 2>&1");
    let plan = with(&root, &script, |it| {
        it.dev = "/d".to_owned();
        it.devices.push(path);
    });
    let swapping = Swapping::start(one.clone(), other.clone());
    let came = plan.and_then(|plan| never_secret(&root, &plan));
    drop(swapping);
    fs::remove_file(one)?;
    fs::remove_file(other)?;
    came
}

/// A path in the workspace goes through no link at all.
fn in_the_workspace() -> Result<(), Failed> {
    let (root, outside) = (Rooted::new()?, Folder::new()?);
    outside.file("word", "secret")?;
    let workspace = PathBuf::from(&root.workspace);
    pair(&workspace, &outside.0)?;
    let path = format!("{}/x", root.workspace);
    let plan = with(&root, &format!("cat {path}/word"), |it| it.read_only.push(path.clone()))?;
    let _swapping = Swapping::start(workspace.join("x"), workspace.join("y"));
    a_look_by_name_loses(&workspace.join("x"))?;
    never_secret(&root, &plan)
}

/// Mount points are made in the account's own folder, where a link may lead anywhere: nothing is ever made there.
fn nothing_made(root: &Rooted, plan: &LaunchPlan, outside: &Folder) -> Result<(), Failed> {
    never_secret(root, plan)?;
    let names: Vec<_> = fs::read_dir(&outside.0)?.flatten().map(|it| it.file_name()).collect();
    same("where the link leads", names, vec!["word".into()])
}

fn created_file() -> Result<(), Failed> {
    let (root, outside) = (Rooted::new()?, Folder::new()?);
    outside.file("word", "secret")?;
    let workspace = PathBuf::from(&root.workspace);
    pair(&workspace, &outside.0)?;
    let at = format!("{}/x/made/deep", root.workspace);
    let plan = with(&root, &format!("cat {at}"), |it| {
        it.read_write.push(root.workspace.clone());
        it.created_files.push(CreatedFile { at, text: "mine".to_owned() });
    })?;
    let _swapping = Swapping::start(workspace.join("x"), workspace.join("y"));
    a_look_by_name_loses(&workspace.join("x"))?;
    nothing_made(&root, &plan, &outside)
}

fn home_point() -> Result<(), Failed> {
    let (root, outside, homes) = (Rooted::new()?, Folder::new()?, Folder::new()?);
    outside.file("word", "secret")?;
    let home = homes.folder("x", ACCOUNT)?;
    homes.file("x/word", "mine")?;
    let workspace = PathBuf::from(&root.workspace);
    pair(&workspace, &outside.0)?;
    let plan = with(&root, &format!("cat {}/x/word", root.workspace), |it| {
        it.read_write.push(root.workspace.clone());
        it.homes.push(home);
    })?;
    let _swapping = Swapping::start(workspace.join("x"), workspace.join("y"));
    a_look_by_name_loses(&workspace.join("x"))?;
    nothing_made(&root, &plan, &outside)
}
