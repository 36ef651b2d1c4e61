//! The host's network, and other ways to speak to what runs there.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

use libtest_mimic::Failed;

use crate::inside::{Given, Got};
use crate::outside::Stage;
use crate::raw::{self, pointer, pointer_mut, text};
use crate::table::{Attack, Control, attack};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("network::a_service_of_the_host", "network-false", service).staged(serving).control(Control::Asked(shared)),
    attack("network::an_abstract_socket_of_the_host", "network-false", abstract_sockets)
        .staged(abstractly)
        .control(Control::LooseKeeping("net")),
    attack("network::an_abstract_socket_with_network", "network-true", abstract_sockets)
        .staged(abstractly_shared)
        .control(Control::LooseKeeping("net")),
    attack("network::the_hosts_network_is_changed", "network-true", changed).staged(with_network),
    attack("network::ipc_of_the_host", "runs-apart", ipc).staged(with_ipc).control(Control::LooseKeeping("ipc")),
    attack("network::ipc_of_the_host_with_network", "runs-apart", ipc)
        .staged(with_ipc_and_network)
        .control(Control::LooseKeeping("ipc")),
];

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("ocx-attack-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn with_network() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.key("/sandbox/network", true.into()))
}

fn shared(stage: Stage) -> Stage {
    stage.key("/sandbox/network", true.into())
}

fn serving() -> Result<Stage, Failed> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(Stage::plain()?.giving("port", listener.local_addr()?.port()).holding(listener))
}

fn service(given: &Given, got: &mut Got) {
    let port = u16::try_from(given.number("port")).unwrap_or(0);
    got.tried("on loopback", &TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
    got.tried("on another address of loopback", &TcpStream::connect((Ipv4Addr::new(0, 0, 0, 0), port)));
}

fn abstractly() -> Result<Stage, Failed> {
    let name = unique();
    let stream = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let datagram = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("{name}-d"))?)?;
    Ok(Stage::plain()?.giving("name", name).holding((stream, datagram)))
}

fn abstractly_shared() -> Result<Stage, Failed> {
    Ok(shared(abstractly()?))
}

fn abstract_sockets(given: &Given, got: &mut Got) {
    let name = given.text("name");
    let stream = SocketAddr::from_abstract_name(name).and_then(|it| UnixStream::connect_addr(&it));
    got.tried("connected", &stream);
    let to = SocketAddr::from_abstract_name(format!("{name}-d"));
    let socket = UnixDatagram::unbound();
    let sent = socket.and_then(|it| it.send_to_addr(b"x", &to?).map(drop));
    got.tried("sent to", &sent);
    let to = SocketAddr::from_abstract_name(format!("{name}-d"));
    got.tried("connected without a stream", &UnixDatagram::unbound().and_then(|it| it.connect_addr(&to?)));
}

/// Nothing here would change anything, were it let through: `lo` is up already.
fn changed(_: &Given, got: &mut Got) {
    got.tried("lo brought up", &sandbox::sys::loopback_up());
    for (what, family, kind, protocol) in [("raw ICMP", 2, 3, 1), ("raw IP", 2, 3, 255)] {
        got.call(what, &raw::raw(libc::SYS_socket, [family, kind, protocol, 0, 0, 0]));
    }
    // An address of loopback that it has already, put by a route message.
    got.call("an address", &address_put());
}

fn address_put() -> Result<i64, i32> {
    let socket = raw::raw(libc::SYS_socket, [16, 3, 0, 0, 0, 0])?.cast_unsigned();
    // struct nlmsghdr, ifaddrmsg, then IFA_LOCAL 127.0.0.1: RTM_NEWADDR, REQUEST | ACK | CREATE.
    let mut message = Vec::new();
    message.extend_from_slice(&32_u32.to_ne_bytes());
    message.extend_from_slice(&20_u16.to_ne_bytes());
    message.extend_from_slice(&0x405_u16.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[2, 32, 0, 254]);
    message.extend_from_slice(&1_u32.to_ne_bytes());
    message.extend_from_slice(&8_u16.to_ne_bytes());
    message.extend_from_slice(&2_u16.to_ne_bytes());
    message.extend_from_slice(&[127, 0, 0, 2]);
    let length = u64::try_from(message.len()).unwrap_or(0);
    raw::raw(libc::SYS_sendto, [socket, pointer(message.as_slice()), length, 0, 0, 0])?;
    let mut answer = [0_u8; 256];
    let count = raw::raw(libc::SYS_recvfrom, [socket, pointer_mut(&mut answer), 256, 0, 0, 0])?;
    // NLMSG_ERROR: a number after the header, 0 for done, else an error's negative.
    let error = answer.get(16..20).and_then(|it| it.try_into().ok()).map_or(i32::MIN, i32::from_ne_bytes);
    if count >= 20 && error == 0 { Ok(0) } else { Err(-error) }
}

