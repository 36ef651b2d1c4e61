//! First word to a tool, or to the node; nothing else.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Fossil runs this program as its extension under /ext, and says so as every web server does (RFC 3875).
    if ocx::server::cgi::is_wanted() {
        return ocx::server::cgi::main();
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // What the supervisor starts reads its own words: no help, no colours, no terminal.
    match args.first().and_then(|word| word.to_str()) {
        Some("node") => ocx::node::main(&after_the_first(&args)),
        Some("step") => ocx::step::main(&after_the_first(&args)),
        _ => ocx::tools::main(args),
    }
}

/// The words after the first. The supervisor writes paths of its own making, which are UTF-8; another is no word known.
fn after_the_first(args: &[OsString]) -> Vec<String> {
    args.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}
