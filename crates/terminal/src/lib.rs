//! Behaviour that all programs share: options of every command, messages, exit statuses, signals,
//! manuals.
//!
//! - [`console`]: `--color`, `--quiet` and `--verbose`; notes, warnings and errors on stderr.
//! - [`exit`], [`status`]: from an error to an exit status and one message.
//! - [`interrupt`]: Ctrl-C and SIGTERM.
//! - [`help`]: the usual options, and all.
//! - [`home`]: the directory of stored data, and files with secrets.
//! - [`quantity`]: numbers with units on the command line.
//! - `manual`: completions, man pages, and the book's page of commands; a feature, because small
//!   machines do without.

pub mod console;
pub mod exit;
pub mod help;
pub mod home;
pub mod interrupt;
#[cfg(feature = "manual")]
pub mod manual;
pub mod quantity;
pub mod status;

/// The commit of the sources, with `-dirty` if they have changed; `unknown` outside a checkout.
pub const COMMIT: &str = env!("UNDERLOAD_COMMIT");
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("UNDERLOAD_COMMIT"), ")");

/// Environment variable with the version of `underload` for a program that replaces it.
pub const STARTED_BY: &str = "UNDERLOAD_STARTED_BY";
