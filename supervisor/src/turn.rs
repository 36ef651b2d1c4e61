//! The loop's sources: descriptors by name, one turn at a time. Knows no run; `Name` says what a descriptor is for.
//!
//! mio is edge-triggered: who is told that a source is ready reads until it would wait, or says `again` and is told in
//! the next turn too, so that work per turn is bounded and no source starves another.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::deadlines::BootTime;

/// Most readiness reports taken from the kernel in one turn; the rest come in the next.
const READY_MAX: usize = 256;

/// What is watched, and by which name. Tokens are never used twice: a report fetched for a source that is closed by the
/// time it is looked at finds no one.
#[derive(Debug)]
pub(crate) struct Sources<Name> {
    registry: Registry,
    names: RefCell<BTreeMap<Token, Name>>,
    next: Cell<usize>,
    again: RefCell<BTreeSet<Name>>,
}

/// A descriptor the loop watches. Dropping it ends the watch, then closes it.
#[derive(Debug)]
pub(crate) struct Watched<Name: Copy + Ord> {
    fd: OwnedFd,
    token: Token,
    sources: Rc<Sources<Name>>,
}

impl<Name: Copy + Ord> Sources<Name> {
    /// Watches a descriptor that does not wait.
    ///
    /// # Errors
    /// As `epoll_ctl(2)` fails.
    pub(crate) fn watch(self: &Rc<Self>, fd: OwnedFd, name: Name, interest: Interest) -> io::Result<Watched<Name>> {
        let token = Token(self.next.get());
        self.next.set(token.0 + 1);
        self.registry.register(&mut SourceFd(&fd.as_raw_fd()), token, interest)?;
        self.names.borrow_mut().insert(token, name);
        Ok(Watched { fd, token, sources: Rc::clone(self) })
    }

    /// Reports `name` ready in the next turn without asking the kernel.
    pub(crate) fn again(&self, name: Name) {
        self.again.borrow_mut().insert(name);
    }
}

impl<Name: Copy + Ord> Drop for Watched<Name> {
    fn drop(&mut self) {
        // A descriptor of a file that cannot be watched any more is not watched: nothing else can be wrong here.
        drop(self.sources.registry.deregister(&mut SourceFd(&self.fd.as_raw_fd())));
        self.sources.names.borrow_mut().remove(&self.token);
    }
}

impl<Name: Copy + Ord> AsFd for Watched<Name> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The poll, and the one timer, on the clock that cannot be set.
#[derive(Debug)]
pub(crate) struct Turn<Name: Copy + Ord> {
    poll: Poll,
    events: Events,
    timer: OwnedFd,
    timer_name: Name,
    sources: Rc<Sources<Name>>,
}

impl<Name: Copy + Ord> Turn<Name> {
    /// A poll that reports the timer as `timer_name`.
    ///
    /// # Errors
    /// As `epoll_create(2)` and `timerfd_create(2)` fail.
    pub(crate) fn new(timer_name: Name) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let sources = Sources { registry, names: RefCell::default(), next: Cell::new(1), again: RefCell::default() };
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), Token(0), Interest::READABLE)?;
        Ok(Self { poll, events: Events::with_capacity(READY_MAX), timer, timer_name, sources: Rc::new(sources) })
    }

    /// Where sources are added.
    #[must_use]
    pub(crate) const fn sources(&self) -> &Rc<Sources<Name>> {
        &self.sources
    }

    /// Waits until a source is ready or `until` has come, and gives the names of what is ready, each once, in `Name`'s
    /// order: what is to be met first within one wake comes first.
    ///
    /// # Errors
    /// As `epoll_wait(2)` and `timerfd_settime(2)` fail.
    pub(crate) fn wait(&mut self, until: Option<BootTime>) -> io::Result<BTreeSet<Name>> {
        self.arm(until)?;
        let mut ready = std::mem::take(&mut *self.sources.again.borrow_mut());
        let wait = (!ready.is_empty()).then_some(std::time::Duration::ZERO);
        match self.poll.poll(&mut self.events, wait) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        let names = self.sources.names.borrow();
        for event in &self.events {
            if event.token() == Token(0) {
                ready.insert(self.timer_name);
            } else if let Some(name) = names.get(&event.token()) {
                ready.insert(*name);
            }
        }
        Ok(ready)
    }

    /// Sets the timer anew each turn: setting it also takes back what it has reported.
    fn arm(&self, until: Option<BootTime>) -> io::Result<()> {
        // Zero would disarm it: what was due at boot is due at the first nanosecond.
        let at =
            until.map_or(std::time::Duration::ZERO, |until| until.since_boot().max(std::time::Duration::from_nanos(1)));
        let value =
            Timespec { tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(at.subsec_nanos()) };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let new = Itimerspec { it_interval: never, it_value: value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &new)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::time::Duration;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn ready(turn: &mut Turn<&'static str>) -> Vec<&'static str> {
        let soon = BootTime::now().after(Duration::from_millis(20));
        turn.wait(Some(soon)).unwrap().into_iter().collect()
    }

    #[test]
    fn what_is_ready_is_named_once_and_in_order_and_a_source_that_is_gone_finds_no_one() {
        let mut turn = Turn::new("timer").unwrap();
        let pipe = || pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let ((b, to_b), (a, to_a)) = (pipe(), pipe());
        let b = turn.sources().watch(b, "b", Interest::READABLE).unwrap();
        let _a = turn.sources().watch(a, "a", Interest::READABLE).unwrap();
        rustix::io::write(&to_b, b"x").unwrap();
        rustix::io::write(&to_a, b"x").unwrap();
        assert_eq!(ready(&mut turn), ["a", "b"]);
        // Edge-triggered: unread, it is not told again, unless it is asked for.
        assert_eq!(ready(&mut turn), ["timer"]);
        turn.sources().again("b");
        assert_eq!(ready(&mut turn), ["b"]);
        rustix::io::write(&to_b, b"x").unwrap();
        drop(b);
        assert_eq!(ready(&mut turn), ["timer"]);
    }

    #[test]
    fn a_moment_that_has_passed_is_reported_at_once_and_none_never() {
        let mut turn = Turn::new("timer").unwrap();
        let boot = BootTime::from_boot(Duration::ZERO);
        assert_eq!(turn.wait(Some(boot)).unwrap().into_iter().collect::<Vec<_>>(), ["timer"]);
        turn.sources().again("x");
        assert_eq!(turn.wait(None).unwrap().into_iter().collect::<Vec<_>>(), ["x"]);
    }
}
