//! `ocx-supervisor audit RUN|PID`: what the process of a run under way is, read from the kernel now, beside what it was
//! promised to be when it was launched.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sandbox::flat;
use sandbox::measure::{self, Difference, Judge};
use sandbox::promise::Promise;
use serde_json::json;
use supervisor::wire::accounts::SERVICE_ROOT;

use crate::care::{self, Record};
use crate::child;
use crate::durable;
use crate::run_hash::RunHash;

const HELP: &str = "\
Usage: ocx-supervisor audit [--root ROOT] [--json] RUN|PID

Says what the process of a run under way is, as the kernel tells it now, beside
what it was promised to be: ids, groups, capabilities, filter, namespaces,
cgroups, limits, and every mount it sees with its flags. RUN is a run's hash or
the beginning of it, PID any process of a run. It has to be root.

What the process itself may change (umask, signals, session) is not here. A
capability given up since, or a limit lowered, is no difference.

  --root ROOT   where the supervisor keeps its runs (/var/lib/ocx)
  --json        one JSON object

Exit codes: 0 all as promised; 1 something differs, or cannot be read; 2 usage,
or no such run is under way.
";

/// Exit code when there is nothing to look at.
const NOTHING: u8 = 2;
/// Most processes between one of a run and the first of its sandbox.
const ANCESTORS_MAX: usize = 64;
/// Fewest digits that name a run.
const DIGITS_MIN: usize = 4;

/// One fact.
struct Row {
    what: String,
    same: bool,
    found: String,
    promised: String,
}

/// Keeps every fact.
#[derive(Default)]
struct All(Vec<Row>);

impl Judge for All {
    fn exact(&self) -> bool {
        false
    }

    fn fact(
        &mut self,
        what: &dyn fmt::Display,
        same: bool,
        found: &dyn fmt::Display,
        promised: &dyn fmt::Display,
    ) -> Result<(), Difference> {
        let (what, found, promised) = (what.to_string(), found.to_string(), promised.to_string());
        self.0.push(Row { what, same, found, promised });
        Ok(())
    }
}

/// Runs the command with its arguments after `audit`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|it| it == "--help" || it == "-h") {
        return crate::print(HELP);
    }
    match run(arguments) {
        Ok((text, same)) => {
            crate::print(&text);
            if same { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            crate::complain(&format!("ocx-supervisor audit: {why}\n"));
            ExitCode::from(NOTHING)
        }
    }
}

fn run(arguments: &[String]) -> Result<(String, bool), String> {
    let (mut root, mut json, mut name) = (SERVICE_ROOT, false, None);
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--root" => root = rest.next().ok_or("--root needs a directory")?,
            "--json" => json = true,
            other if other.starts_with('-') => {
                return Err(format!("{other} is no option; --help says which there are"));
            }
            other if name.is_none() => name = Some(other),
            _ => return Err("more than one RUN or PID".to_owned()),
        }
    }
    let name = name.ok_or("RUN or PID is missing; --help says more")?;
    if !rustix::process::geteuid().is_root() {
        return Err("it has to be root, to read what other accounts' processes are".to_owned());
    }
    let under_way = UnderWay::find(Path::new(root), name)?;
    let rows = under_way.measure()?;
    let same = rows.iter().all(|it| it.same);
    Ok((if json { as_json(&under_way, &rows, same) } else { as_text(&under_way, &rows, same) }, same))
}

/// A run whose process lives.
struct UnderWay {
    run: RunHash,
    /// The run's own process, on this host.
    pid: u32,
    /// What watches it.
    init: u32,
    promise: Promise,
}

