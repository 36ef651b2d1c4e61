//! A server that signs anyone in and then answers as a test wants, or not at all.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What becomes of a request.
#[derive(Clone)]
pub(crate) enum Then {
    /// These bytes, and the end of the connection.
    Say(Vec<u8>),
    /// These bytes, and then nothing for as long as the client waits.
    Stall(Vec<u8>),
    /// Nothing, for as long as the client waits.
    Nothing,
}

pub(crate) struct Fake {
    pub(crate) port: u16,
    /// Requests other than those of signing in.
    pub(crate) asked: Arc<AtomicU32>,
}

impl Fake {
    /// Answers `then` to everything but signing in. The thread ends with the test program.
    pub(crate) fn start(then: Then) -> Self {
        Self::at(0, then)
    }

    pub(crate) fn at(port: u16, then: Then) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (then, count) = (then.clone(), Arc::clone(&count));
                std::thread::spawn(move || serve(stream, &then, &count));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// A whole answer with a length.
pub(crate) fn page(status: &str, headers: &str, body: &str) -> Then {
    Then::Say(
        format!("HTTP/1.0 {status}\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .into_bytes(),
    )
}

fn serve(mut stream: TcpStream, then: &Then, count: &AtomicU32) {
    let head = read_request(&mut stream);
    let line = head.lines().next().unwrap_or("").to_owned();
    let login = Then::Say(b"HTTP/1.0 302 Moved\r\nLocation: /index\r\nSet-Cookie: fossil-ab=12%2Fab%2Fbob; path=/\r\nContent-Length: 0\r\n\r\n".to_vec());
    let form = page("200 OK", "Content-Type: text/html\r\n", r#"<input name="csrf" value="tok">"#);
    let then = match line.as_str() {
        line if line.starts_with("POST /login") => &login,
        line if line.starts_with("GET /forume1") => &form,
        _ => {
            count.fetch_add(1, Ordering::Relaxed);
            then
        }
    };
    match then {
        Then::Say(bytes) => drop(stream.write_all(bytes)),
        Then::Stall(_) | Then::Nothing => {
            if let Then::Stall(bytes) = then {
                stream.write_all(bytes).unwrap();
            }
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            drop(stream.read(&mut [0]));
        }
    }
}

/// Head and body, so that closing does not reset a connection with unread bytes.
fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().parse().unwrap_or(0))
                })
                .unwrap_or(0);
            if body.len() >= length {
                return text;
            }
        }
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
            _ => return text,
        }
    }
}
