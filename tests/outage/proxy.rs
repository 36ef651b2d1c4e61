//! A proxy before a real Fossil server that spoils the requests a test chooses: it answers them wrongly, half, slowly or
//! not at all, whether or not the server has carried them out.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two looks at a socket or a switch.
const LOOK: Duration = Duration::from_millis(5);
/// Longest that one exchange is kept, in a test that goes wrong.
const EXCHANGE_MAX: Duration = Duration::from_secs(600);

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Started,
    Ended,
    Log,
    /// The reply to a stop that stands elsewhere than its run.
    Misplaced,
    /// Any other page that writes.
    Write,
    /// The receipt tool, asked for its highest number: a pull begins.
    High,
    Receipt,
    Chat,
    /// A round of Fossil's own synchronization.
    Pull,
    Other,
}

impl Kind {
    fn of(head: &str, body: &str) -> Self {
        let line = head.lines().next().unwrap_or_default();
        let has = |what: &str| body.contains(what);
        match line.split(' ').nth(1).and_then(|path| path.split('?').next()).unwrap_or_default() {
            "/forume1" | "/forume2" | "/tktnew" | "/tktedit" => match () {
                () if has("%22started%22%3A") => Self::Started,
                () if has("%22ended%22%3A") => Self::Ended,
                () if has("%60%60%60stdout") => Self::Log,
                () if has("Nothing%20was%20done") => Self::Misplaced,
                () => Self::Write,
            },
            "/ext/ocx/receipt" if has("\"high\":true") => Self::High,
            "/ext/ocx/receipt" => Self::Receipt,
            "/chat-poll" => Self::Chat,
            _ if head.to_ascii_lowercase().contains("application/x-fossil") => Self::Pull,
            _ => Self::Other,
        }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server never sees it, and nobody answers.
    Silent,
    /// The server carries it out, and nobody answers.
    Swallowed,
    /// The server carries it out, and the answer ends in the middle of its head.
    CutInHead,
    /// The server carries it out, and the answer ends in the middle of its body.
    CutInBody,
    /// The server carries it out, and its answer comes a byte a second.
    Trickle,
    /// The server carries it out, and this stands in its answer's place.
    Instead(Page),
    /// The server never sees it, and this is answered.
    Says(Page),
}

impl Fault {
    /// Whether the server carries the request out.
    pub(crate) const fn reaches(self) -> bool {
        match self {
            Self::Silent | Self::Says(_) => false,
            Self::Swallowed | Self::CutInHead | Self::CutInBody | Self::Trickle | Self::Instead(_) => true,
        }
    }
}

/// A whole answer: the status, more of its head, the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page(pub(crate) &'static str, pub(crate) &'static str, pub(crate) &'static str);

impl Page {
    fn bytes(self) -> Vec<u8> {
        let Self(status, head, body) = self;
        format!(
            "HTTP/1.0 {status}\r\n{head}Content-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// One request that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Came {
    pub(crate) kind: Kind,
    pub(crate) at: Instant,
    /// When the client had its answer, or was gone.
    pub(crate) over: Option<Instant>,
    /// Whether the server was asked.
    pub(crate) reached: bool,
}

#[derive(Debug, Default)]
struct Shared {
    server: AtomicU16,
    open: AtomicBool,
    ended: AtomicBool,
    faults: Mutex<BTreeMap<Kind, Fault>>,
    /// Whether a post that is spoiled keeps pulls from beginning.
    deafens: AtomicBool,
    /// Whether one does now.
    deaf: AtomicBool,
    came: Mutex<Vec<Came>>,
}

/// The proxy; its threads end with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Before the server at this port, with nothing spoiled.
    pub(crate) fn before(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        shared.server.store(server, Ordering::SeqCst);
        shared.open.store(true, Ordering::SeqCst);
        let threads = Arc::clone(&shared);
        std::thread::spawn(move || listen(listener, port, &threads));
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Spoils every request of this kind from now on.
    pub(crate) fn spoil(&self, kind: Kind, fault: Fault) {
        self.shared.faults.lock().unwrap().insert(kind, fault);
    }

    /// Requests of this kind go through again; and pulls do, if they were kept back since one was spoiled.
    pub(crate) fn mend(&self, kind: Kind) {
        self.shared.faults.lock().unwrap().remove(&kind);
        self.shared.deaf.store(false, Ordering::SeqCst);
    }

    /// After the next post that is spoiled no pull can begin until something is mended: what became of it stays unknown.
    pub(crate) fn deafen(&self) {
        self.shared.deafens.store(true, Ordering::SeqCst);
    }

    /// Refuses connections.
    pub(crate) fn close(&self) {
        self.shared.open.store(false, Ordering::SeqCst);
        // Only once a connection is refused has the listener gone.
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
            std::thread::sleep(LOOK);
        }
    }

    /// Takes connections again.
    pub(crate) fn open(&self) {
        self.shared.open.store(true, Ordering::SeqCst);
    }

    /// The requests of this kind that came, in order.
    pub(crate) fn came(&self, kind: Kind) -> Vec<Came> {
        self.shared.came.lock().unwrap().iter().filter(|it| it.kind == kind).copied().collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }
}

fn listen(first: TcpListener, port: u16, shared: &Arc<Shared>) {
    let mut listener = Some(first);
    while !shared.ended.load(Ordering::SeqCst) {
        let open = shared.open.load(Ordering::SeqCst);
        match &listener {
            Some(_) if !open => listener = None,
            Some(listener) => {
                listener.set_nonblocking(true).unwrap();
                if let Ok((client, _)) = listener.accept() {
                    let shared = Arc::clone(shared);
                    client.set_nonblocking(false).unwrap();
                    std::thread::spawn(move || exchange(client, &shared));
                    continue;
                }
            }
            None if open => listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok(),
            None => {}
        }
        std::thread::sleep(LOOK);
    }
}

fn exchange(mut client: TcpStream, shared: &Shared) {
    let Some((head, body)) = request(&mut client) else { return };
    let kind = Kind::of(&head, &body);
    let fault = {
        let deaf = matches!(kind, Kind::High | Kind::Pull) && shared.deaf.load(Ordering::SeqCst);
        let fault = shared.faults.lock().unwrap().get(&kind).copied();
        if deaf { Some(Fault::Says(Page("503 Service Unavailable", "", "deaf"))) } else { fault }
    };
    if fault.is_some() && kind <= Kind::Write && shared.deafens.load(Ordering::SeqCst) {
        shared.deaf.store(true, Ordering::SeqCst);
        // A pull under way would bring what this stores.
        let pulls = || shared.came.lock().unwrap().iter().any(|it| it.kind == Kind::Pull && it.over.is_none());
        while pulls() {
            std::thread::sleep(LOOK);
        }
    }
    let reached = fault.is_none_or(Fault::reaches);
    let number = {
        let mut came = shared.came.lock().unwrap();
        came.push(Came { kind, at: Instant::now(), over: None, reached });
        came.len() - 1
    };
    let server = shared.server.load(Ordering::SeqCst);
    let answer = match fault {
        None => ask(server, &client, &head, &body),
        Some(fault) if fault.reaches() => loop {
            // Another may be writing just then, which is said in 400 or 500: what is to be stored is stored.
            let answer = ask(server, &client, &head, &body);
            let status = answer.as_ref().and_then(|it| it.get(9..12)).unwrap_or_default();
            if kind > Kind::Write || !matches!(status, b"400" | b"500") {
                break answer;
            }
        },
        Some(_) => Some(Vec::new()),
    };
    // A server that is not there is no answer.
    if let Some(answer) = answer {
        match fault {
            None => drop(client.write_all(&answer)),
            Some(Fault::Silent | Fault::Swallowed) => wait_for_its_end(&client),
            Some(Fault::CutInHead) => drop(client.write_all(&answer[..answer.len().min(24)])),
            Some(Fault::CutInBody) => drop(client.write_all(&half(&answer))),
            Some(Fault::Trickle) => trickle(&mut client, &answer),
            Some(Fault::Instead(page) | Fault::Says(page)) => drop(client.write_all(&page.bytes())),
        }
    }
    shared.came.lock().unwrap()[number].over = Some(Instant::now());
}

/// Head and body of a request; nothing when the client sent none.
fn request(client: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    client.set_read_timeout(Some(EXCHANGE_MAX)).unwrap();
    loop {
        if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:").and_then(|it| it.trim().parse::<usize>().ok())
            });
            if bytes.len() >= at + 4 + length.unwrap_or(0) {
                // Bodies that are no text are only passed on: each byte as the character of its number.
                let body = bytes[at + 4..].iter().map(|byte| char::from(*byte)).collect();
                return Some((head, body));
            }
        }
        match client.read(&mut buffer) {
            Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
            Ok(_) | Err(_) => return None,
        }
    }
}

