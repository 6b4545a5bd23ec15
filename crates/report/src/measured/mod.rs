//! A measured line in words, for a terminal and for the page.

mod grade;
mod lines;
mod uses;

pub(crate) use grade::{Grade, graded};
pub use lines::finding_lines;
pub(crate) use lines::{advice, findings, opening, rates, worst};
pub(crate) use uses::{Suits, of as uses_of};
