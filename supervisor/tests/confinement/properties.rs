//! What policy permits, whatever paths a plan names and whatever lies there (V2-2.8-22, decisions C-16, C-90, C-93).
#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a panic is how a property fails")]

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;

use crate::Test;
use crate::launches::Rooted;
use crate::policy::{self, Opened};
use crate::random::{Random, hold, is};
use crate::run::{ACCOUNT, Folder, same};
use crate::sys;

pub(crate) const TESTS: &[Test] = &[(
    "properties::v2_2_8_22_nothing_is_permitted_that_is_own_the_kernels_out_of_reach_or_through_a_link_an_earlier_run_left",
    permitted,
)];

/// Names in the trees; the last is no text.
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"x y", "é".as_bytes(), b"\xff"];

/// The places a case is about.
struct Places {
    rooted: Rooted,
    outside: Folder,
    root: PathBuf,
    workspace: PathBuf,
}

/// Files, folders, some of them closed, and links to everywhere. Gives whether one leads through proc.
fn fill(random: &mut Random, places: &Places, folder: &Path, depth: usize) -> bool {
    let mut magic = false;
    for name in NAMES {
        let at = folder.join(OsStr::from_bytes(name));
        match random.below(8) {
            0 | 1 if depth > 0 => {
                fs::create_dir(&at).unwrap();
                chown(&at, Some(*random.one_of(&[0, ACCOUNT])), Some(0)).unwrap();
                magic |= fill(random, places, &at, depth - 1);
                let mode = *random.one_of(&[0o755, 0o755, 0o711, 0o700, 0o000]);
                fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
            }
            2 => fs::write(&at, "x").unwrap(),
            3 | 4 => {
                let own =
                    ["settings", "releases/r1", "releases/staged", "workspaces", "."].map(|it| places.root.join(it));
                let other =
                    ["/", "/etc", "/proc/self/root", "/proc/self/cwd", "..", "../..", "a", "../b/c", "./.", "c"];
                let mut all: Vec<PathBuf> = own.into_iter().chain(other.map(PathBuf::from)).collect();
                all.extend([places.workspace.clone(), places.workspace.join("a"), places.outside.0.join("b")]);
                let target = random.one_of(&all);
                magic |= target.starts_with("/proc");
                symlink(target, &at).unwrap();
            }
            _ => {}
        }
    }
    magic
}

fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let at = entry.path();
        if fs::symlink_metadata(&at).unwrap().is_dir() { fs::remove_dir_all(at) } else { fs::remove_file(at) }.unwrap();
    }
}

/// A path as a plan may write it.
fn asked(random: &mut Random, places: &Places) -> String {
    let text = |it: &Path| it.display().to_string();
    let starts = [
        text(&places.workspace),
        text(&places.outside.0),
        text(&places.outside.0),
        text(&places.root),
        text(&places.root.join("settings")),
        text(&places.root.join("releases/r1")),
        text(&places.root.join("releases/staged")),
        text(&places.root.join("workspaces")),
        "/proc/self/root".to_owned(),
        "/dev".to_owned(),
        "/etc".to_owned(),
        String::new(),
    ];
    let mut path = random.one_of(&starts).clone();
    for _ in 0..random.below(4) {
        path += *random.one_of(&["/", "/", "/", "//", "/./", "///"]);
        path += *random.one_of(&["a", "b", "c", "x y", "é", "..", ".", "hostname", "a"]);
    }
    path + *random.one_of(&["", "", "/", "//", "/."])
}

/// What is asked, in one form; none for what is no such path.
fn plain(path: &str) -> Option<PathBuf> {
    let mut plain = PathBuf::from("/");
    for part in path.strip_prefix('/')?.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            part => plain.push(part),
        }
    }
    Some(plain)
}

/// Whether the account may go there by the folders' modes: it has no group here but its own.
fn reachable(real: &Path) -> bool {
    real.ancestors().skip(1).all(|folder| {
        let about = fs::metadata(folder).unwrap();
        about.mode() & if about.uid() == ACCOUNT { 0o100 } else { 0o001 } != 0
    })
}

