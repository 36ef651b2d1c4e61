//! The unprivileged end of the socketpair: requests out, replies and events in.
//!
//! One thread reads; every reply and event becomes a message of the lane it belongs to. Nothing here waits for an answer.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use supervisor::wire::frame::{self, FrameError};
use supervisor::wire::message::{Event, Reply, Request, ToNode, ToSupervisor};

/// How long the first answers of a link may take.
pub const HELLO_WAIT: Duration = Duration::from_secs(60);

/// A reply with the descriptors it carried.
#[derive(Debug)]
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// An event with the descriptors it carried.
#[derive(Debug)]
pub struct Told {
    /// The event.
    pub event: Event,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// What to do with the answer to one request.
type Waiter = Box<dyn FnOnce(Answer) + Send>;

/// The node's end of the link.
pub struct Link {
    socket: OwnedFd,
    waiting: Mutex<Waiting>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Waiting {
    next: u64,
    waiters: BTreeMap<u64, Waiter>,
}

impl Link {
    /// Takes the link over from standard input, which the supervisor made this process's end of the socketpair.
    ///
    /// # Errors
    /// When standard input is no socket.
    pub fn from_stdin() -> std::io::Result<Arc<Self>> {
        let socket = rustix::stdio::stdin().try_clone_to_owned()?;
        if rustix::net::sockopt::socket_type(&socket)? != rustix::net::SocketType::SEQPACKET {
            return Err(std::io::Error::other("standard input is no SEQPACKET socket"));
        }
        Ok(Arc::new(Self { socket, waiting: Mutex::new(Waiting::default()) }))
    }

    /// Sends a request; `then` is called on the reading thread with its answer, and must not wait.
    ///
    /// # Errors
    /// As [`frame::send`] fails; `then` is dropped.
    pub fn ask(
        &self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
        then: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<(), FrameError> {
        let mut waiting = self.lock();
        waiting.next += 1;
        let id = waiting.next;
        // Registered before it is sent: the answer may overtake this thread.
        waiting.waiters.insert(id, Box::new(then));
        drop(waiting);
        let sent = frame::send(self.socket.as_fd(), &ToSupervisor { id, request }, descriptors);
        if sent.is_err() {
            drop(self.lock().waiters.remove(&id));
        }
        sent
    }

    /// Sends a request that has no answer.
    ///
    /// # Errors
    /// As [`frame::send`] fails.
    pub fn tell(&self, request: Request) -> Result<(), FrameError> {
        let mut waiting = self.lock();
        waiting.next += 1;
        let id = waiting.next;
        drop(waiting);
        frame::send(self.socket.as_fd(), &ToSupervisor { id, request }, &[])
    }

    /// Sends a request and waits for its answer, `bound` at most. For start-up and the porter: a lane never waits.
    ///
    /// # Errors
    /// When it cannot be sent or no answer comes in time.
    pub fn ask_and_wait(&self, request: Request, bound: Duration) -> Result<Answer, String> {
        let (sender, receiver): (Sender<Answer>, Receiver<Answer>) = channel();
        self.ask(request, &[], move |answer| {
            // Nobody waits any more: the answer came too late to matter.
            drop(sender.send(answer));
        })
        .map_err(|e| e.to_string())?;
        receiver.recv_timeout(bound).map_err(|_late| format!("no answer in {} s", bound.as_secs()))
    }

    /// Reads frames until the link ends, handing events to `tell`.
    ///
    /// # Errors
    /// Never returns without one: the end of the link, or a frame that is none.
    pub fn read(&self, mut tell: impl FnMut(Told)) -> FrameError {
        loop {
            let frame = match frame::receive(self.socket.as_fd()) {
                Ok(frame) => frame,
                Err(FrameError::WouldBlock) => {
                    let mut fds = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
                    // A failed poll shows as a failed receive the next time round.
                    if let Err(errno) = rustix::event::poll(&mut fds, None)
                        && errno != rustix::io::Errno::INTR
                    {
                        return errno.into();
                    }
                    continue;
                }
                Err(error) => return error,
            };
            match frame::decode::<ToNode>(&frame.bytes) {
                Ok(ToNode::Reply { id, reply }) => {
                    let waiter = self.lock().waiters.remove(&id);
                    if let Some(waiter) = waiter {
                        waiter(Answer { reply, descriptors: frame.descriptors });
                    }
                }
                Ok(ToNode::Event(event)) => tell(Told { event, descriptors: frame.descriptors }),
                Err(error) => return error,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
