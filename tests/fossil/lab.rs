//! A server for one test: a temporary folder, a repository with users, a `fossil server`, and what looks at them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ocx::fossil::http::{Answer, Base, Body, Http};
use ocx::fossil::{Posted, Program, Session, clone};
use ocx::server::repository::{self, ServerUser};
use ocx::server::{Serving, install};
use rusqlite::{Connection, OpenFlags};

pub(crate) const WAIT: Duration = Duration::from_secs(60);
/// Login, password, letters. The passwords hold what a URL, a form or a shell would read otherwise.
pub(crate) const USERS: [(&str, &str, &str); 9] = [
    ("appender", "append", "oc"),
    ("lab-2", "lab two", "goC4wrn"),
    ("builder", "builder pw", "goi"),
    ("lab-1", "p:@/ %w&'\"é", "goC4wrn"),
    ("bob", "bob pw", "go34wnrR"),
    ("pusher", "push", "gioC"),
    ("held", "held pw", "o3"),
    ("looker", "looker pw", "2"),
    ("deaf", "deaf pw", "o4"),
];

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Lab {
    pub(crate) dir: PathBuf,
    pub(crate) program: Program,
    pub(crate) repository: PathBuf,
    pub(crate) extroot: PathBuf,
    serving: Option<Serving>,
    url: String,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let name = format!("ocx-test-fossil-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        let home = dir.join("home");
        fs::create_dir(&home).unwrap();
        let program = Program::new(&Program::find().unwrap(), &home, "tester");
        let server = dir.join("server");
        fs::create_dir(&server).unwrap();
        let repository = server.join("server.fossil");
        let users: Vec<ServerUser<'_>> =
            USERS.iter().map(|(login, password, letters)| ServerUser { login, password, letters }).collect();
        let setup = ServerUser { login: "admin", password: "admin pw", letters: "s" };
        repository::make(&program, &repository, &setup, &users).unwrap();
        let extroot = dir.join("ext");
        install(&extroot, &std::env::current_exe().unwrap()).unwrap();
        let mut lab = Self { dir, program, repository, extroot, serving: None, url: String::new() };
        lab.start(0);
        lab
    }

    pub(crate) fn start(&mut self, port: u16) {
        let log = self.dir.join("server.log");
        let serving = Serving::start(&self.program, &self.repository, port, &self.extroot, None, &log).unwrap();
        self.url = serving.url();
        self.serving = Some(serving);
    }

    /// Ends the server and gives its port.
    pub(crate) fn stop(&mut self) -> u16 {
        let serving = self.serving.take().unwrap();
        let port = serving.port();
        serving.stop();
        port
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn password(login: &str) -> &'static str {
        match login {
            "admin" => "admin pw",
            _ => USERS.iter().find(|(user, _, _)| *user == login).unwrap().1,
        }
    }

    pub(crate) fn session(&self, login: &str) -> Session {
        Session::new(&self.url, login, Self::password(login)).unwrap()
    }

    /// One value of the server's repository.
    pub(crate) fn ask<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        ask(&self.repository, sql)
    }

    /// Changes the server's repository behind Fossil's back.
    pub(crate) fn change(&self, sql: &str) {
        change(&self.repository, sql);
    }

    pub(crate) fn clone_as(&self, login: &str, name: &str) -> PathBuf {
        let file = self.dir.join(name);
        clone::make(&self.program, &self.url, login, Self::password(login), &file).unwrap();
        file
    }

    pub(crate) fn pull(&self, file: &Path) -> clone::Pulled {
        clone::pull(&self.program, file, WAIT).unwrap()
    }

    /// A page of Fossil's that OCX itself does not use, as `login`.
    pub(crate) fn form(&self, login: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let http = Http::new(Base::parse(&self.url).unwrap());
        let cookie = self.cookie(login);
        let mut fields = fields.to_vec();
        let page = http.get("/tktnew", Some(&cookie), WAIT).unwrap().text;
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).or(page.split("name='csrf' value='").nth(1));
        fields.push(("csrf", csrf.and_then(|rest| rest.split(['"', '\'']).next()).unwrap_or("")));
        loop {
            let answer = http.post(path, Some(&cookie), Body::Form(&fields), WAIT).unwrap();
            if answer.status != 400 || !answer.text.contains("database is locked") {
                return answer;
            }
        }
    }

    pub(crate) fn cookie(&self, login: &str) -> String {
        let http = Http::new(Base::parse(&self.url).unwrap());
        let fields = [("u", login), ("p", Self::password(login))];
        let answer = http.post("/login", None, Body::Form(&fields), WAIT).unwrap();
        answer.cookies[0].split(';').next().unwrap().to_owned()
    }

    /// Runs `fossil` with arguments; gives standard output.
    pub(crate) fn fossil(&self, args: &[&str]) -> Vec<u8> {
        let out = Command::new(&self.program.path)
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.program.home)
            .env("USER", "admin")
            .output()
            .unwrap();
        assert!(out.status.success(), "fossil {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop();
        }
        if !std::thread::panicking() {
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}

pub(crate) fn ask<T: rusqlite::types::FromSql>(file: &Path, sql: &str) -> T {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    db.busy_timeout(Duration::from_secs(20)).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(crate) fn change(file: &Path, sql: &str) {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    db.busy_timeout(Duration::from_secs(20)).unwrap();
    // The tests break what a sound file would keep together.
    db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    db.execute_batch(sql).unwrap();
}

/// The hash of a stored post.
pub(crate) fn hash(posted: Posted) -> String {
    match posted {
        Posted::Stored { hash_digits: Some(hash), .. } => hash,
        other => panic!("not stored: {other:?}"),
    }
}

/// The id of a stored ticket change.
pub(crate) fn ticket(posted: Posted) -> String {
    match posted {
        Posted::Stored { ticket: Some(ticket), .. } => ticket,
        other => panic!("not stored: {other:?}"),
    }
}
