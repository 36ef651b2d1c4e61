//! What the test does around an attack: makes what it is given, launches the attacker, and reads what it says.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;

use libtest_mimic::Failed;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use sandbox::spec::{Confinement, Limits};
use serde_json::{Value, json};
use supervisor::wire::accounts::{Account, Accounts, derive};
use supervisor::wire::plan::{LaunchPlan, Process};

use crate::host::Host;
use crate::inside::{END, NO_CONTROL, REFUSED, THROUGH};
use crate::launch::{self, Launching};
use crate::policy;
use crate::raw;
use crate::run::{ACCOUNT, Came, Folder, Run};

/// A group that owns nothing, for what must not be inherited.
pub(crate) const GROUP: u32 = 64330;
/// Where an attack's program lies.
static ATTACKER: OnceLock<String> = OnceLock::new();

/// The folder of the attacker's program: where it was built, an ordinary account may not come.
pub(crate) struct Home(Folder);

impl Home {
    pub(crate) fn new() -> Result<Self, Failed> {
        let home = Folder::new()?;
        chown(&home.0, Some(0), Some(0))?;
        fs::set_permissions(&home.0, fs::Permissions::from_mode(0o755))?;
        let program = home.0.join("attacker");
        fs::copy(std::env::current_exe()?, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        ATTACKER.get_or_init(|| program.display().to_string());
        Ok(Self(home))
    }
}

pub(crate) fn attacker() -> &'static str {
    ATTACKER.get().map_or("", String::as_str)
}

/// What an attack is launched with. All it is given is there for its control too.
pub(crate) struct Stage {
    pub(crate) reading: Vec<String>,
    pub(crate) writing: Vec<String>,
    /// Other keys of the run, by JSON pointer.
    keys: Vec<(String, Value)>,
    given: Vec<(String, String)>,
    /// A shell script in which `$ONCE` launches it; empty: nothing is around it.
    around: String,
    hold: Vec<Box<dyn Any>>,
}

impl Stage {
    /// The ordinary run.
    pub(crate) fn plain() -> Result<Self, Failed> {
        let home = Path::new(attacker()).parent().map(|it| it.display().to_string());
        let reading = home.into_iter().collect();
        Ok(Self {
            reading,
            writing: Vec::new(),
            keys: Vec::new(),
            given: Vec::new(),
            around: String::new(),
            hold: Vec::new(),
        })
    }

    pub(crate) fn reading(mut self, path: &str) -> Self {
        self.reading.push(path.to_owned());
        self
    }

    pub(crate) fn writing(mut self, path: &str) -> Self {
        self.writing.push(path.to_owned());
        self
    }

    pub(crate) fn key(mut self, pointer: &str, value: Value) -> Self {
        self.keys.push((pointer.to_owned(), value));
        self
    }

