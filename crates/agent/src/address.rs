//! Addresses of orchestrators. Keys, codes and tokens are sent in the clear only within this
//! machine.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use underload_probe::network::Reach;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, Transport};

/// An orchestrator's address, such as `https://fleet.example` or `http://127.0.0.1:4870`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address has a user, a path or a query, or is not a URL.
    #[error("expected https://HOST[:PORT], without a user and without a path")]
    Form,
    /// The address is plain HTTP to another machine, or to a name that may belong to one.
    #[error(
        "expected https://HOST[:PORT]: plain HTTP would show keys and tokens to others, and is \
         accepted only for `localhost`, 127.0.0.1 and [::1]"
    )]
    Plain,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        // The parser of the HTTP client, so that both see the same host.
        let uri: Uri = text.parse().map_err(|_| AddressError::Form)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(AddressError::Form);
        };
        let host = authority.host();
        let has_port = authority.port_u16().is_some_and(|port| port > 0);
        let is_bare = authority.as_str() == host || has_port;
        let has_more = text.contains(['@', '?', '#']) || uri.path() != "/";
        if host.is_empty() || !is_bare || has_more {
            return Err(AddressError::Form);
        }
        match scheme {
            "https" => {}
            "http" if is_this_machine(host) => {}
            "http" => return Err(AddressError::Plain),
            _ => return Err(AddressError::Form),
        }
        Ok(Self(format!("{scheme}://{authority}")))
    }
}

impl Address {
    fn authority(&self) -> &str {
        self.0.split_once("://").map_or("", |(_, authority)| authority)
    }

    /// Returns the network of the address as far as its text shows; [`Reach::Global`] for a name.
    pub(crate) fn reach(&self) -> Reach {
        let uri = self.0.parse::<Uri>();
        let host = uri.as_ref().ok().and_then(Uri::host).unwrap_or_default();
        match literal(host) {
            Some(ip) => Reach::of_all([ip]),
            None if host.eq_ignore_ascii_case("localhost") => Reach::Loopback,
            None => Reach::Global,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a host always is this machine, whatever a resolver answers.
fn is_this_machine(host: &str) -> bool {
    literal(host).map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback())
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Resolves hosts. With plain HTTP it accepts only addresses of this machine, also for `localhost`.
#[derive(Debug, Default)]
pub(crate) struct Finder(DefaultResolver);

/// The host of the last connection, and its network.
///
/// A host's name is resolved before each request, which may then use an existing connection: only a
/// new connection shows where the host is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connected(Arc<Mutex<Option<(String, Reach)>>>);

impl Connected {
    fn set(&self, authority: String, reach: Reach) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((authority, reach));
    }

    /// The network of this orchestrator, if it was connected to last.
    pub(crate) fn reach_of(&self, address: &Address) -> Option<Reach> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |(authority, _): &&(String, Reach)| authority == address.authority();
        last.as_ref().filter(is_this).map(|(_, reach)| *reach)
    }
}

impl<In: Transport> Connector<In> for Connected {
    type Out = In;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<In>, Error> {
        let authority = details.uri.authority().map(ToString::to_string).unwrap_or_default();
        self.set(authority, Reach::of_all(details.addrs.iter().map(SocketAddr::ip)));
        Ok(chained)
    }
}

impl Resolver for Finder {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        let is_near = || found.iter().all(|at| at.ip().is_loopback());
        if uri.scheme() == Some(&Scheme::HTTPS) || is_near() {
            return Ok(found);
        }
        let host = uri.host().unwrap_or_default();
        Err(Error::BadUri(format!("{host} is another machine, and this is plain HTTP")))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ureq::unversioned::transport::TcpConnector;
    use ureq::unversioned::transport::time::Duration;

    use super::*;

    #[test]
    fn only_loopback_is_contacted_without_tls() {
        for plain in [
            "http://192.0.2.2:18999",
            "http://fleet.example",
            "http://127.evil.example",
            "http://localhost.evil.example:4870",
            "http://localhost.",
            "http://127.0.0.1.evil.example",
            "http://127.1",
            "http://[::2]:4870",
            "http://[::ffff:192.0.2.2]",
            "HTTP://192.0.2.2",
        ] {
            assert_eq!(plain.parse::<Address>(), Err(AddressError::Plain), "{plain}");
        }
        for other in [
            "http://localhost@192.0.2.2:18999",
            "http://localhost:1@192.0.2.2:18999",
            "http://[::1]@192.0.2.2",
            "https://fleet.example@192.0.2.2",
            "https://fleet.example/prefix",
            "https://fleet.example?to",
            "https://fleet.example#to",
            "https://fleet.example:0",
            "https://fleet.example:99999",
            "https://fleet.example:",
            "https://",
            "http://localhost\\@192.0.2.2",
            "http://local host",
            "ftp://localhost",
            "fleet.example",
            "localhost:4870",
            "",
        ] {
            assert_eq!(other.parse::<Address>(), Err(AddressError::Form), "{other}");
        }
    }

