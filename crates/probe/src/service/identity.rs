//! Who a server is: a key of its own, pinned by its fingerprint; its certificate says no more.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use data_encoding::HEXLOWER;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, ServerConfig, SignatureScheme, version,
};
use underload_disk::{self as disk, Access, Others};

use super::ServiceError;
use super::message::from_hex;
use super::private;
use super::stamp::Stamp;

/// SHA-256 of a public key, as its certificate has it (`SubjectPublicKeyInfo`, RFC 5280 section
/// 4.1): a certificate that is renewed with the same key keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of the certificate in a PEM file.
    ///
    /// # Errors
    /// [`ServiceError::Certificate`] if it cannot be read or holds none.
    pub fn of_pem(path: &Path) -> Result<Self, ServiceError> {
        let certificate =
            CertificateDer::from_pem_file(path).map_err(|error| unusable(path, error))?;
        let names = Names::of(&certificate).map_err(|error| unusable(path, error))?;
        Ok(names.key())
    }

    /// TLS 1.3 for a client that accepts the server of this fingerprint and no other.
    ///
    /// # Errors
    /// [`ServiceError::Tls`] if the cryptography at hand cannot do it.
    pub fn client_config(self) -> Result<Arc<ClientConfig>, ServiceError> {
        Pin::new(&[self]).client_config()
    }

    fn of(bytes: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest.as_ref());
        Self(fingerprint)
    }
}

/// By what a server may be known: its key, and the whole certificate, which clients pinned and
/// tokens named at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    key: Fingerprint,
    certificate: Fingerprint,
}

impl Names {
    fn of(certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Self { key: Fingerprint::of(&key), certificate: Fingerprint::of(certificate) })
    }

    /// What is shown, pinned and named from now on.
    pub(crate) fn key(&self) -> Fingerprint {
        self.key
    }

    /// True if the server is the one that `fingerprint` means.
    pub(crate) fn include(&self, fingerprint: Fingerprint) -> bool {
        self.key == fingerprint || self.certificate == fingerprint
    }
}

/// As [`Fingerprint::from_str`] reads it.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", HEXLOWER.encode(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let bytes = text.strip_prefix("sha256:").and_then(from_hex);
        let wrong = || ServiceError::Fingerprint { text: text.to_owned() };
        bytes.map(Self).ok_or_else(wrong)
    }
}

/// Files of an identity; [`WAITING`] is a certificate whose key is not on the disk yet.
const CERTIFICATE: &str = "certificate.der";
const KEY: &str = "key.der";
const WAITING: &str = "certificate.der.new";
/// How long another program may take to write a line, or an identity.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);

/// A server's certificate and its key.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    names: Names,
    files: Option<PemFiles>,
}

/// Where an identity was read from, to notice when it is replaced.
#[derive(Clone, Debug)]
pub(super) struct PemFiles {
    certificate: PathBuf,
    key: PathBuf,
    stamps: [Option<Stamp>; 2],
}

impl PemFiles {
    fn new(certificate: &Path, key: &Path) -> Self {
        let stamps = [Stamp::of(certificate), Stamp::of(key)];
        Self { certificate: certificate.to_owned(), key: key.to_owned(), stamps }
    }

    /// What the files hold now, if they were touched since the last look.
    pub(super) fn renewed(&mut self) -> Option<Result<Identity, ServiceError>> {
        let now = Self::new(&self.certificate, &self.key);
        if now.stamps == self.stamps {
            return None;
        }
        *self = now;
        Some(Identity::from_pem(&self.certificate, &self.key))
    }
}

impl Identity {
    /// A new one, which nobody knows.
    ///
    /// # Errors
    /// [`ServiceError::NewCertificate`] if there is no randomness.
    pub fn generate() -> Result<Self, ServiceError> {
        let made = rcgen::generate_simple_self_signed(vec!["underload".to_owned()])
            .map_err(ServiceError::NewCertificate)?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Self::new(made.cert.der().clone(), key).map_err(ServiceError::Tls)
    }

