//! A server's identity: a key pair. Clients pin its fingerprint; the certificate only carries the
//! public key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use data_encoding::BASE64;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{Error as TlsError, ServerConfig, version};
use underload_disk::{self as disk, Others};
use underload_probe::control::private::{self, LOCK_PATIENCE};
use underload_probe::control::{Fingerprint, ServiceError};

use crate::stamp::Stamp;

/// The files of an identity. [`WAITING`] is a certificate whose key is not on disk yet.
const CERTIFICATE: &str = "certificate.der";
const KEY: &str = "key.der";
const WAITING: &str = "certificate.der.new";

#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    fingerprint: Fingerprint,
    files: Option<PemFiles>,
}

/// The files that an identity was read from, and their stamps, to detect a replacement.
#[derive(Clone, Debug)]
pub(crate) struct PemFiles {
    certificate: PathBuf,
    key: PathBuf,
    stamps: [Option<Stamp>; 2],
}

impl PemFiles {
    fn new(certificate: &Path, key: &Path) -> Self {
        let stamps = [Stamp::read(certificate), Stamp::read(key)];
        Self { certificate: certificate.to_owned(), key: key.to_owned(), stamps }
    }

    /// Reads the identity again if a file changed since the last call; `None` if none changed.
    pub(crate) fn renewed(&mut self) -> Option<Result<Identity, ServiceError>> {
        let now = Self::new(&self.certificate, &self.key);
        if now.stamps == self.stamps {
            return None;
        }
        *self = now;
        Some(Identity::from_pem(&self.certificate, &self.key))
    }
}

impl Identity {
    /// Generates a new key and a self-signed certificate.
    ///
    /// # Errors
    /// Returns [`ServiceError::NewCertificate`] without random numbers.
    pub fn generate() -> Result<Self, ServiceError> {
        let made = rcgen::generate_simple_self_signed(vec!["underload".to_owned()])
            .map_err(|error| ServiceError::NewCertificate(Box::new(error)))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Self::new(made.cert.der().clone(), key).map_err(ServiceError::Tls)
    }

    fn new(
        certificate: CertificateDer<'static>,
        key: PrivatePkcs8KeyDer<'static>,
    ) -> Result<Self, TlsError> {
        let fingerprint = Fingerprint::of(&certificate)?;
        Ok(Self { certificate, key, fingerprint, files: None })
    }

    /// Loads the identity in `directory`, or generates and stores one that only its owner can read.
    ///
    /// A new certificate has another name until its key is on disk: after a crash or a power cut
    /// the next start finds a complete identity or none.
    ///
    /// # Errors
    /// Returns [`ServiceError::File`] if reading or writing fails, [`ServiceError::Keys`] for half
    /// an identity, a directory that others can enter, and a key that others can read or own.
    pub fn load_or_create(directory: &Path) -> Result<Self, ServiceError> {
        private::directory(directory)?;
        if let Some(stored) = Self::load(directory)? {
            return Ok(stored);
        }
        let error = |source| ServiceError::File { path: directory.to_owned(), source };
        let _lock = disk::lock_directory(directory, LOCK_PATIENCE).map_err(error)?;
        // Another server may have created it meanwhile.
        if let Some(stored) = Self::load(directory)? {
            return Ok(stored);
        }
        let waiting = directory.join(WAITING);
        if !directory.join(KEY).exists() {
            let made = Self::generate()?;
            private::write(&waiting, &made.certificate)?;
            private::write(&directory.join(KEY), made.key.secret_pkcs8_der())?;
        }
        let certificate = private::read_secret(&waiting)?;
        private::write(&directory.join(CERTIFICATE), &certificate)?;
        disk::remove(&waiting).map_err(error)?;
        Self::load(directory)?.ok_or_else(|| error(io::ErrorKind::NotFound.into()))
    }

    /// Loads the complete identity of a directory; `None` if the directory has none.
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
                let der = fs::read(&certificate)
                    .map_err(|source| ServiceError::File { path: certificate.clone(), source })?;
                let identity = Self::new(CertificateDer::from(der), key);
                identity.map(Some).map_err(|error| ServiceError::certificate(&certificate, error))
            }
            (false, false) => Ok(None),
            (false, true) if directory.join(WAITING).exists() => Ok(None),
            (false, true) => Err(half(&certificate, KEY)),
            (true, false) => Err(half(&key, CERTIFICATE)),
        }
    }

    /// Loads a certificate and its key in PEM, for example of a public authority. Of a chain only
    /// the first certificate is used, because clients pin its key and trust no authority.
    ///
    /// # Errors
    /// Returns [`ServiceError::Certificate`] if a file has no certificate or key that can be
    /// parsed, [`ServiceError::Keys`] if every user can read the key.
    pub fn from_pem(certificate: &Path, key: &Path) -> Result<Self, ServiceError> {
        let files = PemFiles::new(certificate, key);
        let key_path = key;
        let parsed = CertificateDer::from_pem_file(certificate);
        let der = parsed.map_err(|error| ServiceError::certificate(certificate, error))?;
        // The tools of public authorities let a group read the key.
        let key = PrivatePkcs8KeyDer::from_pem_reader(private::open(key_path, Others::GroupReads)?);
        let key = key.map_err(|error| ServiceError::certificate(key_path, error))?;
        let made =
            Self::new(der, key).map_err(|error| ServiceError::certificate(certificate, error))?;
        Ok(Self { files: Some(files), ..made })
    }

    /// Returns the fingerprint of the key, which clients pin and tokens name.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns certificate and key in PEM, for another program that serves in this one's name.
    pub fn to_pem(&self) -> [String; 2] {
        let pem = |label: &str, der: &[u8]| {
            let text = BASE64.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        [pem("CERTIFICATE", &self.certificate), pem("PRIVATE KEY", self.key.secret_pkcs8_der())]
    }

    /// Returns the files to watch; `None` if the identity was not read from PEM files.
    pub(crate) fn files(&self) -> Option<PemFiles> {
        self.files.clone()
    }

    /// Returns the configuration of a server: TLS 1.3 and nothing older.
    ///
    /// # Errors
    /// Returns [`ServiceError::Tls`] if the key does not match the certificate.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, ServiceError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()));
        let config = builder
            .with_protocol_versions(&[&version::TLS13])
            .map(rustls::ConfigBuilder::<ServerConfig, _>::with_no_client_auth)
            .and_then(|builder| {
                let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
                builder.with_single_cert(vec![self.certificate.clone()], key)
            })
            .map_err(ServiceError::Tls)?;
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use underload_disk::faults::{self, Tree};

    #[test]
    fn an_identity_is_created_once_and_private() {
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
        // If the key or the certificate is missing, loading fails: a new identity would lock out
        // the clients that pinned the old one.
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
}
