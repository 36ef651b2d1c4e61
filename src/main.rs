//! First word to a tool, or to the node; nothing else.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Fossil runs this program as its extension under /ext, and says so as every web server does (RFC 3875).
    if std::env::var_os("GATEWAY_INTERFACE").is_some() {
        return ocx::server::cgi::main();
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    ocx::tools::main(args)
}
