//! How a client authenticates a server: by the fingerprint of the server's key.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme, version};
use underload_disk::{self as disk, Access, Others};

use super::error::ServiceError;
use super::fingerprint::Fingerprint;
use super::private::{self, LOCK_PATIENCE};

impl Fingerprint {
    /// Returns the fingerprint of the certificate in a PEM file.
    ///
    /// # Errors
    /// Returns [`ServiceError::Certificate`] if the file has no certificate that can be parsed.
    pub fn of_pem(path: &Path) -> Result<Self, ServiceError> {
        let certificate = CertificateDer::from_pem_file(path)
            .map_err(|error| ServiceError::certificate(path, error))?;
        Self::of(&certificate).map_err(|error| ServiceError::certificate(path, error))
    }

    /// Returns the fingerprint of the key in `certificate`, by which clients and tokens name a server.
    ///
    /// # Errors
    /// Returns the TLS library's error if the certificate cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Self::digest(&key))
    }

    /// Returns the TLS 1.3 configuration of a client that accepts only the server of this
    /// fingerprint.
    ///
    /// # Errors
    /// Returns [`ServiceError::Tls`] if the cryptographic library does not support TLS 1.3.
    pub fn client_config(self) -> Result<Arc<ClientConfig>, ServiceError> {
        Pin::new(&[self]).client_config()
    }
}

impl FromStr for Fingerprint {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        Self::parse(text).ok_or_else(|| ServiceError::Fingerprint { text: text.to_owned() })
    }
}

/// Which server a client accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Only the server with this key.
    Pinned(Fingerprint),
    /// The server that the first connection reached. `known_servers` stores one "HOST:PORT
    /// sha256:HEX" per line; the file is created when it is first needed.
    FirstUse { known_servers: PathBuf },
}

impl Trust {
    /// Returns the key that `host` must show; `None` if `host` is unknown.
    ///
    /// # Errors
    /// Returns [`ServiceError::KnownServers`] for a malformed line, and the errors of
    /// [`private::read_secret`].
    pub fn expected(&self, host: &str) -> Result<Option<Fingerprint>, ServiceError> {
        let path = match self {
            Self::Pinned(fingerprint) => return Ok(Some(*fingerprint)),
            Self::FirstUse { known_servers } => known_servers,
        };
        for (index, line) in read_lines(path)?.lines().enumerate() {
            let malformed = || ServiceError::KnownServers { path: path.clone(), line: index + 1 };
            if line.trim().is_empty() {
                continue;
            }
            let (name, fingerprint) = line.trim().split_once(' ').ok_or_else(malformed)?;
            let fingerprint = fingerprint.parse().map_err(|_| malformed())?;
            if name == host {
                return Ok(Some(fingerprint));
            }
        }
        Ok(None)
    }

    /// Returns the file of known servers; `None` if the user gave the fingerprint.
    pub fn known_servers(&self) -> Option<&Path> {
        match self {
            Self::Pinned(_) => None,
            Self::FirstUse { known_servers } => Some(known_servers),
        }
    }

    /// Stores a new server. Programs that do so at the same time lose no line.
    ///
    /// # Errors
    /// Returns [`ServiceError::Imposter`] if another key is known, and the errors of
    /// [`Trust::expected`].
    pub fn remember(&self, host: &str, seen: Fingerprint) -> Result<(), ServiceError> {
        let Self::FirstUse { known_servers } = self else { return Ok(()) };
        let parent = disk::directory_of(known_servers);
        let error = |source| ServiceError::File { path: parent.to_owned(), source };
        disk::create_directory(parent, Access::Owner).map_err(error)?;
        let _lock = disk::lock_directory(parent, LOCK_PATIENCE).map_err(error)?;
        match self.expected(host)? {
            None => {}
            Some(known) if known == seen => return Ok(()),
            Some(known) => {
                let (host, path) = (host.to_owned(), Some(known_servers.clone()));
                return Err(ServiceError::Imposter { host, seen, known, known_servers: path });
            }
        }
        let mut text = read_lines(known_servers)?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        private::write(known_servers, format!("{text}{host} {seen}\n").as_bytes())
    }
}

/// Reads the file of known servers. Other users may read it; one who could write it could
/// impersonate every server.
fn read_lines(path: &Path) -> Result<String, ServiceError> {
    if !path.exists() {
        return Ok(String::new());
    }
    let file = private::open(path, Others::AllRead)?;
    io::read_to_string(file).map_err(|source| ServiceError::File { path: path.to_owned(), source })
}

