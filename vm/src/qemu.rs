//! One guest: started, listened to line by line, and ended when a wait is over.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::image::Tools;
use crate::verdict::Stopped;
use crate::words::{Job, Said};

/// From QEMU's start to the init's first words. Seconds alone; a machine that does three things at once takes longer.
const BOOT_WAIT: Duration = Duration::from_secs(180);
/// Beside a job's own bound, which the guest keeps: when this is over too, the guest itself hangs.
const JOB_GRACE: Duration = Duration::from_secs(60);
/// From the verdict to the end of QEMU.
const POWER_OFF_WAIT: Duration = Duration::from_secs(60);
/// A console line longer than this is cut in two.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// Lines that wait to be looked at; a guest that says more is held up meanwhile.
const LINES_WAITING_MAX: usize = 1024;
/// Lines kept to be judged; of a guest that says more, the first are enough to show it.
const LINES_MAX: usize = 400_000;
/// A guest's memory.
const MEMORY: &str = "2G";
/// A guest's processors.
pub(crate) const PROCESSORS: &str = "2";

/// What is started.
pub(crate) struct Guest<'a> {
    /// `x86_64` or `aarch64`.
    pub(crate) arch: &'a str,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: PathBuf,
    pub(crate) root: &'a Path,
    pub(crate) programs: PathBuf,
    /// Beside our own few, on the kernel's command line.
    pub(crate) append: &'a str,
}

impl Guest<'_> {
    /// Whether this machine's own processor can run it.
    pub(crate) fn kvm(&self) -> bool {
        self.arch == std::env::consts::ARCH && File::options().read(true).write(true).open("/dev/kvm").is_ok()
    }

    fn command(&self, tools: &Tools) -> Result<Command, String> {
        let (machine, console, emulated) = match self.arch {
            "x86_64" => ("q35", "ttyS0", "max"),
            // The architected way to sign pointers is most of what emulation then does.
            "aarch64" => ("virt,gic-version=3", "ttyAMA0", "max,pauth-impdef=on"),
            other => return Err(format!("no machine is known for {other}")),
        };
        let (accelerator, processor) = if self.kvm() { ("kvm", "host") } else { ("tcg,thread=multi", emulated) };
        let mut qemu = tools.qemu(self.arch)?;
        qemu.args(["-machine", machine, "-accel", accelerator, "-cpu", processor, "-m", MEMORY, "-smp", PROCESSORS]);
        // No network at all, no window; a guest that reboots (after a panic: at once) is over.
        qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none"]);
        qemu.arg("-kernel").arg(self.kernel).arg("-initrd").arg(&self.initramfs);
        qemu.args(["-append", &format!("console={console} loglevel=5 panic=-1 {}", self.append)]);
        for (image, how) in [(self.root, "snapshot=on"), (self.programs.as_path(), "readonly=on")] {
            let drive = format!(
                "file={},format=raw,if=virtio,cache=unsafe,{how}",
                image.display().to_string().replace(',', ",,")
            );
            qemu.args(["-drive", &drive]);
        }
        Ok(qemu)
    }

    /// A person's console, until the guest is over.
    ///
    /// # Errors
    /// QEMU could not run.
    pub(crate) fn shell(&self, tools: &Tools) -> Result<(), String> {
        let status = self.command(tools)?.args(["-serial", "mon:stdio"]).status().map_err(|e| format!("QEMU: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("QEMU: {status}")) }
    }

    /// Runs it to its end or to the end of a wait; every line is given to `hear` as it comes.
    ///
    /// # Errors
    /// QEMU could not be started.
    pub(crate) fn run(
        &self,
        tools: &Tools,
        jobs: &[Job],
        mut hear: impl FnMut(&str),
    ) -> Result<(Vec<String>, Stopped), String> {
        let mut child = self
            .command(tools)?
            .args(["-serial", "stdio"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("QEMU: {e}"))?;
        let stdout = child.stdout.take().ok_or("QEMU: no console")?;
        let (sender, lines) = sync_channel(LINES_WAITING_MAX);
        std::thread::spawn(move || read_lines(stdout, &sender));
        let listened = listen(&lines, jobs, &mut hear);
        // The reader is let go before QEMU is waited for: it may be held up by a full queue.
        drop(lines);
        let (kept, bound) = listened;
        let stopped = finish(&mut child, bound)?;
        Ok((kept, stopped))
    }
}

fn read_lines(console: impl std::io::Read, sender: &SyncSender<String>) {
    let mut console = BufReader::new(console);
    let mut line = Vec::new();
    loop {
        line.clear();
        match console.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        }
    }
}

/// Hears lines until the console closes (`None`) or the wait that is on is over (its name and bound).
fn listen(
    lines: &Receiver<String>,
    jobs: &[Job],
    hear: &mut impl FnMut(&str),
) -> (Vec<String>, Option<(String, Duration)>) {
    let mut kept = Vec::new();
    let mut wait = (String::from("the boot"), BOOT_WAIT);
    let mut end = Instant::now() + wait.1;
    loop {
        let line = match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return (kept, None),
            Err(RecvTimeoutError::Timeout) => return (kept, Some(wait)),
        };
        hear(&line);
        if let Some(next) = Said::read(&line).and_then(|said| wait_after(&said, jobs)) {
            end = Instant::now() + next.1;
            wait = next;
        }
        if kept.len() < LINES_MAX {
            kept.push(line);
        }
    }
}

