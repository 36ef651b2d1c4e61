//! The kept ends of a run's streams as memfds nobody can change. Their descriptors are made before the launch, and what
//! cannot be kept for lack of memory is told in the kept STDERR itself: an end is told in any case.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use supervisor::wire::frame;

/// The two memfds, empty.
#[derive(Debug)]
pub(crate) struct Blank {
    stderr: OwnedFd,
    stdout: OwnedFd,
}

/// The two memfds, sealed.
#[derive(Debug)]
pub(crate) struct Tails {
    /// STDERR's.
    pub(crate) stderr: Rc<OwnedFd>,
    /// STDOUT's.
    pub(crate) stdout: Rc<OwnedFd>,
    /// What could not be kept and why.
    pub(crate) lost: Option<String>,
}

impl Blank {
    /// Makes both.
    ///
    /// # Errors
    /// As `memfd_create(2)` has them.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { stderr: frame::blank("ocx-stderr")?, stdout: frame::blank("ocx-stdout")? })
    }

    /// Fills and seals both.
    pub(crate) fn seal(self, stderr: &[u8], stdout: &[u8]) -> Tails {
        let mut lost = String::new();
        if let Err(error) = frame::fill(&self.stdout, stdout) {
            lost.push_str(&format!("ocx: the kept end of STDOUT is lost: {error}\n"));
        }
        if let Err(error) = frame::fill(&self.stderr, &[stderr, lost.as_bytes()].concat()) {
            lost.push_str(&format!("ocx: the kept end of STDERR is lost: {error}\n"));
            // No room for a line is no room to tell in; the log has it.
            let _untold = frame::fill(&self.stderr, lost.as_bytes());
        }
        for fd in [&self.stderr, &self.stdout] {
            if let Err(error) = frame::finish(fd) {
                lost.push_str(&format!("ocx: a kept end cannot be sealed: {error}\n"));
            }
        }
        let lost = (!lost.is_empty()).then(|| lost.trim_end().replace('\n', "; "));
        Tails { stderr: Rc::new(self.stderr), stdout: Rc::new(self.stdout), lost }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use rustix::fs::{SealFlags, fcntl_add_seals};

    use super::*;

    fn read(tails: &Tails) -> (String, String) {
        let text = |fd: &OwnedFd| String::from_utf8(frame::read_sealed(fd, 1000).unwrap()).unwrap();
        (text(&tails.stderr), text(&tails.stdout))
    }

    #[test]
    fn what_is_kept_is_sealed_and_nothing_is_lost() {
        let tails = Blank::new().unwrap().seal(b"err", b"out");
        assert_eq!((read(&tails), tails.lost), (("err".to_owned(), "out".to_owned()), None));
    }

    #[test]
    fn c_87_an_end_that_cannot_be_kept_is_told_where_it_would_have_been() {
        // A memfd that may not grow has no room, as one of a host without memory.
        let full = |fd: &OwnedFd| fcntl_add_seals(fd, SealFlags::GROW).unwrap();
        let blank = Blank::new().unwrap();
        full(&blank.stdout);
        let tails = blank.seal(b"err\n", b"out");
        assert_eq!(read(&tails).1, "");
        assert!(read(&tails).0.starts_with("err\nocx: the kept end of STDOUT is lost: "), "{tails:?}");
        // Nowhere to tell it but the log: the end is told all the same.
        let blank = Blank::new().unwrap();
        full(&blank.stdout);
        full(&blank.stderr);
        let tails = blank.seal(b"err", b"out");
        assert_eq!(read(&tails), (String::new(), String::new()));
        let lost = tails.lost.unwrap();
        assert!(lost.contains("STDOUT is lost") && lost.contains("STDERR is lost"), "{lost}");
    }
}