    fn new(
        certificate: CertificateDer<'static>,
        key: PrivatePkcs8KeyDer<'static>,
    ) -> Result<Self, TlsError> {
        let names = Names::of(&certificate)?;
        Ok(Self { certificate, key, names, files: None })
    }

    /// The one that `directory` holds, or a new one that is then kept there, readable by its owner
    /// alone.
    ///
    /// A new certificate waits under another name until its key is on the disk: whoever is killed
    /// or loses power meanwhile finds a whole identity the next time, or none.
    ///
    /// # Errors
    /// [`ServiceError::File`] for what the file system says, [`ServiceError::Keys`] for half an
    /// identity, for a directory that others can enter, and for a key that others can read or that
    /// belongs to somebody else.
    pub fn load_or_create(directory: &Path) -> Result<Self, ServiceError> {
        private::directory(directory)?;
        if let Some(kept) = Self::load(directory)? {
            return Ok(kept);
        }
        let failed = |source| ServiceError::File { path: directory.to_owned(), source };
        let _lock = disk::lock_directory(directory, LOCK_PATIENCE).map_err(failed)?;
        // Another server may have been quicker.
        if let Some(kept) = Self::load(directory)? {
            return Ok(kept);
        }
        let waiting = directory.join(WAITING);
        if !directory.join(KEY).exists() {
            let made = Self::generate()?;
            private::write(&waiting, &made.certificate)?;
            private::write(&directory.join(KEY), made.key.secret_pkcs8_der())?;
        }
        let certificate = private::read_secret(&waiting)?;
        private::write(&directory.join(CERTIFICATE), &certificate)?;
        disk::remove(&waiting).map_err(failed)?;
        Self::load(directory)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// The whole identity of a directory; `None` where none was finished.
    fn load(directory: &Path) -> Result<Option<Self>, ServiceError> {
        let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
        let half = |missing: &Path, other: &str| ServiceError::Keys {
            path: missing.to_owned(),
            what: format!(
                "missing, though {other} is there: bring it back from a copy, or remove {other} \
                 and be a new server to every client"
            ),
        };
        match (certificate.exists(), key.exists()) {
            (true, true) => {
                let key = PrivatePkcs8KeyDer::from(private::read_secret(&key)?);
                let read = fs::read(&certificate);
                let failed = |source| ServiceError::File { path: certificate, source };
                let der = CertificateDer::from(read.map_err(failed)?);
                let made = Self::new(der, key);
                made.map(Some).map_err(|error| unusable(&directory.join(CERTIFICATE), error))
            }
            (false, false) => Ok(None),
            (false, true) if directory.join(WAITING).exists() => Ok(None),
            (false, true) => Err(half(&certificate, KEY)),
            (true, false) => Err(half(&key, CERTIFICATE)),
        }
    }

    /// A certificate and its key in PEM, for example of a public authority; of a chain the first
    /// certificate is used, because clients pin its key and believe no authority.
    ///
    /// # Errors
    /// [`ServiceError::Certificate`] if a file cannot be read or holds none,
    /// [`ServiceError::Keys`] if everybody can read the key.
    pub fn from_pem(certificate: &Path, key: &Path) -> Result<Self, ServiceError> {
        let files = PemFiles::new(certificate, key);
        let key_path = key;
        let parsed = CertificateDer::from_pem_file(certificate);
        let der = parsed.map_err(|error| unusable(certificate, error))?;
        // Public authorities' tools let a group of servers read it.
        let key = PrivatePkcs8KeyDer::from_pem_reader(private::open(key_path, Others::GroupReads)?);
        let key = key.map_err(|error| unusable(key_path, error))?;
        let made = Self::new(der, key).map_err(|error| unusable(certificate, error))?;
        Ok(Self { files: Some(files), ..made })
    }

    /// What clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.names.key()
    }