/// The wait that begins with what the init said.
fn wait_after(said: &Said, jobs: &[Job]) -> Option<(String, Duration)> {
    match said {
        Said::Start { name } => {
            let seconds = jobs.iter().find(|job| job.name == *name).map_or(0, |job| job.seconds);
            Some((format!("{name} in a guest that keeps no bound"), Duration::from_secs(seconds) + JOB_GRACE))
        }
        Said::Up { .. } | Said::End { .. } => Some((String::from("the next job"), JOB_GRACE)),
        Said::Verdict { .. } | Said::Trouble { .. } => Some((String::from("the power off"), POWER_OFF_WAIT)),
    }
}

/// Ends QEMU if a wait was over, and says how it ended.
fn finish(child: &mut Child, bound: Option<(String, Duration)>) -> Result<Stopped, String> {
    if let Some((wait, bound)) = bound {
        child.kill().map_err(|e| format!("QEMU: {e}"))?;
        child.wait().map_err(|e| format!("QEMU: {e}"))?;
        return Ok(Stopped::Bound { wait, seconds: bound.as_secs() });
    }
    let status = child.wait().map_err(|e| format!("QEMU: {e}"))?;
    Ok(if status.success() { Stopped::Ended } else { Stopped::Qemu(format!("{status}; its words stand above")) })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn each_thing_said_begins_the_wait_for_the_next() {
        let jobs = [Job { name: String::from("link"), seconds: 100, exit: 0, words: Vec::new() }];
        let name = String::from("link");
        let (wait, bound) = wait_after(&Said::Start { name }, &jobs).unwrap();
        assert!(wait.starts_with("link"));
        assert_eq!(bound, Duration::from_secs(160));
        let (wait, _) = wait_after(&Said::Verdict { good: 1, bad: 0 }, &jobs).unwrap();
        assert_eq!(wait, "the power off");
    }

    #[test]
    fn a_console_that_closes_is_no_bound_and_every_line_is_heard() {
        let (sender, lines) = sync_channel(8);
        read_lines(&b"one\r\ntwo\nthree"[..], &sender);
        drop(sender);
        let mut heard = Vec::new();
        let (kept, bound) = listen(&lines, &[], &mut |line| heard.push(line.to_owned()));
        assert_eq!(bound, None);
        assert_eq!(kept, ["one", "two", "three"]);
        assert_eq!(heard, kept);
    }
}