/// Whether a place may be shown in this list at all, written down anew.
fn showable(places: &Places, list: &str, real: &Path) -> bool {
    let kernels = ["/proc", "/sys", "/dev/pts"].map(PathBuf::from);
    if kernels.iter().any(|it| real.starts_with(it) || it.starts_with(real)) {
        return false;
    }
    let may = real.starts_with(&places.workspace)
        || list == "read_only" && real.starts_with(places.root.join("releases/r1"))
        || list == "read_write" && real.starts_with(places.root.join("releases/staged"));
    let own = real.starts_with(&places.root) || places.root.starts_with(real);
    // Written, the program itself and /usr are own too; nothing here leads there but the root.
    may || !own
}

fn permitted() -> Result<(), Failed> {
    let rooted = Rooted::new()?;
    let (root, workspace) = (rooted.root(), rooted.workspace());
    let places = Places { rooted, outside: Folder::new()?, root, workspace };
    let (shown, refused) = (Cell::new(0), Cell::new(0));
    hold(|random| {
        for folder in [&places.workspace, &places.outside.0] {
            empty(folder);
        }
        let magic = fill(random, &places, &places.workspace, 1) | fill(random, &places, &places.outside.0, 2);
        for _ in 0..8 {
            let path = asked(random, &places);
            let list = *random.one_of(&["read_only", "read_write", "homes"]);
            match one(&places, list, &path, magic) {
                Ok(true) => shown.set(shown.get() + 1),
                Ok(false) => refused.set(refused.get() + 1),
                Err(why) => return Err(format!("{list} {path:?}: {why}")),
            }
        }
        Ok(())
    });
    // The control: it is not that everything is refused, or nothing.
    same("some are permitted, and some are not", shown.get() > 50 && refused.get() > 50, true)
}

/// One path in one list: whether it is shown.
fn one(places: &Places, list: &str, path: &str, magic: bool) -> Result<bool, String> {
    let plan = places.rooted.shows(list, path);
    let plain = plain(path);
    let real = plain.as_ref().and_then(|it| fs::canonicalize(it).ok());
    let in_workspace = |plain: &Path| plain.starts_with(&places.workspace);
    match policy::check(&plan, &places.rooted.host) {
        Ok(checked) if checked.missing.is_none() => {
            let lists = [&checked.read_only, &checked.read_write, &checked.homes];
            let all: Vec<&Opened> = lists.into_iter().flatten().filter(|it| !is_program(&it.path)).collect();
            let [opened] = all[..] else { return Err(format!("{} paths are shown", all.len())) };
            let plain = plain.ok_or("it is no plain path")?;
            is("it is shown elsewhere", Path::new(&opened.path) == plain)?;
            is("it is written in no plain form", opened.path == plain.display().to_string())?;
            let found = fs::read_link(format!("/proc/self/fd/{}", opened.fd.as_raw_fd())).unwrap();
            is(&format!("{} is shown", found.display()), Some(&found) == real.as_ref())?;
            is("it is own, or the kernel's", showable(places, list, &found))?;
            is("the account cannot reach it", reachable(&found))?;
            is("through a link in the workspace", !in_workspace(&plain) || found == plain)?;
            Ok(true)
        }
        other => {
            // What is refused could not have been shown: it is own, out of reach, or no such path.
            let Some((plain, real)) = plain.zip(real).filter(|_| !magic) else { return Ok(false) };
            let account = places.rooted.host.accounts.run;
            let seen = sys::with_eyes_of(account, || fs::metadata(&plain)).unwrap().is_ok();
            let may = seen && showable(places, list, &real) && (!in_workspace(&plain) || real == plain);
            // A home without a name has no place, and what is written may not be what programs are run from.
            let named = list != "homes" || plain.file_name().is_some();
            let through_proc = plain.starts_with("/proc");
            if may && named && !through_proc {
                return Err(format!("it is kept back: {:?}", other.map(|it| it.missing)));
            }
            Ok(false)
        }
    }
}

/// What each plan here shows besides.
fn is_program(path: &str) -> bool {
    ["/usr", "/bin", "/lib", "/lib64"].contains(&path)
}
