//! Who a server is: a certificate of its own, pinned by its fingerprint.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, ServerConfig, SignatureScheme, version,
};

use super::ServiceError;
use super::message::{from_hex, to_hex};

/// SHA-256 of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of the certificate in a PEM file.
    ///
    /// # Errors
    /// [`ServiceError::Pem`] if it cannot be read or holds none.
    pub fn of_pem(path: &Path) -> Result<Self, ServiceError> {
        let wrong = |error: rustls::pki_types::pem::Error| {
            let (path, what) = (path.to_owned(), error.to_string());
            ServiceError::Pem { path, what }
        };
        Ok(Self::of(&CertificateDer::from_pem_file(path).map_err(wrong)?))
    }

    fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut octets = [0; 32];
        octets.copy_from_slice(digest.as_ref());
        Self(octets)
    }
}

/// As [`Fingerprint::from_str`] reads it.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", to_hex(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let octets = text.strip_prefix("sha256:").and_then(from_hex);
        let wrong = || {
            let what = format!("fingerprint {text:?} is not \"sha256:\" and 64 hexadecimal digits");
            ServiceError::Tls(what)
        };
        octets.map(Self).ok_or_else(wrong)
    }
}

/// A server's certificate and its key.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    /// A new one, which nobody knows.
    ///
    /// # Errors
    /// [`ServiceError::Tls`] if there is no randomness.
    pub fn generate() -> Result<Self, ServiceError> {
        let made = rcgen::generate_simple_self_signed(vec!["underload".to_owned()])
            .map_err(|error| ServiceError::Tls(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self { certificate: made.cert.der().clone(), key })
    }

    /// The one that `directory` holds, or a new one that is then kept there, readable by its owner
    /// alone.
    ///
    /// # Errors
    /// [`ServiceError::File`] for what the file system says.
    pub fn load_or_create(directory: &Path) -> Result<Self, ServiceError> {
        let (certificate, key) = (directory.join("certificate.der"), directory.join("key.der"));
        match (fs::read(&certificate), fs::read(&key)) {
            (Ok(certificate), Ok(key)) => {
                let certificate = CertificateDer::from(certificate);
                Ok(Self { certificate, key: PrivatePkcs8KeyDer::from(key) })
            }
            (Err(error), Err(_)) if error.kind() == io::ErrorKind::NotFound => {
                let made = Self::generate()?;
                let failed = |source| ServiceError::File { path: directory.to_owned(), source };
                DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
                write_private(&key, made.key.secret_pkcs8_der())?;
                write_private(&certificate, &made.certificate)?;
                Ok(made)
            }
            (Err(source), _) => Err(ServiceError::File { path: certificate, source }),
            (_, Err(source)) => Err(ServiceError::File { path: key, source }),
        }
    }

    /// A certificate and its key in PEM, for example of a public authority; of a chain the first
    /// certificate is used, because clients pin it and believe no authority.
    ///
    /// # Errors
    /// [`ServiceError::Pem`] if a file cannot be read or holds none.
    pub fn from_pem(certificate: &Path, key: &Path) -> Result<Self, ServiceError> {
        let wrong = |path: &Path, error: &dyn fmt::Display| ServiceError::Pem {
            path: path.to_owned(),
            what: error.to_string(),
        };
        let key_path = key;
        let parsed = CertificateDer::from_pem_file(certificate);
        let certificate = parsed.map_err(|error| wrong(certificate, &error))?;
        let key = PrivatePkcs8KeyDer::from_pem_file(key_path);
        let key = key.map_err(|error| wrong(key_path, &error))?;
        Ok(Self { certificate, key })
    }

    /// What clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// For the server's end of a connection: TLS 1.3 and nothing older.
    pub(crate) fn server_config(self) -> Result<Arc<ServerConfig>, ServiceError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()));
        let config = builder
            .with_protocol_versions(&[&version::TLS13])
            .map(rustls::ConfigBuilder::<ServerConfig, _>::with_no_client_auth)
            .and_then(|builder| {
                builder.with_single_cert(vec![self.certificate], PrivateKeyDer::Pkcs8(self.key))
            })
            .map_err(|error| ServiceError::Tls(error.to_string()))?;
        Ok(Arc::new(config))
    }
}

