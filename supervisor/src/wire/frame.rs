//! Frames: one JSON value and a few descriptors in one SEQPACKET datagram, bounded both ways.
//!
//! Also the sealed memfds in which what does not fit a frame crosses.

use std::fmt;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest frame, in bytes of JSON.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Most descriptors in one frame.
pub const FRAME_DESCRIPTORS_MAX: usize = 4;

/// A frame as it arrived: bytes within bounds, not yet decoded.
#[derive(Debug)]
pub struct Frame {
    /// The JSON text.
    pub bytes: Vec<u8>,
    /// The descriptors carried, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Why a frame could not be sent, received or read.
#[derive(Debug)]
pub enum FrameError {
    /// The other end is gone.
    Closed,
    /// Nothing to read, or no room to write, on a descriptor that does not wait.
    WouldBlock,
    /// The system said no.
    System(rustix::io::Errno),
    /// Larger than [`FRAME_BYTES_MAX`], or with more than [`FRAME_DESCRIPTORS_MAX`] descriptors.
    TooLarge,
    /// Not a value of the type expected: the peer is of another version, or hostile.
    Malformed(String),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the other end is gone"),
            Self::WouldBlock => f.write_str("not ready"),
            Self::System(errno) => write!(f, "{errno}"),
            Self::TooLarge => write!(f, "larger than {FRAME_BYTES_MAX} bytes or {FRAME_DESCRIPTORS_MAX} descriptors"),
            Self::Malformed(why) => write!(f, "malformed: {why}"),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<rustix::io::Errno> for FrameError {
    fn from(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        if errno == Errno::PIPE || errno == Errno::CONNRESET {
            Self::Closed
        } else if errno == Errno::AGAIN {
            Self::WouldBlock
        } else {
            Self::System(errno)
        }
    }
}

/// Sends one value and its descriptors as one frame.
///
/// # Errors
/// [`FrameError::TooLarge`] before anything is sent; otherwise as `sendmsg(2)` fails.
pub fn send<T: Serialize>(socket: BorrowedFd<'_>, value: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), FrameError> {
    let bytes = serde_json::to_vec(value).map_err(|e| FrameError::Malformed(e.to_string()))?;
    if bytes.len() > FRAME_BYTES_MAX || descriptors.len() > FRAME_DESCRIPTORS_MAX {
        return Err(FrameError::TooLarge);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(FrameError::TooLarge);
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one frame.
///
/// # Errors
/// [`FrameError::TooLarge`] when the frame or its descriptors were cut off, [`FrameError::Closed`] at the end of the
/// link; otherwise as `recvmsg(2)` fails. Descriptors of a frame in error are closed.
pub fn receive(socket: BorrowedFd<'_>) -> Result<Frame, FrameError> {
    let mut bytes = vec![0_u8; FRAME_BYTES_MAX];
    // Room for one descriptor more than is allowed, so that one too many is seen as such.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_DESCRIPTORS_MAX + 1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        {
            Ok(message) => break message,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) || descriptors.len() > FRAME_DESCRIPTORS_MAX {
        return Err(FrameError::TooLarge);
    }
    // A SEQPACKET socket has no empty frames of ours: nothing read is the end.
    if message.bytes == 0 {
        return Err(FrameError::Closed);
    }
    bytes.truncate(message.bytes);
    Ok(Frame { bytes, descriptors })
}

/// Reads a frame's bytes as one value, whole.
///
/// # Errors
/// [`FrameError::Malformed`] on an unknown field or kind, a wrong type, or trailing bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(bytes).map_err(|e| FrameError::Malformed(e.to_string()))
}

/// Puts bytes in a memfd that nobody can change any more.
///
/// # Errors
/// As `memfd_create(2)`, `write(2)` and `fcntl(2)` fail.
pub fn seal(name: &str, bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let fd = blank(name)?;
    fill(&fd, bytes)?;
    finish(&fd)?;
    Ok(fd)
}

/// A memfd that is empty and can be sealed: the first part of [`seal`].
///
/// # Errors
/// As `memfd_create(2)` fails.
pub fn blank(name: &str) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
}

/// Writes the whole of a blank memfd; when it cannot it leaves it empty.
///
/// # Errors
/// As `pwrite(2)` fails, for lack of memory above all.
pub fn fill(blank: &OwnedFd, bytes: &[u8]) -> std::io::Result<()> {
    let mut rest = bytes;
    let mut at = 0;
    while !rest.is_empty() {
        match rustix::io::pwrite(blank, rest, at) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                rest = rest.get(count..).unwrap_or_default();
                at += u64::try_from(count).unwrap_or(0);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                rustix::fs::ftruncate(blank, 0)?;
                return Err(errno.into());
            }
        }
    }
    Ok(())
}

/// Seals what was filled: nobody can change it any more.
///
/// # Errors
/// As `fcntl(2)` fails.
pub fn finish(filled: &OwnedFd) -> std::io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(filled, SEALS)?)
}

/// What makes a memfd's bytes its reader's to trust.
const SEALS: SealFlags = SealFlags::from_bits_retain(
    SealFlags::SEAL.bits() | SealFlags::SHRINK.bits() | SealFlags::GROW.bits() | SealFlags::WRITE.bits(),
);

/// Reads a sealed memfd whole; seals and size are checked first (decisions C-113).
///
/// # Errors
/// When it is not a memfd so sealed, is larger than `bytes_max`, or cannot be read.
pub fn read_sealed(fd: &OwnedFd, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let seals = rustix::fs::fcntl_get_seals(fd.as_fd())?;
    if !seals.contains(SEALS) {
        return Err(std::io::Error::other("the descriptor is not a sealed memfd"));
    }
    let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(u64::MAX);
    if size > bytes_max {
        return Err(std::io::Error::other(format!("{size} bytes, more than {bytes_max}")));
    }
    let mut bytes = Vec::new();
    let mut file = File::from(fd.try_clone()?);
    // The offset is shared with whoever wrote it; the size is what was sealed.
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
