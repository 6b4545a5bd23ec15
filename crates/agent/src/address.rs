//! Where orchestrators are: keys, codes and tokens go to nobody in the clear, except within this
//! machine.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::reach::Reach;

/// An orchestrator's address, such as `https://fleet.example` or `http://127.0.0.1:4870`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

/// Why a text is no address of an orchestrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It has a user, a path or a query, or is no URL at all.
    #[error("expected https://HOST[:PORT], without a user and without a path")]
    Form,
    /// It is plain HTTP to another machine, or to a name that may be one.
    #[error(
        "expected https://HOST[:PORT]: plain HTTP would show keys and tokens to others, and is \
         for `localhost`, 127.0.0.1 and [::1] alone"
    )]
    Plain,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        // The parser of whoever sends: both see the same host.
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
    /// Host and port.
    fn authority(&self) -> &str {
        self.0.split_once("://").map_or("", |(_, authority)| authority)
    }

    /// The network that it is in, as far as that is certain without a name service.
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

/// Whether a host is this machine, whoever is asked for its address.
fn is_this_machine(host: &str) -> bool {
    literal(host).map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback())
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Finds a host. In the clear it leads to this machine alone, whatever `localhost` stands for.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    resolver: DefaultResolver,
    found: Found,
}

/// The host that was found last, and the network that it is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found(Arc<Mutex<Option<(String, Reach)>>>);

impl Found {
    fn set(&self, authority: String, reach: Reach) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((authority, reach));
    }

    /// The network of this orchestrator, if that was found last.
    pub(crate) fn reach_of(&self, address: &Address) -> Option<Reach> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().filter(|(of, _)| of == address.authority()).map(|(_, reach)| *reach)
    }
}

impl Finder {
    pub(crate) fn new(found: Found) -> Self {
        Self { resolver: DefaultResolver::default(), found }
    }
}

impl Resolver for Finder {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.resolver.resolve(uri, config, timeout)?;
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        self.found.set(authority, Reach::of_all(found.iter().map(SocketAddr::ip)));
        let is_near = || found.iter().all(|at| at.ip().is_loopback());
        if uri.scheme() == Some(&Scheme::HTTPS) || is_near() {
            return Ok(found);
        }
        let host = uri.host().unwrap_or_default();
        Err(Error::BadUri(format!("{host} leads to another machine, and this is plain HTTP")))
    }
}

#[cfg(test)]
mod tests {
    use ureq::unversioned::transport::time::Duration;

    use super::*;

    #[test]
    fn nothing_goes_to_another_machine_in_the_clear() {
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
    fn an_orchestrators_network_is_certain_for_an_address_alone() {
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
        // A name counts once it led to an answer.
        let (found, finder) = (Found::default(), Address("https://localhost:1".to_owned()));
        assert_eq!(found.reach_of(&finder), None);
        found.set("localhost:1".to_owned(), Reach::Loopback);
        assert_eq!(found.reach_of(&finder), Some(Reach::Loopback));
        let other: Address = "https://fleet.example".parse().expect("an address");
        assert_eq!(found.reach_of(&other), None);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_not_asked_in_the_clear() {
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
        // What a resolver would answer for `localhost` here stands in the URL.
        assert!(matches!(find("http://192.0.2.2/"), Err(Error::BadUri(_))));
        assert!(matches!(find("http://[2001:db8::1]/"), Err(Error::BadUri(_))));
        for good in ["http://127.0.0.1/", "http://[::1]:1/", "https://192.0.2.2/"] {
            assert_eq!(find(good).expect(good), 1);
        }
    }
}