    pub(crate) fn giving(mut self, name: &str, value: impl ToString) -> Self {
        self.given.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn around(mut self, script: &str) -> Self {
        script.clone_into(&mut self.around);
        self
    }

    /// Keeps something until the launch is over.
    pub(crate) fn holding(mut self, it: impl Any) -> Self {
        self.hold.push(Box::new(it));
        self
    }

    /// The value given by this name.
    pub(crate) fn has(&self, name: &str) -> String {
        self.given.iter().find(|it| it.0 == name).map(|it| it.1.clone()).unwrap_or_default()
    }

    /// As uid 0 inside, with every capability there is but those named.
    pub(crate) fn all_powerful(self, but: &[&str]) -> Self {
        let all: Vec<&str> = crate::capabilities::NAMES.iter().copied().filter(|it| !but.contains(it)).collect();
        self.key("/sandbox/linux_capabilities", json!(all)).key("/sandbox/uid", json!(0)).key("/sandbox/gid", json!(0))
    }

    fn words(&self) -> Vec<String> {
        self.given.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// The run of an attack.
    pub(crate) fn run(&self, name: &str) -> Run {
        let words = self.words();
        let command: Vec<&str> =
            [attacker(), "attack", name].into_iter().chain(words.iter().map(String::as_str)).collect();
        let run = Run::command(&command).reading(&texts(&self.reading)).writing(&texts(&self.writing));
        self.keys.iter().fold(run, |run, (pointer, value)| run.with(pointer, value.clone()))
    }
}

fn texts(of: &[String]) -> Vec<&str> {
    of.iter().map(String::as_str).collect()
}

/// What an attacker said.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) through: Vec<String>,
    pub(crate) refused: Vec<String>,
    /// Why there is no control on this kernel.
    pub(crate) no_control: Option<String>,
    /// It came to its end.
    pub(crate) ended: bool,
    /// What else there is to tell: how it exited, its stderr.
    pub(crate) rest: String,
}

impl Said {
    pub(crate) fn read(out: &str, rest: String) -> Self {
        let mut said = Self { rest, ..Self::default() };
        for line in out.lines() {
            match line.split_once('\t') {
                Some((THROUGH, what)) => said.through.push(what.to_owned()),
                Some((REFUSED, what)) => said.refused.push(what.to_owned()),
                Some((NO_CONTROL, why)) => said.no_control = Some(why.to_owned()),
                _ if line == END => said.ended = true,
                _ => said.rest.push_str(line),
            }
        }
        said
    }
}

fn told(came: &Came) -> Said {
    Said::read(&came.out, format!("exit {}, {}", came.code, came.err))
}

/// Launches an attack as a run.
pub(crate) fn sandbox(stage: &Stage, name: &str) -> Result<Said, Failed> {
    let run = stage.run(name);
    let came = if stage.around.is_empty() { run.run()? } else { run.around(&[], &stage.around)? };
    Ok(told(&came))
}

/// Launches an attack as an ordinary account in namespaces of its own, `kept` of the host's aside.
pub(crate) fn loose(stage: &Stage, name: &str, kept: &str) -> Result<Said, Failed> {
    let mut child = loosened(stage, name, kept)?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    let mut line = String::new();
    out.read_line(&mut line)?;
    let Some(pid) = line.strip_prefix("map ").map(str::trim_end) else {
        let output = child.wait_with_output()?;
        return Err(format!("the control was not set up: {line}{}", String::from_utf8_lossy(&output.stderr)).into());
    };
    for map in ["uid_map", "gid_map"] {
        // Root inside is the account; the next ids own nothing either.
        fs::write(format!("/proc/{pid}/{map}"), format!("0 {ACCOUNT} 1\n1 {} 3\n", ACCOUNT + 1))?;
    }
    child.stdin.take().ok_or("no stdin")?.write_all(b"go\n")?;
    let mut text = String::new();
    out.read_to_string(&mut text)?;
    let output = child.wait_with_output()?;
    Ok(Said::read(&text, format!("{}, {}", output.status, String::from_utf8_lossy(&output.stderr))))
}

fn loosened(stage: &Stage, name: &str, kept: &str) -> Result<std::process::Child, Failed> {
    let mut once =
        format!("setpriv --reuid {ACCOUNT} --regid {ACCOUNT} --groups {GROUP} {} control {name}", attacker());
    for word in stage.words() {
        once.push(' ');
        once.push_str(&word);
    }
    once.push_str(&format!(" kept={kept}"));
    let script = if stage.around.is_empty() { "exec $ONCE" } else { stage.around.as_str() };
    let mut command = Command::new("sh");
    // The tests themselves may be where the account cannot come.
    command.args(["-c", script]).env("ONCE", once).current_dir("/usr");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command.spawn()?)
}

