//! The supervisor's end of the socketpair: frames in, bounded frames out. Knows no run.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use supervisor::wire::frame::{self, Frame, FrameError};
use supervisor::wire::message::ToNode;

use crate::deadlines::Deadline;
use crate::names::Name;
use crate::requests::Meter;
use crate::turn::Watched;

/// Most frames read in one turn.
pub(crate) const TURN_FRAMES_MAX: usize = 32;
/// Frames waiting to be taken by the node above which no request of it is read.
const QUEUE_READING_MAX: usize = 64;
/// Most frames waiting: every run's `in_care` and its events, and an answer each. Past it the node is ended, since
/// events are never dropped (decisions C-113).
const QUEUE_MAX: usize = 4096;
/// A node that takes nothing for so long is ended.
pub(crate) const STALLED_MAX: Duration = Duration::from_secs(60);

/// A frame on its way to the node.
#[derive(Debug)]
struct Outgoing {
    value: ToNode,
    descriptors: Vec<Rc<OwnedFd>>,
}

/// One link, from the start of a protocol process to its end.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Watched<Name>,
    queue: VecDeque<Outgoing>,
    /// Which link this is: replies to another's requests are not sent on it.
    pub(crate) number: u64,
    /// What came, held against REQUESTS.
    pub(crate) meter: Meter,
    /// Due while frames wait.
    pub(crate) stalled: Option<Deadline>,
}

/// What sending came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Whether the node took at least one frame.
    pub(crate) some: bool,
    /// Whether frames wait.
    pub(crate) waiting: bool,
}

impl Link {
    /// A new link.
    pub(crate) const fn new(socket: Watched<Name>, number: u64, meter: Meter) -> Self {
        Self { socket, queue: VecDeque::new(), number, meter, stalled: None }
    }

    /// Puts a frame in the queue.
    ///
    /// # Errors
    /// When the queue is full.
    pub(crate) fn queue(&mut self, value: ToNode, descriptors: Vec<Rc<OwnedFd>>) -> Result<(), String> {
        if self.queue.len() >= QUEUE_MAX {
            return Err(format!("{QUEUE_MAX} frames wait for the node to take them"));
        }
        self.queue.push_back(Outgoing { value, descriptors });
        Ok(())
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// When the link is gone or broken.
    pub(crate) fn flush(&mut self) -> Result<Sent, FrameError> {
        let mut some = false;
        while let Some(next) = self.queue.front() {
            let descriptors: Vec<BorrowedFd<'_>> = next.descriptors.iter().map(|fd| fd.as_fd()).collect();
            match frame::send(self.socket.as_fd(), &next.value, &descriptors) {
                Ok(()) => {}
                Err(FrameError::WouldBlock) => break,
                Err(error) => return Err(error),
            }
            self.queue.pop_front();
            some = true;
        }
        Ok(Sent { some, waiting: !self.queue.is_empty() })
    }

    /// Whether the node takes its answers well enough for more of its requests to be read.
    pub(crate) fn takes_answers(&self) -> bool {
        self.queue.len() < QUEUE_READING_MAX
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`FrameError::WouldBlock`] when there is none; otherwise as [`frame::receive`].
    pub(crate) fn receive(&self) -> Result<Frame, FrameError> {
        frame::receive(self.socket.as_fd())
    }
}