impl UnderWay {
    fn find(root: &Path, name: &str) -> Result<Self, String> {
        let care = root.join("care");
        let directory = durable::directory(&care).map_err(|error| format!("{}: {error}", care.display()))?;
        let names = fs::read_dir(&care).map_err(|error| format!("{}: {error}", care.display()))?;
        let runs = names.flatten().filter_map(|it| RunHash::parse(it.file_name().to_str()?));
        let read = |run: RunHash| Some((run, Record::read(&directory, &run).ok()?));
        let all: Vec<(RunHash, Record)> = runs.filter_map(read).filter(|(_, it)| it.init.is_some()).collect();
        let digits = |it: &&(RunHash, Record)| it.0.to_string().starts_with(name);
        let by_hash: Vec<_> = all.iter().filter(|it| name.len() >= DIGITS_MIN && digits(it)).collect();
        let found = match (by_hash.as_slice(), name.parse::<u32>()) {
            ([one], _) => *one,
            ([], Ok(pid)) => {
                let above = ancestors(pid);
                let holds = |it: &&(RunHash, Record)| it.1.init.is_some_and(|init| above.contains(&init.pid));
                let nobody = || format!("process {pid} is of no run in the care of {}", root.display());
                all.iter().find(holds).ok_or_else(nobody)?
            }
            ([], Err(_)) => return Err(format!("{name}: no such run is under way in {}", root.display())),
            (many, _) => {
                let all: Vec<String> = many.iter().map(|it| it.0.short()).collect();
                return Err(format!("{name} names {}; give more digits", all.join(", ")));
            }
        };
        let (run, record) = found;
        let short = run.short();
        let init = record.init.ok_or("it has no process")?;
        // A pid names a process only with its start time.
        if child::start_time(init.pid).ok() != Some(init.started) {
            return Err(format!("{short} is not under way: its process is gone"));
        }
        let promise = record.promise.as_deref().and_then(care::from_hex);
        let promise =
            promise.ok_or_else(|| format!("{short}: its record keeps no promise: nothing to compare with"))?;
        let promise = flat::read(&promise).map_err(|it| format!("{short}: its promise cannot be read: {}", it.0))?;
        let pid = match name.parse::<u32>() {
            Ok(pid) if by_hash.is_empty() && pid != init.pid => pid,
            _ => first_child(init.pid).ok_or_else(|| format!("{short} is not under way: its process has ended"))?,
        };
        Ok(Self { run: *run, pid, init: init.pid, promise })
    }

    fn measure(&self) -> Result<Vec<Row>, String> {
        let folder = |pid: u32| {
            let path = PathBuf::from(format!("/proc/{pid}"));
            fs::File::open(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let (own, init) = (folder(self.pid)?, folder(self.init)?);
        let promise = &self.promise;
        let ids = promise.maps.map_or(promise.ids, |it| [it.uid[1], it.gid[1]]);
        let mut all = All::default();
        let mut whole = || {
            measure::outside(&mut all, own.as_fd(), ids, promise)?;
            measure::modes(&mut all, own.as_fd(), Some(init.as_fd()), promise)?;
            promise.groups.as_ref().map_or(Ok(()), |it| measure::groups(&mut all, own.as_fd(), it))
        };
        match whole() {
            Ok(()) => Ok(all.0),
            Err(Difference(why)) => Err(format!("process {}: {why}", self.pid)),
        }
    }
}

/// A process and those it comes from.
fn ancestors(pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| child::parent(*pid).ok().filter(|it| *it > 1);
    std::iter::successors(Some(pid), parent).take(ANCESTORS_MAX).collect()
}

/// The child of a sandbox's init that was there first: what others leave to it came later.
fn first_child(init: u32) -> Option<u32> {
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|it| pid_of(&it.file_name()));
    let own = pids.filter(|pid| child::parent(*pid).is_ok_and(|it| it == init));
    own.min_by_key(|pid| child::start_time(*pid).unwrap_or(u64::MAX))
}

fn pid_of(name: &OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

fn as_json(it: &UnderWay, rows: &[Row], same: bool) -> String {
    let fact = |row: &Row| json!({"what": row.what, "same": row.same, "found": row.found, "promised": row.promised});
    let facts: Vec<_> = rows.iter().map(fact).collect();
    let whole = json!({"run": it.run.to_string(), "pid": it.pid, "init": it.init, "same": same, "facts": facts});
    format!("{whole}\n")
}

fn as_text(it: &UnderWay, rows: &[Row], same: bool) -> String {
    let mut text = format!("run {}, process {}, watched by {}\n\n", it.run.short(), it.pid, it.init);
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (what, found) = (width(|it| &it.what), width(|it| &it.found));
    for row in rows {
        let mark = if row.same { " " } else { "!" };
        // A String takes whatever is written to it.
        writeln!(text, "{mark} {:what$}  {:found$}  {}", row.what, row.found, row.promised).unwrap_or(());
    }
    let different = rows.iter().filter(|it| !it.same).count();
    let end = if same {
        format!("\n{} facts, all as promised (found, then promised)\n", rows.len())
    } else {
        format!(
            "\n{different} of {} facts differ from what was promised (marked !; found, then promised)\n",
            rows.len()
        )
    };
    text + &end
}