/// `terminal COMMAND...`: runs a command in a session of its own with a terminal of the host.
pub(crate) fn in_a_terminal(words: &[String]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else { return ExitCode::FAILURE };
    if let Err(error) = raw::take_terminal() {
        eprintln!("attacks: no terminal: error {error}");
        return ExitCode::FAILURE;
    }
    match Command::new(program).args(arguments).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// A ROOT of a test's own, with one workspace: for launches that `once` has no form for.
pub(crate) struct Rooted {
    pub(crate) folder: Folder,
    pub(crate) host: Host,
    pub(crate) workspace: String,
}

impl Rooted {
    pub(crate) fn new() -> Result<Self, Failed> {
        Self::with_settings(&[])
    }

    /// With these files under `settings`.
    pub(crate) fn with_settings(settings: &[&str]) -> Result<Self, Failed> {
        let folder = Folder::new()?;
        chown(&folder.0, Some(0), Some(0))?;
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o711))?;
        folder.folder("workspaces", ACCOUNT)?;
        let workspace = folder.folder("workspaces/one", ACCOUNT)?;
        for own in ["settings", "releases", "releases/r1"] {
            folder.folder(own, 0)?;
        }
        for name in settings {
            folder.file(&format!("settings/{name}"), "")?;
        }
        let accounts = Accounts { run: Account { uid: ACCOUNT, gid: ACCOUNT }, ..derive(&folder.0) };
        let releases = folder.0.join("releases");
        let host = Host::look(&folder.0, accounts, &releases, &releases.join("r1"))?;
        Ok(Self { folder, host, workspace })
    }

    /// The plan of what `once` would be asked, in this workspace.
    pub(crate) fn plan(&self, run: &Run) -> Result<LaunchPlan, Failed> {
        let asked = run.json();
        let part = |pointer: &str| asked.pointer(pointer).cloned().unwrap_or(Value::Null);
        let confinement: Confinement = serde_json::from_value(part("/sandbox"))?;
        let command: Vec<String> = serde_json::from_value(part("/process/command"))?;
        let env: BTreeMap<String, String> = serde_json::from_value(part("/process/env"))?;
        let process = Process { command, env, cwd: "/".to_owned(), keep_stderr_bytes: 0, keep_stdout_bytes: 0 };
        let run = "3f2a91c07b".repeat(4);
        let (workspace, sandbox) = (Some(self.workspace.clone()), Some(confinement));
        Ok(LaunchPlan { run, workspace, sandbox, limits: Limits::default(), process })
    }

    /// What it prints on both streams; a launch that is refused or fails is an error in words.
    pub(crate) fn prints(&self, plan: &LaunchPlan) -> Result<Result<String, String>, Failed> {
        let checked = match policy::check(plan, &self.host) {
            Ok(checked) => checked,
            Err(it) => return Ok(Err(format!("refused ({}): {}: {}", it.row, it.field, it.why))),
        };
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let null = || fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        let streams = [null()?, input.try_clone()?, input];
        let cell = match launch::start(checked, streams, None, &self.host) {
            Ok(cell) => cell,
            Err(it) => return Ok(Err(format!("{}: {it}", it.stage()))),
        };
        // A cell that has failed already reads no more; what it said is empty then.
        let _gone = rustix::io::write(&cell.lifeline, &[sandbox::init::GO]);
        let Launching { pidfd, .. } = &cell;
        let mut text = String::new();
        fs::File::from(output).read_to_string(&mut text)?;
        waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?;
        Ok(Ok(text))
    }
}

/// A filter that lets everything through but the one call by which a launch sees that a filter is on: keyctl's first.
fn hardly_a_filter() -> Vec<u8> {
    let keyctl = u32::try_from(libc::SYS_keyctl).unwrap_or(0);
    let steps: [(u16, u8, u8, u32); 6] = [
        (0x20, 0, 0, 0), // the number
        (0x15, 0, 3, keyctl),
        (0x20, 0, 0, 16), // the first argument
        (0x15, 0, 1, 0),
        (0x06, 0, 0, 0x0005_0026), // ENOSYS
        (0x06, 0, 0, 0x7fff_0000), // allowed
    ];
    let bytes =
        |(code, yes, no, k): (u16, u8, u8, u32)| [&code.to_le_bytes()[..], &[yes, no], &k.to_le_bytes()].concat();
    steps.into_iter().flat_map(bytes).collect()
}

/// Launches an attack as a run whose system call filter lets all but everything through.
pub(crate) fn unfiltered(stage: &Stage, name: &str) -> Result<Said, Failed> {
    let mut root = Rooted::new()?;
    root.host.filter = hardly_a_filter();
    launched(&root, stage, name)
}

/// Launches an attack as a run of this ROOT.
pub(crate) fn launched(root: &Rooted, stage: &Stage, name: &str) -> Result<Said, Failed> {
    let plan = root.plan(&stage.run(name))?;
    let text = root.prints(&plan)?.map_err(Failed::from)?;
    Ok(Said::read(&text, String::new()))
}
