//! Links from the command line, with the files that they name.

use underload_aqm::registry::LinkSetup;

/// Understands a link SPEC and reads the trace that it names.
pub fn load(spec: &str) -> anyhow::Result<LinkSetup> {
    Ok(LinkSetup::parse(spec)?)
}
