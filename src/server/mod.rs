//! The server's side: the extension Fossil runs under `/ext/ocx`, and what puts it there.
