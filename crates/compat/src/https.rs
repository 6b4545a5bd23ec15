//! Requests to servers of other operators, with the system's certificate authorities, or to this
//! machine without TLS; bounded in time and size.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use underload_probe::network::Reach;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use crate::nq::{NqError, NqTarget};

const REQUEST_MAX: Duration = Duration::from_secs(15);

/// Returns the host to name to the user; `None` for a URL without TLS to another machine.
pub(crate) fn host_of(url: &str) -> Option<String> {
    if let Some(rest) = url.strip_prefix("http://") {
        let target = NqTarget::parse(&format!("https://{rest}")).ok()?;
        let is_here = target.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        return is_here.then_some(target.host);
    }
    NqTarget::parse(url).map(|target| target.host).ok()
}

/// Returns the addresses of `found` to which a host at `by` may send this client.
///
/// # Errors
/// Returns an error if there is none.
pub(crate) fn allowed(found: Vec<SocketAddr>, by: &[IpAddr]) -> io::Result<Vec<SocketAddr>> {
    let (allowed, others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|it| Reach::may_be_named(it.ip(), by));
    match others.first() {
        Some(other) if allowed.is_empty() => Err(io::Error::other(format!(
            "{} is in a private network or on this machine, and the host that named it is not",
            other.ip()
        ))),
        _ => Ok(allowed),
    }
}

/// A resolver that stores the addresses of the first host, and refuses redirects from there into
/// private networks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen(Arc<OnceLock<Vec<IpAddr>>>);

impl Chosen {
    /// Returns the addresses of the first host.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.0.get().cloned().unwrap_or_default()
    }
}

impl Resolver for Chosen {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let chosen = self.0.get_or_init(|| found.iter().map(SocketAddr::ip).collect());
        allowed(found.to_vec(), chosen)?;
        Ok(found)
    }
}

pub(crate) fn agent(redirects_max: u32, chosen: Chosen) -> Result<Agent, NqError> {
    let loaded = rustls_native_certs::load_native_certs().certs;
    if loaded.is_empty() {
        return Err(NqError::NoAuthorities);
    }
    let known: Vec<Certificate<'static>> =
        loaded.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&known))
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(redirects_max)
        .proxy(None)
        .tls_config(tls)
        .user_agent(concat!("underload/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(REQUEST_MAX));
    Ok(Agent::with_parts(config.build(), DefaultConnector::default(), chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_of_a_public_host_leads_to_no_private_address() {
        let resolve = |chosen: &Chosen, url: &str| {
            let timeout = NextTimeout {
                after: ureq::unversioned::transport::time::Duration::NotHappening,
                reason: ureq::Timeout::Resolve,
                per_read: None,
                per_write: None,
            };
            chosen.resolve(&url.parse().unwrap(), &Config::default(), timeout).map(|it| it.to_vec())
        };
        let public = Chosen::default();
        for (url, is_taken) in [
            ("https://1.1.1.1/", true),
            ("https://9.9.9.9/", true),
            ("https://192.168.1.1/", false),
            ("https://127.0.0.1/", false),
            ("https://[fd00::1]/", false),
        ] {
            assert_eq!(resolve(&public, url).is_ok(), is_taken, "{url}");
        }
        assert_eq!(public.addresses(), [IpAddr::from([1, 1, 1, 1])]);
        let lab = Chosen::default();
        assert!(resolve(&lab, "https://192.168.1.1/").is_ok(), "the user chose it");
        assert!(resolve(&lab, "https://192.168.1.2/").is_ok());
        let error = resolve(&lab, "https://127.0.0.1/").unwrap_err().to_string();
        assert!(error.contains("127.0.0.1 is in a private network or on this"), "{error}");
    }

    #[test]
    fn only_this_machine_is_reached_without_tls() {
        for wrong in ["http://192.0.2.1/", "ftp://a/", "", "http://localhost/x"] {
            assert_eq!(host_of(wrong), None, "{wrong}");
        }
        assert_eq!(host_of("http://127.0.0.1:1/x").as_deref(), Some("127.0.0.1"));
    }
}
