//! A certificate in files, with its chain, which is read again when the files are replaced.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version;
use underload_disk::{Others, open_private};

pub(super) use rustls::ServerConfig;

/// Configures TLS with a certificate and its chain in one file and the key in another, both PEM.
/// Files that are replaced later are read again; while they cannot be used, the old ones stay in
/// use.
///
/// # Errors
/// Returns an error that names the file which cannot be read or has no certificate or key, or if
/// the certificate and the key do not match.
pub(super) fn server_config(chain: &Path, key: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let resolver = Reloaded::new(chain, key)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&resolver.provider));
    let versions = [&version::TLS13, &version::TLS12];
    let builder = builder.with_protocol_versions(&versions)?.with_no_client_auth();
    Ok(Arc::new(builder.with_cert_resolver(Arc::new(resolver))))
}

#[derive(Debug)]
struct Reloaded {
    provider: Arc<CryptoProvider>,
    files: [PathBuf; 2],
    held: Mutex<LoadedCertificate>,
}

#[derive(Debug)]
struct LoadedCertificate {
    certified: Arc<CertifiedKey>,
    stamps: [Option<Stamp>; 2],
    looked: Instant,
}

/// Interval at which the files are checked for changes.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);

impl Reloaded {
    fn new(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let provider = Arc::new(provider::default_provider());
        let files = [certificate.to_owned(), key.to_owned()];
        let stamps = files.each_ref().map(|path| Stamp::read(path));
        let certified = read(&files, &provider)?;
        let held = Mutex::new(LoadedCertificate { certified, stamps, looked: Instant::now() });
        Ok(Self { provider, files, held })
    }

    fn certified(&self, now: Instant) -> Arc<CertifiedKey> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(held.looked) >= LOOK_INTERVAL {
            held.looked = now;
            let stamps = self.files.each_ref().map(|path| Stamp::read(path));
            // If only one of the files is replaced yet, they do not match: retry at the next check.
            if stamps != held.stamps
                && let Ok(certified) = read(&self.files, &self.provider)
            {
                held.certified = certified;
                held.stamps = stamps;
            }
        }
        Arc::clone(&held.certified)
    }
}

impl ResolvesServerCert for Reloaded {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified(Instant::now()))
    }
}

fn read(
    [certificate, key]: &[PathBuf; 2],
    provider: &CryptoProvider,
) -> anyhow::Result<Arc<CertifiedKey>> {
    let at = |path: &Path| path.display().to_string();
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.with_context(|| at(certificate))?;
    ensure!(!chain.is_empty(), "{}: the file has no certificate", at(certificate));
    let file = open_private(key, Others::GroupReads).with_context(|| at(key))?;
    let secret = PrivateKeyDer::from_pem_reader(file).with_context(|| at(key))?;
    let certified = CertifiedKey::from_der(chain, secret, provider);
    Ok(Arc::new(certified.context("the certificate and its key")?))
}

/// Changes when a file is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    file: u64,
}

impl Stamp {
    fn read(path: &Path) -> Option<Self> {
        let of = |facts: Metadata| Self { modified: facts.modified().ok(), file: facts.ino() };
        std::fs::metadata(path).ok().map(of)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn pem(what: &str, der: &[u8]) -> String {
        let text = data_encoding::BASE64.encode(der);
        format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
    }

    fn put(directory: &Path) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
        let (certificate, key) = (directory.join("chain.pem"), directory.join("key.pem"));
        fs::write(&certificate, pem("CERTIFICATE", made.cert.der())).expect("written");
        fs::write(&key, pem("PRIVATE KEY", &made.signing_key.serialize_der())).expect("written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("changed");
        (certificate, key)
    }

    #[test]
    fn a_replaced_certificate_is_loaded_and_an_incomplete_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let (certificate, key) = put(directory.path());
        let reloaded = Reloaded::new(&certificate, &key).expect("it is one");
        let start = Instant::now();
        let first = reloaded.certified(start).cert.clone();
        let kept = fs::read(&key).expect("read");
        put(directory.path());
        let second = fs::read(&key).expect("read");
        fs::write(&key, &kept).expect("written");
        assert_eq!(reloaded.certified(start + LOOK_INTERVAL).cert, first, "they do not fit");
        fs::write(&key, second).expect("written");
        assert_eq!(reloaded.certified(start + LOOK_INTERVAL * 3 / 2).cert, first, "not yet");
        assert_ne!(reloaded.certified(start + LOOK_INTERVAL * 3).cert, first);
    }

    #[test]
    fn an_unusable_certificate_is_reported_with_its_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let (certificate, key) = put(directory.path());
        let told = |certificate: &Path, key: &Path| {
            format!("{:#}", server_config(certificate, key).expect_err("it cannot be used"))
        };
        assert!(told(&key, &key).contains("key.pem"), "{}", told(&key, &key));
        assert!(told(&directory.path().join("none"), &key).contains("none"));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("changed");
        assert!(told(&certificate, &key).contains("others can read it: chmod 640"));
    }
}
