//! Behaviour that all programs share: options of every command, messages, exit statuses, signals,
//! manuals.
//!
//! - [`console`]: `--color`, `--quiet` and `--verbose`; notes, warnings and errors on stderr.
//! - [`exit`], [`status`]: from an error to an exit status and one message.
//! - [`interrupt`]: Ctrl-C and SIGTERM.
//! - [`home`]: where data is stored that outlives a run, and files with secrets.
//! - [`quantity`]: numbers with units on the command line.
//! - `manual`: completions, pages for `man`, the book's page of commands; a feature, because small
//!   machines do without.

#![allow(clippy::missing_errors_doc, reason = "only programs call this, and print what is wrong")]

pub mod console;
pub mod exit;
pub mod home;
pub mod interrupt;
#[cfg(feature = "manual")]
pub mod manual;
pub mod quantity;
pub mod status;

/// The commit that the program is built from: `-dirty` at its end if the sources are not that
/// commit's, `unknown` outside a checkout.
pub const COMMIT: &str = env!("UNDERLOAD_COMMIT");
/// The version, and the commit that it is built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("UNDERLOAD_COMMIT"), ")");

/// The variable of the environment in which `underload` passes its version to a program that it
/// starts in its place.
pub const STARTED_BY: &str = "UNDERLOAD_STARTED_BY";