    /// The files to watch, if it came from some.
    pub(super) fn files(&self) -> Option<PemFiles> {
        self.files.clone()
    }

    /// All by which clients and tokens may name it.
    pub(crate) fn names(&self) -> Names {
        self.names
    }

    /// For the server's end of a connection: TLS 1.3 and nothing older.
    ///
    /// # Errors
    /// [`ServiceError::Tls`] if the key does not fit the certificate.
    pub fn server_config(self) -> Result<Arc<ServerConfig>, ServiceError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()));
        let config = builder
            .with_protocol_versions(&[&version::TLS13])
            .map(rustls::ConfigBuilder::<ServerConfig, _>::with_no_client_auth)
            .and_then(|builder| {
                builder.with_single_cert(vec![self.certificate], PrivateKeyDer::Pkcs8(self.key))
            })
            .map_err(ServiceError::Tls)?;
        Ok(Arc::new(config))
    }
}

fn unusable(path: &Path, source: impl std::error::Error + Send + Sync + 'static) -> ServiceError {
    ServiceError::Certificate { path: path.to_owned(), source: Box::new(source) }
}

/// Whom a client believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The server with this key and no other.
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

    /// The file that remembers servers; none where the user named the one.
    pub(super) fn known_servers(&self) -> Option<&Path> {
        match self {
            Self::Pinned(_) => None,
            Self::FirstUse { known_servers } => Some(known_servers),
        }
    }

    /// Remembers a new server. Of several programs that do so at once each keeps its line.
    pub(super) fn remember(&self, host: &str, seen: Fingerprint) -> Result<(), ServiceError> {
        let Self::FirstUse { known_servers } = self else { return Ok(()) };
        let parent = disk::directory_of(known_servers);
        let failed = |source| ServiceError::File { path: parent.to_owned(), source };
        disk::create_directory(parent, Access::Owner).map_err(failed)?;
        let _lock = disk::lock_directory(parent, LOCK_PATIENCE).map_err(failed)?;
        match self.expected(host)? {
            None => {}
            Some(known) if known == seen => return Ok(()),
            Some(known) => {
                let (host, path) = (host.to_owned(), Some(known_servers.clone()));
                return Err(ServiceError::Imposter { host, seen, known, known_servers: path });
            }
        }
        let old = read_lines(known_servers)?;
        let text = format!("{}{host} {seen}\n", with_line_end(&old));
        private::write(known_servers, text.as_bytes())
    }
}

fn with_line_end(text: &str) -> String {
    let is_open = !text.is_empty() && !text.ends_with('\n');
    format!("{text}{}", if is_open { "\n" } else { "" })
}

/// The file of known servers; whoever could change it could be any of them.
fn read_lines(path: &Path) -> Result<String, ServiceError> {
    if !path.exists() {
        return Ok(String::new());
    }
    let file = private::open(path, Others::AllRead)?;
    let failed = |source| ServiceError::File { path: path.to_owned(), source };
    io::read_to_string(file).map_err(failed)
}

/// Accepts one key, or any while none is known, and remembers which one was shown. That the server
/// holds the key is checked in every case.
#[derive(Debug)]
pub(crate) struct Pin {
    /// Each must name the server.
    expected: Vec<Fingerprint>,
    seen: Mutex<Option<Names>>,
    provider: Arc<CryptoProvider>,
}

impl Pin {
    pub(crate) fn new(expected: &[Fingerprint]) -> Arc<Self> {
        let provider = Arc::new(provider::default_provider());
        Arc::new(Self { expected: expected.to_vec(), seen: Mutex::new(None), provider })
    }

