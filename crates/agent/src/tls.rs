//! HTTPS that trusts the owner of a key, or the system's certificate authorities.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::ring as provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use underload_probe::control::{Fingerprint, ServiceError};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Only the orchestrator with this key.
    Pinned(Fingerprint),
    /// Orchestrators with a certificate of the system's authorities for the name in the address.
    Authorities,
}

impl FromStr for Trust {
    type Err = <Fingerprint as FromStr>::Err;

    /// Parses the key of [`Trust::Pinned`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::Pinned)
    }
}

impl Trust {
    /// Returns the TLS configuration.
    pub(crate) fn config(self) -> Result<Arc<ClientConfig>, ServiceError> {
        match self {
            Self::Pinned(fingerprint) => fingerprint.client_config(),
            Self::Authorities => {
                let mut roots = RootCertStore::empty();
                // Without authorities, no orchestrator is trusted.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                let provider = Arc::new(provider::default_provider());
                let builder = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .map_err(ServiceError::Tls)?;
                Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
            }
        }
    }
}

pub(crate) struct TlsConnector(pub Arc<ClientConfig>);

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|_| Error::HostNotFound)?;
        let failed = |error| Error::Io(std::io::Error::other::<rustls::Error>(error));
        let mut connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(failed)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let stream = StreamOwned::new(connection, socket);
        Ok(Some(Either::B(TlsTransport { buffers, stream })))
    }
}

pub(crate) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
