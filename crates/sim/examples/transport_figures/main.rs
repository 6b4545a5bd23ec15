//! Redraws the validation figures of `docs/contributing/transports.md` and updates its numbers.
//! With the argument `shares`, redraws the figure of `docs/contributing/queues.md` that shows how
//! Prague and CUBIC share a bottleneck.
//!
//! ```text
//! cargo run --release -p underload-sim --example transport_figures [TRACE...]
//! cargo run --release -p underload-sim --example transport_figures shares
//! ```
//!
//! Figures are written to `docs/images/transports/` and `docs/images/queues/`; tables are replaced
//! in the pages between `<!-- numbers: NAME -->` and `<!-- end -->`. Recorded cellular traces
//! (Mahimahi's format, unpacked) are optional: without them their table is not changed.
#![expect(clippy::print_stdout, reason = "the tables are the result of the program")]

#[path = "../../tests/support/mod.rs"]
mod support;

mod cellular;
mod document;
mod heat_map;
mod marks;
mod response;
mod shares;
mod windows;

use std::error::Error;

use document::Document;

fn main() -> Result<(), Box<dyn Error>> {
    let traces: Vec<String> = std::env::args().skip(1).collect();
    if traces == ["shares"] {
        let mut document = Document::open("contributing/queues.md", "images/queues")?;
        shares::draw(&mut document)?;
        return document.save();
    }
    let mut document = Document::open("contributing/transports.md", "images/transports")?;
    response::draw(&mut document)?;
    windows::draw(&mut document)?;
    marks::draw(&mut document)?;
    cellular::draw(&mut document, &traces)?;
    document.save()
}
