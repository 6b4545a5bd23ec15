//! Links with the files that they name.

use underload_aqm::registry::LinkSetup;
use underload_run::source::read_trace;

/// Understands a link SPEC and reads the trace that it names.
pub fn load(spec: &str) -> anyhow::Result<LinkSetup> {
    Ok(LinkSetup::parse_with(spec, &mut read_trace)?)
}
