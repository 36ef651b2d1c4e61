//! The command line, made from TOOLS.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::table::{Form, Key, TOOLS, Tool};
use crate::protocol::names::{CloneCode, Login};
use crate::server::secrets::SecretName;

const ABOUT: &str = "Work on your own machines, asked for and answered through a Fossil server";

const TEACHES: &str = "\
A run is a JSON block in a forum post or a ticket change of a Fossil server. The node it is addressed to answers there: \
`started` before it starts the process, once, confined as the run asks; `ended` when nothing of it is left; then its \
kept log. `ocx try` shows one from post to ended on this machine.

Exit codes: 0 done, 1 stopped (the reason is told), 2 wrong usage.";

/// The whole command line.
#[must_use]
pub fn command() -> Command {
    Command::new("ocx")
        .about(ABOUT)
        .after_help(TEACHES)
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands(TOOLS.iter().map(subcommand))
}

fn subcommand(tool: &Tool) -> Command {
    Command::new(tool.name)
        .about(tool.does)
        .after_help(tool.teaches)
        .hide(!tool.shown)
        .args(tool.keys.iter().map(argument))
}

fn argument(key: &Key) -> Arg {
    let arg = Arg::new(key.name).help(key.does);
    match key.form {
        Form::Flag => arg.long(key.name).action(ArgAction::SetTrue),
        Form::Directory => arg.long(key.name).value_name("DIR").value_parser(ValueParser::path_buf()),
        Form::Path => arg.long(key.name).value_name("FILE").value_parser(ValueParser::path_buf()),
        Form::Port => arg.long(key.name).value_name("PORT").value_parser(clap::value_parser!(u16).range(1..)),
        Form::File => arg.value_name("FILE").required(true).value_parser(ValueParser::path_buf()),
        Form::Repository => arg.value_name("REPO").required(true).value_parser(ValueParser::path_buf()),
        Form::Login(shown) => arg.value_name(shown).required(true).value_parser(login),
        Form::Clone => arg.value_name("SERVER-CODE").required(true).value_parser(clone),
        Form::Secret => arg.value_name("NAME").required(true).value_parser(secret),
        Form::Run => arg.value_name("RUN").value_parser(run),
        Form::Command => arg.last(true).num_args(1..).value_name("COMMAND"),
    }
}

/// A run's hash, or enough of its beginning.
fn run(word: &str) -> Result<String, String> {
    let hex = word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex && (10..=64).contains(&word.len()) {
        Ok(word.to_owned())
    } else {
        Err("a run is named by its hash, or by the first ten digits or more of it: 0 to 9 and a to f".to_owned())
    }
}

fn login(word: &str) -> Result<Login, &'static str> {
    Login::new(word).ok_or("a login is a text without control characters, not empty")
}

fn clone(word: &str) -> Result<CloneCode, &'static str> {
    CloneCode::new(word).ok_or("a server-code is 40 digits, 0 to 9 and a to f; its host lists it, and a run names it")
}

fn secret(word: &str) -> Result<SecretName, &'static str> {
    SecretName::new(word).ok_or("a secret's name is of letters, digits and _, and not too long")
}

/// What was said on the command line for one tool.
#[derive(Debug)]
pub struct Said<'a>(pub &'a ArgMatches);

impl Said<'_> {
    /// Whether a flag was given.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.0.get_flag(name)
    }

    /// A path, if given.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.get_one::<PathBuf>(name).cloned()
    }

    /// A run's hash or the beginning of one, if given.
    #[must_use]
    pub fn run(&self, name: &str) -> Option<&str> {
        self.0.get_one::<String>(name).map(String::as_str)
    }

    /// A user's login, if given.
    #[must_use]
    pub fn login(&self, name: &str) -> Option<Login> {
        self.0.get_one::<Login>(name).cloned()
    }

    /// A clone's server-code, if given.
    #[must_use]
    pub fn clone_code(&self, name: &str) -> Option<CloneCode> {
        self.0.get_one::<CloneCode>(name).cloned()
    }

    /// A secret's name, if given.
    #[must_use]
    pub fn secret(&self, name: &str) -> Option<SecretName> {
        self.0.get_one::<SecretName>(name).cloned()
    }

    /// A port, if given.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<u16> {
        self.0.get_one::<u16>(name).copied()
    }

    /// What stood after `--`; empty when nothing did.
    #[must_use]
    pub fn command(&self, name: &str) -> Vec<String> {
        self.0.get_many::<String>(name).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test ends where a step of it fails")]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed_and_refuses_what_it_does_not_know() {
        command().debug_assert();
        assert!(command().try_get_matches_from(["ocx", "try", "--nosuch"]).is_err());
        assert!(command().try_get_matches_from(["ocx", "nosuch"]).is_err());
        assert!(command().try_get_matches_from(["ocx", "try", "id"]).is_err());
        assert!(command().try_get_matches_from(["ocx", "try", "--port", "65536"]).is_err());
        for run in ["3f2a91c07", "3F2A91C07B", "3f2a91c07x", "../../etc/p", &"a".repeat(65)] {
            assert!(command().try_get_matches_from(["ocx", "status", run]).is_err(), "{run}");
        }
        assert!(command().try_get_matches_from(["ocx", "status", "3f2a91c07b"]).is_ok());
    }

    #[test]
    fn names_of_the_wrong_form_are_refused() {
        let code = "0123456789012345678901234567890123456789";
        let taken = |words: &[&str]| command().try_get_matches_from([&["ocx"], words].concat()).is_ok();
        assert!(taken(&["approve", "x.fossil", "builder", "lab-1", code]));
        assert!(taken(&["secret", "--remove", "x.fossil", "TOK_1"]));
        for wrong in [
            &["approve", "x.fossil", "builder", "lab-1"][..],
            &["approve", "x.fossil", "builder", "lab-1", "0123"],
            &["approve", "x.fossil", "", "lab-1", code],
            &["revoke", "x.fossil", "builder", "a\nb", code],
            &["secret", "x.fossil"],
            &["secret", "x.fossil", "../x"],
            &["secret", "x.fossil", "TOK", "the-text"],
        ] {
            assert!(!taken(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_said_is_read() {
        let line = ["ocx", "try", "--ticket", "--port", "8099", "--dir", "/tmp/x", "--", "id", "--json"];
        let matches = command().try_get_matches_from(line).unwrap();
        let said = Said(matches.subcommand_matches("try").unwrap());
        assert!(said.flag("ticket") && !said.flag("json"));
        assert_eq!(said.port("port"), Some(8099));
        assert_eq!(said.path("dir"), Some(PathBuf::from("/tmp/x")));
        assert_eq!(said.command("command"), ["id", "--json"]);
    }

    #[test]
    fn help_names_the_tools_shown_and_no_other() {
        let help = command().render_help().to_string();
        for tool in TOOLS {
            let named = help.lines().any(|line| line.trim_start().starts_with(&format!("{} ", tool.name)));
            assert_eq!(named, tool.shown, "{}", tool.name);
        }
    }
}
