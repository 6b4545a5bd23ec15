//! The `underload` program: parse the command line, call a library, print.

fn main() {}
