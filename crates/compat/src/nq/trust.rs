//! Whose certificates are good: those of the system's authorities, or one that is known.

use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore, version};
use std::sync::Arc;

use underload_probe::control::Fingerprint;

use super::NqError;

/// How a server proves who it is. There is no way to believe everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqTrust {
    /// As in a browser: by the authorities that the operating system trusts.
    System,
    /// By the fingerprint of its certificate, as for one of our own servers.
    Pinned(Fingerprint),
}

impl NqTrust {
    /// For a client's connections: TLS 1.3, whose handshake takes one round trip, and the protocol
    /// inside it.
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
        // Every fresh connection makes its handshake in full.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

fn system_authorities() -> Result<RootCertStore, NqError> {
    let mut authorities = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    // Some systems carry certificates that nobody can read; those that can be read do.
    authorities.add_parsable_certificates(loaded.certs);
    if authorities.is_empty() {
        return Err(NqError::NoAuthorities);
    }
    Ok(authorities)
}
