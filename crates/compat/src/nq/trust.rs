//! The certificates that a client accepts: those of the system's authorities, or one by
//! fingerprint.

use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore, version};
use std::sync::Arc;

use underload_probe::control::Fingerprint;

use super::NqError;

/// How a server proves its identity. This check cannot be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqTrust {
    /// Trusts the authorities that the operating system trusts, as a browser does.
    System,
    /// Trusts a certificate by its fingerprint, as for underload's own servers.
    Pinned(Fingerprint),
}

impl NqTrust {
    /// Makes the TLS configuration of a client: TLS 1.3, whose handshake takes one round trip, with
    /// `protocol` inside.
    pub(crate) fn client_config(self, protocol: &[u8]) -> Result<Arc<ClientConfig>, NqError> {
        let mut config = match self {
            Self::Pinned(fingerprint) => fingerprint.client_config()?.as_ref().clone(),
            Self::System => ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_protocol_versions(&[&version::TLS13])
                .map_err(NqError::Tls)?
                .with_root_certificates(system_authorities()?)
                .with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        // Every new connection makes a full handshake.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

fn system_authorities() -> Result<RootCertStore, NqError> {
    let mut authorities = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    // Some systems have certificates that cannot be parsed; the others are used.
    authorities.add_parsable_certificates(loaded.certs);
    if authorities.is_empty() {
        return Err(NqError::NoAuthorities);
    }
    Ok(authorities)
}