/// The server's whole answer, unless the client goes before it comes.
fn ask(server: u16, client: &TcpStream, head: &str, body: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).ok()?;
    let mut bytes = format!("{head}\r\n\r\n").into_bytes();
    bytes.extend(body.chars().map(|it| u8::try_from(u32::from(it)).unwrap()));
    stream.write_all(&bytes).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Some(answer),
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if is_gone(client) {
                    return None;
                }
            }
            Err(_) => return None,
        }
    }
}

fn is_gone(client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let peeked = client.peek(&mut [0]);
    client.set_nonblocking(false).unwrap();
    match peeked {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn wait_for_its_end(client: &TcpStream) {
    let deadline = Instant::now() + EXCHANGE_MAX;
    while !is_gone(client) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
}

/// The head, and less of a body than the head says.
fn half(answer: &[u8]) -> Vec<u8> {
    let at = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap_or(answer.len() - 4);
    let head = String::from_utf8_lossy(&answer[..at]).into_owned();
    let kept: Vec<&str> =
        head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length:")).collect();
    let body = &answer[at + 4..];
    let mut half = format!("{}\r\nContent-Length: {}\r\n\r\n", kept.join("\r\n"), body.len() + 100).into_bytes();
    half.extend_from_slice(&body[..body.len() / 2]);
    half
}

fn trickle(client: &mut TcpStream, answer: &[u8]) {
    for byte in answer {
        if client.write_all(&[*byte]).is_err() || is_gone(client) {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