    pub(super) fn seen(&self) -> Option<Names> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the client's end of a connection: TLS 1.3 and nothing older.
    pub(crate) fn client_config(self: &Arc<Self>) -> Result<Arc<ClientConfig>, ServiceError> {
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
        let names = Names::of(end_entity)?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(names);
        if !self.expected.iter().all(|expected| names.include(*expected)) {
            return Err(TlsError::General("not the key that is known".to_owned()));
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
    use underload_disk::faults::{self, Tree};

    #[test]
    fn an_identity_is_made_once_and_kept_private() {
        let directory = faults::private_tempdir().unwrap();
        let home = directory.path().join("a/b");
        let made = rcgen::generate_simple_self_signed(vec!["underload".to_owned()]).unwrap();
        let (pem, key) = (directory.path().join("c.pem"), directory.path().join("k.pem"));
        fs::write(&pem, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Identity::from_pem(&pem, &key).unwrap_err().to_string();
        assert!(error.contains("others can read it"), "{error}");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let given = Identity::from_pem(&pem, &key).unwrap();
        assert_eq!(given.fingerprint(), Fingerprint::of_pem(&pem).unwrap());
        assert!(Identity::from_pem(&key, &pem).is_err());
        let first = Identity::load_or_create(&home).unwrap().fingerprint();
        assert_eq!(Identity::load_or_create(&home).unwrap().fingerprint(), first);
        let mode = fs::metadata(home.join("key.der")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&home).unwrap().count(), 2);
        // Half an identity is an error, not a reason to become somebody else.
        for half in [KEY, CERTIFICATE] {
            let bytes = fs::read(home.join(half)).unwrap();
            fs::remove_file(home.join(half)).unwrap();
            let error = Identity::load_or_create(&home).unwrap_err().to_string();
            assert!(error.contains(half) && error.contains("bring it back"), "{error}");
            private::write(&home.join(half), &bytes).unwrap();
        }
        assert_eq!(Identity::load_or_create(&home).unwrap().fingerprint(), first);
    }

    #[test]
    fn a_server_that_was_killed_or_lost_power_has_its_identity_the_next_time() {
        let action = |root: &Path| Identity::load_or_create(&root.join("id"));
        faults::at_every_step(&Tree::new(), action, |fault, root, outcome| {
            let first = outcome.result.as_ref().ok().map(Identity::fingerprint);
            assert!(outcome.is_hit || first.is_some(), "{fault:?}: {:?}", outcome.result);
            let left = faults::tree(root);
            for tree in outcome.after_power_cut.iter().chain([&left]) {
                faults::restore(root, tree);
                let next = Identity::load_or_create(&root.join("id"));
                let next = next.unwrap_or_else(|error| panic!("{fault:?}: {error}: {tree:?}"));
                assert!(first.is_none_or(|first| first == next.fingerprint()), "{fault:?}");
            }
        });
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = faults::private_tempdir().unwrap();
        Identity::load_or_create(directory.path()).unwrap();
        let key = directory.path().join(KEY);
        for (mode, verb) in [(0o640, "read"), (0o604, "read"), (0o620, "change")] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::load_or_create(directory.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("others can {verb} it: chmod 600")), "{error}");
        }
    }

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
        // Whoever comes second with another certificate is told, and the first one stays.
        let second = trust.remember("host-1:1", Fingerprint([9; 32]));
        assert!(matches!(second, Err(ServiceError::Imposter { .. })), "{second:?}");
    }

    #[test]
    fn a_certificate_that_is_renewed_with_its_key_is_the_same_server() {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let renewed = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let renewed = renewed.self_signed(&made.signing_key).unwrap();
        let [old, new] = [made.cert.der(), renewed.der()].map(|der| Names::of(der).unwrap());
        assert_ne!(old.certificate, new.certificate, "the premise: another certificate");
        assert_eq!(old.key, new.key);
        let shown = |pinned: Fingerprint| {
            let name = ServerName::try_from("a.example").unwrap();
            let now = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
            let pin = Pin::new(&[pinned]);
            pin.verify_server_cert(renewed.der(), &[], &name, &[], now).is_ok()
        };
        assert!(shown(old.key), "pinned by its key");
        assert!(shown(new.certificate), "pinned as older versions did");
        assert!(!shown(old.certificate) && !shown(Fingerprint([0; 32])));
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