/// Writes a file whole or not at all.
pub(super) fn write_private(path: &Path, octets: &[u8]) -> Result<(), ServiceError> {
    let failed = |source| ServiceError::File { path: path.to_owned(), source };
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .map_err(failed)?;
    let written = file.write_all(octets).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(&unfinished, path));
    renamed.inspect_err(|_| drop(fs::remove_file(&unfinished))).map_err(failed)
}

/// Whom a client believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The server with this certificate and no other.
    Pinned(Fingerprint),
    /// The server that was there the first time, remembered in this file, one "HOST:PORT
    /// sha256:HEX" per line.
    FirstUse {
        /// The file of known servers; made when it is first needed.
        known_servers: PathBuf,
    },
}

impl Trust {
    /// What `host` must show; `None` if it is new.
    pub(super) fn expected(&self, host: &str) -> Result<Option<Fingerprint>, ServiceError> {
        let path = match self {
            Self::Pinned(fingerprint) => return Ok(Some(*fingerprint)),
            Self::FirstUse { known_servers } => known_servers,
        };
        for (index, line) in read_lines(path)?.lines().enumerate() {
            let wrong = || ServiceError::KnownServers { path: path.clone(), line: index + 1 };
            if line.trim().is_empty() {
                continue;
            }
            let (name, fingerprint) = line.trim().split_once(' ').ok_or_else(wrong)?;
            let fingerprint = fingerprint.parse().map_err(|_| wrong())?;
            if name == host {
                return Ok(Some(fingerprint));
            }
        }
        Ok(None)
    }

    /// Remembers a new server.
    pub(super) fn remember(&self, host: &str, seen: Fingerprint) -> Result<(), ServiceError> {
        let Self::FirstUse { known_servers } = self else { return Ok(()) };
        let old = read_lines(known_servers)?;
        let text = format!("{}{host} {seen}\n", with_line_end(&old));
        if let Some(parent) = known_servers.parent().filter(|path| !path.as_os_str().is_empty()) {
            let failed = |source| ServiceError::File { path: parent.to_owned(), source };
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        write_private(known_servers, text.as_bytes())
    }
}

fn with_line_end(text: &str) -> String {
    let is_open = !text.is_empty() && !text.ends_with('\n');
    format!("{text}{}", if is_open { "\n" } else { "" })
}

fn read_lines(path: &Path) -> Result<String, ServiceError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(ServiceError::File { path: path.to_owned(), source }),
    }
}

/// Accepts one certificate, or any while none is known, and remembers which one was shown. That the
/// server holds the certificate's key is checked in every case.
#[derive(Debug)]
pub(crate) struct Pin {
    expected: Option<Fingerprint>,
    seen: Mutex<Option<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl Pin {
    pub(crate) fn new(expected: Option<Fingerprint>) -> Arc<Self> {
        let provider = Arc::new(provider::default_provider());
        Arc::new(Self { expected, seen: Mutex::new(None), provider })
    }

    pub(super) fn seen(&self) -> Option<Fingerprint> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the client's end of a connection: TLS 1.3 and nothing older.
    pub(crate) fn client_config(self: &Arc<Self>) -> Result<Arc<ClientConfig>, ServiceError> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| ServiceError::Tls(error.to_string()))?;
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
        let fingerprint = Fingerprint::of(end_entity);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
        if self.expected.is_some_and(|expected| expected != fingerprint) {
            return Err(TlsError::General("not the certificate that is known".to_owned()));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("TLS 1.2 is not spoken here".to_owned()))
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
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_identity_is_made_once_and_kept_private() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("a/b");
        let made = rcgen::generate_simple_self_signed(vec!["underload".to_owned()]).unwrap();
        let (pem, key) = (directory.path().join("c.pem"), directory.path().join("k.pem"));
        fs::write(&pem, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let given = Identity::from_pem(&pem, &key).unwrap();
        assert_eq!(given.fingerprint(), Fingerprint::of_pem(&pem).unwrap());
        assert!(Identity::from_pem(&key, &pem).is_err());
        let first = Identity::load_or_create(&home).unwrap().fingerprint();
        assert_eq!(Identity::load_or_create(&home).unwrap().fingerprint(), first);
        let mode = fs::metadata(home.join("key.der")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&home).unwrap().count(), 2);
        // Half an identity is an error, not a reason to become somebody else.
        fs::remove_file(home.join("key.der")).unwrap();
        assert!(matches!(Identity::load_or_create(&home), Err(ServiceError::File { .. })));
    }

    #[test]
    fn known_servers_are_remembered_and_bad_lines_named() {
        let directory = tempfile::tempdir().unwrap();
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
