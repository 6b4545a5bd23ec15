//! The server of a test and its URLs.

use std::net::IpAddr;

use super::Ndt7Error;
use crate::nq::NqTarget;

#[derive(Clone, PartialEq, Eq)]
pub struct Ndt7Target {
    /// Name of the server for users: `HOST:PORT`, without the signature of its URLs.
    pub name: String,
    pub(super) download: NqTarget,
    pub(super) upload: NqTarget,
    /// Addresses of the locate service that named the server; empty if the user did.
    pub(super) named_by: Vec<IpAddr>,
}

impl std::fmt::Debug for Ndt7Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URLs hold a signature that is valid for this client alone.
        f.debug_struct("Ndt7Target").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Sent with each test, so that the server's operator knows the client.
const CLIENT: &str = concat!("client_name=underload&client_version=", env!("CARGO_PKG_VERSION"));
/// The protocol's limit of a query's length.
const QUERY_BYTES_MAX: usize = 4096;

impl Ndt7Target {
    /// Parses `ndt7://HOST[:PORT]`, with port 443 by default; the test uses TLS.
    ///
    /// # Errors
    /// Returns [`Ndt7Error::Target`] for other text.
    pub fn of_host(text: &str) -> Result<Self, Ndt7Error> {
        let error = || target_error(text, "ndt7://HOST[:PORT]");
        let authority = text.strip_prefix("ndt7://").ok_or_else(error)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(error());
        }
        let url = |test| format!("https://{authority}/ndt/v7/{test}?{CLIENT}");
        let parse = |test| NqTarget::parse(&url(test)).map_err(|_| error());
        let (download, upload) = (parse("download")?, parse("upload")?);
        Ok(Self { name: download.authority(), download, upload, named_by: Vec::new() })
    }

    /// Parses two signed `wss://` URLs of one server.
    ///
    /// # Errors
    /// Returns [`Ndt7Error::Target`] for other URLs.
    pub fn of_urls(download: &str, upload: &str) -> Result<Self, Ndt7Error> {
        let (download, upload) = (signed(download)?, signed(upload)?);
        if download.host != upload.host || download.port != upload.port {
            return Err(target_error(&upload.host, "one server for both directions"));
        }
        Ok(Self { name: download.authority(), download, upload, named_by: Vec::new() })
    }

    pub fn host(&self) -> &str {
        &self.download.host
    }
}

/// Parses a signed URL and adds this program's name.
fn signed(url: &str) -> Result<NqTarget, Ndt7Error> {
    let error = || target_error(url, "wss://HOST[:PORT]/PATH?QUERY");
    let rest = url.strip_prefix("wss://").ok_or_else(error)?;
    let mut target = NqTarget::parse(&format!("https://{rest}")).map_err(|_| error())?;
    // A fragment is never sent.
    if target.path.contains('#') {
        return Err(error());
    }
    let joint = if target.path.contains('?') { '&' } else { '?' };
    target.path = format!("{}{joint}{CLIENT}", target.path);
    let query = target.path.split_once('?').map_or("", |(_, query)| query);
    if query.len() > QUERY_BYTES_MAX {
        return Err(error());
    }
    Ok(target)
}

fn target_error(text: &str, accepted: &'static str) -> Ndt7Error {
    // Without the query, which may contain a signature.
    let shown = text.split(['?', '#']).next().unwrap_or_default().chars().take(100).collect();
    Ndt7Error::Target { text: shown, accepted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_signed_addresses_are_read() {
        let target = Ndt7Target::of_host("ndt7://[::1]:4443/").unwrap();
        assert_eq!((target.name.as_str(), target.host()), ("[::1]:4443", "::1"));
        assert!(target.upload.path.starts_with("/ndt/v7/upload?client_name=underload&"));
        assert_eq!(Ndt7Target::of_host("ndt7://a.example").unwrap().name, "a.example:443");
        for wrong in ["ndt7://", "ndt7:///x", "a", "ndt7://a/b", "ndt7://u@a", "ndt7://a:0"] {
            assert!(Ndt7Target::of_host(wrong).is_err(), "{wrong}");
        }
        let (down, up) = ("wss://m.example/ndt/v7/download", "wss://m.example/ndt/v7/upload");
        let target = Ndt7Target::of_urls(&format!("{down}?access_token=secret"), up).unwrap();
        assert!(target.download.path.contains("?access_token=secret&client_name="));
        assert!(target.upload.path.contains("upload?client_name="));
        assert!(!format!("{target:?}").contains("secret"));
        for wrong in ["ws://m.example/", "wss://other.example/", "wss://m.example:1/", "wss://"] {
            let Err(error) = Ndt7Target::of_urls(down, &format!("{wrong}?access_token=secret"))
            else {
                panic!("{wrong}");
            };
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
