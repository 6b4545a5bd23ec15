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

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    #[error("accepted is https://HOST[:PORT]/PATH, or http:// to this machine")]
    Url,
    /// The system has no certificate authorities.
    #[error(transparent)]
    Trust(#[from] NqError),
    #[error("sending to {host}")]
    Send { host: String, source: Box<ureq::Error> },
    #[error("{host} answers {status}")]
    Status { host: String, status: u16 },
}

/// Checks that [`post_json`] accepts a URL.
///
/// # Errors
/// Returns [`PostError::Url`] if [`post_json`] would reject the URL.
pub fn check_url(url: &str) -> Result<(), PostError> {
    host_of(url).map(|_| ()).ok_or(PostError::Url)
}

/// Sends a JSON document. The answer's body is not read, and redirects are not followed.
///
/// # Errors
/// Returns an error if the URL is not accepted, the document cannot be sent, or the answer is not a
/// success.
pub fn post_json(url: &str, document: &str) -> Result<(), PostError> {
    let host = host_of(url).ok_or(PostError::Url)?;
    let request = agent(0, Chosen::default())?.post(url).header("Content-Type", "application/json");
    match request.send(document) {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(PostError::Status { host, status: answer.status().as_u16() }),
        Err(source) => Err(PostError::Send { host, source: source.into() }),
    }
}

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
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

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
    fn a_request_reaches_loopback_and_a_refusal_is_an_error() {
        for wrong in ["http://192.0.2.1/", "ftp://a/", "", "http://localhost/x"] {
            assert!(check_url(wrong).is_err(), "{wrong}");
        }
        if rustls_native_certs::load_native_certs().certs.is_empty() {
            eprintln!(
                "SKIPPED a_request_reaches_loopback_and_a_refusal_is_an_error: no authorities"
            );
            return;
        }
        for (status, is_taken) in [("200 OK", true), ("500 No", false), ("302 There", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/hook", listener.local_addr().unwrap());
            let answering = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).unwrap() > 2 {
                    let lower = line.to_lowercase();
                    if let Some(value) = lower.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                std::io::Read::read_exact(&mut reader, &mut body).unwrap();
                let head = "Location: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(format!("HTTP/1.1 {status}\r\n{head}").as_bytes()).unwrap();
                body
            });
            let outcome = post_json(&url, "{\"a\":1}");
            assert_eq!(outcome.is_ok(), is_taken, "{status}: {outcome:?}");
            assert_eq!(answering.join().unwrap(), b"{\"a\":1}");
        }
    }
}