/// A certificate verifier that accepts only a key with all `expected` fingerprints, or any key if
/// `expected` is empty, and stores which one was shown. TLS checks in every case that the server has
/// the private key.
#[derive(Debug)]
pub struct Pin {
    expected: Vec<Fingerprint>,
    seen: Mutex<Option<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl Pin {
    pub fn new(expected: &[Fingerprint]) -> Arc<Self> {
        let provider = Arc::new(provider::default_provider());
        Arc::new(Self { expected: expected.to_vec(), seen: Mutex::new(None), provider })
    }

    /// Returns the fingerprint of the key that the server showed; `None` before the handshake.
    pub fn seen(&self) -> Option<Fingerprint> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the configuration of a client: TLS 1.3 and nothing older.
    ///
    /// # Errors
    /// Returns [`ServiceError::Tls`] if the cryptographic library does not support TLS 1.3.
    pub fn client_config(self: &Arc<Self>) -> Result<Arc<ClientConfig>, ServiceError> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder =
            builder.with_protocol_versions(&[&version::TLS13]).map_err(ServiceError::Tls)?;
        let verifier = Arc::clone(self) as Arc<dyn ServerCertVerifier>;
        let config = builder.dangerous().with_custom_certificate_verifier(verifier);
        Ok(Arc::new(config.with_no_client_auth()))
    }
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let shown = Fingerprint::of(end_entity)?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        if self.expected.iter().any(|expected| *expected != shown) {
            return Err(TlsError::General("the key is not the known one".to_owned()));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("TLS 1.2 is not supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use underload_disk::faults;

    use super::*;

    #[test]
    fn clients_that_remember_at_once_lose_no_line() {
        let directory = faults::private_tempdir().unwrap();
        let known_servers = directory.path().join("new/known");
        let trust = Trust::FirstUse { known_servers };
        let remember = |number: u8| {
            let trust = &trust;
            move || trust.remember(&format!("host-{number}:1"), Fingerprint([number; 32])).unwrap()
        };
        std::thread::scope(|scope| {
            (0..40).for_each(|number| drop(scope.spawn(remember(number))));
        });
        for number in 0..40 {
            let expected = trust.expected(&format!("host-{number}:1")).unwrap();
            assert_eq!(expected, Some(Fingerprint([number; 32])));
        }
        // A second key for a remembered host is an error; the file keeps the first key.
        let second = trust.remember("host-1:1", Fingerprint([99; 32]));
        assert!(matches!(second, Err(ServiceError::Imposter { .. })), "{second:?}");
        assert_eq!(trust.expected("host-1:1").unwrap(), Some(Fingerprint([1; 32])));
    }

    #[test]
    fn a_certificate_that_is_renewed_with_its_key_is_the_same_server() {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let renewed = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let renewed = renewed.self_signed(&made.signing_key).unwrap();
        assert_ne!(made.cert.der(), renewed.der(), "the premise: another certificate");
        let old = Fingerprint::of(made.cert.der()).unwrap();
        let shown = |pinned: Fingerprint| {
            let name = ServerName::try_from("a.example").unwrap();
            let now = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
            let pin = Pin::new(&[pinned]);
            pin.verify_server_cert(renewed.der(), &[], &name, &[], now).is_ok()
        };
        assert!(shown(old), "pinned by its key");
        assert!(!shown(Fingerprint::digest(renewed.der())) && !shown(Fingerprint([0; 32])));
    }

    #[test]
    fn known_servers_are_remembered_and_bad_lines_named() {
        let directory = faults::private_tempdir().unwrap();
        let known_servers = directory.path().join("known");
        let trust = Trust::FirstUse { known_servers: known_servers.clone() };
        assert_eq!(trust.expected("a:1").unwrap(), None);
        let (a, b) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        trust.remember("a:1", a).unwrap();
        trust.remember("b:1", b).unwrap();
        assert_eq!(trust.expected("a:1").unwrap(), Some(a));
        assert_eq!(trust.expected("b:1").unwrap(), Some(b));
        assert_eq!(trust.expected("a:2").unwrap(), None);
        fs::write(&known_servers, format!("a:1 {a}\nnonsense\n")).unwrap();
        let error = trust.expected("b:1").unwrap_err().to_string();
        assert!(error.contains(":2:"), "{error}");
        assert_eq!(a.to_string().parse::<Fingerprint>().unwrap(), a);
        assert!("sha256:12".parse::<Fingerprint>().is_err());
    }
}