/// Of the test's own on the host, open to anybody; gone with the value.
struct Ipc {
    shm: u64,
    queue: u64,
    semaphore: u64,
    posix: std::ffi::CString,
}

impl Ipc {
    fn new(key: u64) -> Result<Self, Failed> {
        let failed = |error: i32| Failed::from(format!("ipc: error {error}"));
        let posix = std::ffi::CString::new(unique())?;
        let flags = 0o1000 | 0o666; // IPC_CREAT
        let ids = [
            raw::raw(libc::SYS_shmget, [key, 4096, flags, 0, 0, 0]),
            raw::raw(libc::SYS_msgget, [key, flags, 0, 0, 0, 0]),
            raw::raw(libc::SYS_semget, [key, 1, flags, 0, 0, 0]),
        ];
        let create = u64::from((libc::O_CREAT | libc::O_RDWR).unsigned_abs());
        let opened = raw::raw(libc::SYS_mq_open, [text(&posix), create, 0o666, 0, 0, 0]);
        let [shm, queue, semaphore] = ids.map(|it| it.map(i64::cast_unsigned));
        let made = Self {
            shm: shm.map_err(failed)?,
            queue: queue.map_err(failed)?,
            semaphore: semaphore.map_err(failed)?,
            posix,
        };
        let fd = opened.map_err(failed)?.cast_unsigned();
        raw::raw(libc::SYS_close, [fd, 0, 0, 0, 0, 0]).map_err(failed)?;
        // Its mode went through the umask.
        Ok(made)
    }
}

impl Drop for Ipc {
    fn drop(&mut self) {
        // IPC_RMID is 0 to each; what fails here is gone already.
        let _gone = raw::raw(libc::SYS_shmctl, [self.shm, 0, 0, 0, 0, 0]);
        let _gone = raw::raw(libc::SYS_msgctl, [self.queue, 0, 0, 0, 0, 0]);
        let _gone = raw::raw(libc::SYS_semctl, [self.semaphore, 0, 0, 0, 0, 0]);
        let _gone = raw::raw(libc::SYS_mq_unlink, [text(&self.posix), 0, 0, 0, 0, 0]);
    }
}

fn with_ipc() -> Result<Stage, Failed> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Of this process alone: another's tests may run at the same time.
    let key = 0x4000_0000 | (u64::from(std::process::id()) << 6) | u64::from(COUNT.fetch_add(1, Ordering::Relaxed));
    let ipc = Ipc::new(key)?;
    Ok(Stage::plain()?.giving("key", key).giving("queue", ipc.posix.to_string_lossy()).holding(ipc))
}

fn with_ipc_and_network() -> Result<Stage, Failed> {
    Ok(shared(with_ipc()?))
}

fn ipc(given: &Given, got: &mut Got) {
    let key = given.number("key");
    let shm = raw::raw(libc::SYS_shmget, [key, 0, 0, 0, 0, 0]);
    got.call("shared memory", &shm);
    got.call("a message queue", &raw::raw(libc::SYS_msgget, [key, 0, 0, 0, 0, 0]));
    got.call("a semaphore", &raw::raw(libc::SYS_semget, [key, 0, 0, 0, 0, 0]));
    let posix = std::ffi::CString::new(given.text("queue")).unwrap_or_default();
    got.call("a POSIX queue", &raw::raw(libc::SYS_mq_open, [text(&posix), 0, 0, 0, 0, 0]));
}
