//! Which server, and what to ask it for.

use super::Ndt7Error;
use crate::nq::NqTarget;

/// The two addresses of a test.
#[derive(Clone, PartialEq, Eq)]
pub struct Ndt7Target {
    /// The server as a user may see it: `HOST:PORT` without the signature in its addresses.
    pub name: String,
    pub(super) download: NqTarget,
    pub(super) upload: NqTarget,
}

impl std::fmt::Debug for Ndt7Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The addresses hold a signature that is good for this client alone.
        f.debug_struct("Ndt7Target").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Sent with each test, so that whoever runs the server knows what asks.
const CLIENT: &str = concat!("client_name=underload&client_version=", env!("CARGO_PKG_VERSION"));
/// The protocol's limit of a query.
const QUERY_BYTES_MAX: usize = 4096;

impl Ndt7Target {
    /// The server of `ndt7://HOST[:PORT]`, with TLS, on port 443 if none is named.
    ///
    /// # Errors
    /// [`Ndt7Error::Target`].
    pub fn of_host(text: &str) -> Result<Self, Ndt7Error> {
        let wrong = || wrong(text, "ndt7://HOST[:PORT]");
        let authority = text.strip_prefix("ndt7://").ok_or_else(wrong)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(wrong());
        }
        let one = |test| NqTarget::parse(&format!("https://{authority}/ndt/v7/{test}?{CLIENT}"));
        let (download, upload) =
            (one("download").map_err(|_| wrong())?, one("upload").map_err(|_| wrong())?);
        Ok(Self { name: download.authority(), download, upload })
    }

    /// The server of two signed addresses, `wss://` each and both of one host.
    ///
    /// # Errors
    /// [`Ndt7Error::Target`].
    pub fn of_urls(download: &str, upload: &str) -> Result<Self, Ndt7Error> {
        let (download, upload) = (signed(download)?, signed(upload)?);
        if download.host != upload.host || download.port != upload.port {
            return Err(wrong(&upload.host, "one server for both directions"));
        }
        Ok(Self { name: download.authority(), download, upload })
    }

    /// The host alone.
    pub fn host(&self) -> &str {
        &self.download.host
    }
}

/// A signed address, with this program's name added.
fn signed(url: &str) -> Result<NqTarget, Ndt7Error> {
    let wrong = || wrong(url, "wss://HOST[:PORT]/PATH?QUERY");
    let rest = url.strip_prefix("wss://").ok_or_else(wrong)?;
    let mut target = NqTarget::parse(&format!("https://{rest}")).map_err(|_| wrong())?;
    // What comes after '#' is never sent; a server that signs it means nothing by it.
    if target.path.contains('#') {
        return Err(wrong());
    }
    let joint = if target.path.contains('?') { '&' } else { '?' };
    target.path = format!("{}{joint}{CLIENT}", target.path);
    let query = target.path.split_once('?').map_or("", |(_, query)| query);
    if query.len() > QUERY_BYTES_MAX {
        return Err(wrong());
    }
    Ok(target)
}

fn wrong(text: &str, accepted: &'static str) -> Ndt7Error {
    // Without the query, which may hold a signature.
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