    #[test]
    fn plain_http_reaches_this_machine_and_https_any() {
        for (text, same) in [
            ("http://127.0.0.1:4870", "http://127.0.0.1:4870"),
            ("http://127.8.9.1/", "http://127.8.9.1"),
            ("http://[::1]", "http://[::1]"),
            ("http://[::1]:4870", "http://[::1]:4870"),
            ("http://localhost:4870", "http://localhost:4870"),
            ("http://LOCALHOST", "http://LOCALHOST"),
            ("https://fleet.example", "https://fleet.example"),
            ("HTTPS://192.0.2.2:443/", "https://192.0.2.2:443"),
            ("https://[2001:db8::1]:4870", "https://[2001:db8::1]:4870"),
        ] {
            let address = text.parse::<Address>().map(|it| it.to_string());
            assert_eq!(address, Ok(same.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_reach_of_an_orchestrator_follows_its_address_and_names_are_global() {
        for (text, reach) in [
            ("http://127.0.0.1:4870", Reach::Loopback),
            ("http://localhost", Reach::Loopback),
            ("https://[::1]:4870", Reach::Loopback),
            ("https://192.168.1.2:4870", Reach::Private),
            ("https://[fd00::1]", Reach::Private),
            ("https://1.1.1.1", Reach::Global),
            ("https://169.254.1.1", Reach::Global),
            ("https://fleet.example", Reach::Global),
        ] {
            assert_eq!(text.parse::<Address>().expect(text).reach(), reach, "{text}");
        }
    }

    /// A name that resolves to `first` the first time, and to a private address from then on.
    #[derive(Debug)]
    struct Rebinding {
        first: SocketAddr,
        lookups: AtomicUsize,
    }

    impl Resolver for Rebinding {
        fn resolve(
            &self,
            _: &Uri,
            _: &Config,
            _: NextTimeout,
        ) -> Result<ResolvedSocketAddrs, Error> {
            let is_first = self.lookups.fetch_add(1, Ordering::Relaxed) == 0;
            let private = SocketAddr::from(([192, 168, 1, 1], self.first.port()));
            let mut found = self.empty();
            found.push(if is_first { self.first } else { private });
            Ok(found)
        }
    }

    #[test]
    fn a_connection_stays_with_the_first_resolved_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let first = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            // Both requests use one connection.
            let (mut stream, _) = listener.accept().expect("a client");
            for _ in 0..2 {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("the rest of the request");
                    request.push(byte[0]);
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("sent");
            }
        });
        let connected = Connected::default();
        let connector = ().chain(TcpConnector::default()).chain(connected.clone());
        let rebinding = Rebinding { first, lookups: AtomicUsize::new(0) };
        let agent = ureq::Agent::with_parts(Config::default(), connector, rebinding);
        let address = Address(format!("http://fleet.example:{}", first.port()));
        assert_eq!(connected.reach_of(&address), None, "before an answer");
        for _ in 0..2 {
            let mut answer = agent.get(address.to_string()).call().expect("it answers");
            answer.body_mut().read_to_vec().expect("an empty body");
            assert_eq!(connected.reach_of(&address), Some(Reach::Loopback));
        }
        let other: Address = "https://fleet.example".parse().expect("an address");
        assert_eq!(connected.reach_of(&other), None);
    }

    #[test]
    fn plain_http_to_a_name_that_resolves_beyond_loopback_is_refused() {
        let find = |text: &str| {
            let uri: Uri = text.parse().expect("a URL");
            let timeout = NextTimeout {
                after: Duration::NotHappening,
                reason: ureq::Timeout::Resolve,
                per_read: None,
                per_write: None,
            };
            Finder::default().resolve(&uri, &Config::default(), timeout).map(|found| found.len())
        };
        let address: Address = "https://192.0.2.2:4870".parse().expect("an address");
        assert_eq!(address.authority(), "192.0.2.2:4870");
        // An address in the URL is used as a resolver's answer for `localhost`.
        assert!(matches!(find("http://192.0.2.2/"), Err(Error::BadUri(_))));
        assert!(matches!(find("http://[2001:db8::1]/"), Err(Error::BadUri(_))));
        for good in ["http://127.0.0.1/", "http://[::1]:1/", "https://192.0.2.2/"] {
            assert_eq!(find(good).expect(good), 1);
        }
    }
}
