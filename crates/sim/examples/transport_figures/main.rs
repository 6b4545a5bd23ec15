//! Redraws the validation figures of `docs/transports.md` and writes its numbers anew.
//!
//! ```text
//! cargo run --release -p underload-sim --example transport_figures [TRACE...]
//! ```
//!
//! Figures go to `docs/images/transports/`; tables stand in the page between `<!-- numbers: NAME
//! -->` and `<!-- end -->`. Recorded cellular traces (Mahimahi's format, unpacked) are optional:
//! without them their table stays as it is.
#![expect(clippy::print_stdout, reason = "the tables are the result of the program")]

#[path = "../../tests/support/mod.rs"]
mod support;

mod cellular;
mod document;
mod marks;
mod response;
mod windows;

use std::error::Error;

use document::Document;

fn main() -> Result<(), Box<dyn Error>> {
    let traces: Vec<String> = std::env::args().skip(1).collect();
    let mut document = Document::open()?;
    response::draw(&mut document)?;
    windows::draw(&mut document)?;
    marks::draw(&mut document)?;
    cellular::draw(&mut document, &traces)?;
    document.save()
}
