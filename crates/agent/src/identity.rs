//! The identity of a device or a server: an Ed25519 key, which never leaves its directory.

use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_disk::{self as disk, Access};
use underload_fleet::agent::RemovalNotice;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{Enrol, Enrolled, OpenSession, ServerAddress};
use underload_fleet::removal::Removal;
use underload_probe::control::{ServiceError, read_secret};

/// A key and its enrolment.
#[derive(Debug)]
pub struct Identity {
    pair: Ed25519KeyPair,
    public_key: [u8; 32],
    directory: PathBuf,
    enrolled: Option<Enrolled>,
}

/// Why an identity cannot be loaded or changed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The key's file cannot be used: others can read it, for example.
    #[error(transparent)]
    Secret(#[from] ServiceError),
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is damaged: remove it, and enrol again", path.display())]
    Damaged { path: PathBuf },
    #[error("the system cannot generate random numbers")]
    Randomness,
}

const KEY: &str = "device.key";
const ENROLLED: &str = "enrolled.json";
const REMOVAL: &str = "removal.json";
/// Longest file of this directory, in bytes.
const FILE_MAX: u64 = 64 << 10;

impl Identity {
    /// Loads the key in `directory`, or creates it.
    pub fn load_or_create(directory: &Path) -> Result<Self, IdentityError> {
        let path = directory.join(KEY);
        let error = |source| IdentityError::File { path: path.clone(), source };
        disk::private_directory(directory)
            .map_err(|source| IdentityError::File { path: directory.to_owned(), source })?;
        if !path.exists() {
            let mut seed = [0; 32];
            SystemRandom::new().fill(&mut seed).map_err(|_| IdentityError::Randomness)?;
            let text = format!("{}\n", HEXLOWER.encode(&seed));
            match disk::write_new(&path, text.as_bytes(), Access::Owner) {
                // Another program created the key first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                written => written.map_err(error)?,
            }
        }
        let bytes = read_secret(&path)?;
        let damaged = || IdentityError::Damaged { path: path.clone() };
        let seed = HEXLOWER.decode(bytes.trim_ascii()).map_err(|_| damaged())?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| damaged())?;
        let public_key = pair.public_key().as_ref().try_into().map_err(|_| damaged())?;
        let enrolled = read_json::<Enrolled>(&directory.join(ENROLLED), FILE_MAX);
        let enrolled = enrolled.filter(|it| it.device == DeviceId::of_key(&public_key));
        Ok(Self { pair, public_key, directory: directory.to_owned(), enrolled })
    }

    pub fn device(&self) -> DeviceId {
        DeviceId::of_key(&self.public_key)
    }

    /// Returns the request that enrols a device, or a server with an address.
    pub fn enrol(
        &self,
        code: &str,
        attributes: Attributes,
        server: Option<ServerAddress>,
    ) -> Enrol {
        Enrol {
            code: code.to_owned(),
            public_key: HEXLOWER.encode(&self.public_key),
            proof: HEXLOWER.encode(self.pair.sign(code.as_bytes()).as_ref()),
            attributes,
            server,
        }
    }

    /// Returns the request that opens a session at `at_ms` of the orchestrator's clock.
    pub fn open_session(&self, at_ms: u64) -> OpenSession {
        let device = self.device();
        let signed = OpenSession::signed(device, at_ms);
        let signature = HEXLOWER.encode(self.pair.sign(signed.as_bytes()).as_ref());
        OpenSession { device, at_ms, signature }
    }

    /// Whether an orchestrator accepted this key.
    pub fn is_enrolled(&self) -> bool {
        self.enrolled.is_some()
    }

    /// Stores that an orchestrator accepted this key. If that fails, the enrolment is known until
    /// the program ends.
    pub fn note_enrolled(&mut self, enrolled: Enrolled) -> Result<(), IdentityError> {
        let written = self.write(ENROLLED, &enrolled);
        self.enrolled = Some(enrolled);
        written
    }

    /// Whether a removal is of this enrolment, and signed with the key from the enrolment.
    pub fn is_ended_by(&self, removal: &Removal) -> bool {
        let Some(enrolled) = &self.enrolled else { return false };
        let key = HEXLOWER.decode(enrolled.lease_key.as_bytes()).ok();
        let key: Option<[u8; 32]> = key.and_then(|key| key.try_into().ok());
        removal.device == enrolled.device
            && enrolled.enrolled_ms.is_none_or(|at_ms| at_ms == removal.enrolled_ms)
            && key.is_some_and(|key| removal.is_signed_by(&key))
    }

    /// Returns the stored statement of orchestrators that this device was removed.
    pub fn removal(&self) -> Option<RemovalNotice> {
        read_json::<Option<RemovalNotice>>(&self.directory.join(REMOVAL), FILE_MAX)?
    }

    /// Stores the statement of orchestrators that this device was removed, or `None`.
    pub fn note_removal(&self, notice: Option<RemovalNotice>) -> Result<(), IdentityError> {
        self.write(REMOVAL, &notice)
    }

    fn write(&self, name: &str, content: &impl Serialize) -> Result<(), IdentityError> {
        let path = self.directory.join(name);
        let text = serde_json::to_vec(content).unwrap_or_default();
        let written = disk::write_whole(&path, &text, Access::Owner);
        written.map_err(|source| IdentityError::File { path, source })
    }
}

/// Reads a file of at most `bytes_max` bytes; `None` if it is missing, longer or not such JSON.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, bytes_max: u64) -> Option<T> {
    serde_json::from_slice(&disk::read_file(path, bytes_max).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use ring::signature::{ED25519, UnparsedPublicKey};

    use underload_fleet::removal::Removed;

    use super::*;

    #[test]
    fn a_key_is_created_once_and_only_its_owner_can_read_it() {
        let directory = underload_disk::faults::private_tempdir().expect("a directory");
        let first = Identity::load_or_create(directory.path()).expect("a key");
        let path = directory.path().join(KEY);
        assert_eq!(fs::metadata(&path).expect("its facts").permissions().mode() & 0o777, 0o600);
        let again = Identity::load_or_create(directory.path()).expect("a key");
        assert_eq!(first.device(), again.device());
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("changed");
        let error = Identity::load_or_create(directory.path()).expect_err("others can read it");
        assert!(error.to_string().contains("others can read it"), "{error}");
    }

    #[test]
    fn signatures_cover_the_bytes_of_the_messages() {
        let directory = underload_disk::faults::private_tempdir().expect("a directory");
        let identity = Identity::load_or_create(directory.path()).expect("a key");
        let verify = |text: &str, signature: &str| {
            let signature = HEXLOWER.decode(signature.as_bytes()).expect("digits");
            let key = UnparsedPublicKey::new(&ED25519, identity.public_key);
            key.verify(text.as_bytes(), &signature).is_ok()
        };
        let enrol = identity.enrol("a code", Attributes::default(), None);
        assert!(verify("a code", &enrol.proof));
        let open = identity.open_session(5);
        assert!(verify(&OpenSession::signed(open.device, 5), &open.signature));
        assert!(!verify(&OpenSession::signed(open.device, 6), &open.signature));
    }

    #[test]
    fn an_enrolment_belongs_to_one_key() {
        let directory = underload_disk::faults::private_tempdir().expect("a directory");
        let mut identity = Identity::load_or_create(directory.path()).expect("a key");
        assert!(!identity.is_enrolled() && identity.removal().is_none());
        let lease_key = "00".repeat(32);
        let enrolled = Enrolled { device: identity.device(), lease_key, enrolled_ms: None };
        identity.note_enrolled(enrolled.clone()).expect("written");
        assert!(identity.is_enrolled());
        assert!(Identity::load_or_create(directory.path()).expect("a key").is_enrolled());
        fs::remove_file(directory.path().join(KEY)).expect("removed");
        let mut other = Identity::load_or_create(directory.path()).expect("a key");
        assert!(!other.is_enrolled(), "another key is not enrolled");
        // An enrolment that cannot be stored is not repeated.
        fs::remove_dir_all(directory.path()).expect("removed");
        let enrolled = Enrolled { device: other.device(), ..enrolled };
        other.note_enrolled(enrolled).expect_err("no directory");
        assert!(other.is_enrolled());
    }

    #[test]
    fn a_removal_must_be_signed_for_this_enrolment() {
        let directory = underload_disk::faults::private_tempdir().expect("a directory");
        let mut identity = Identity::load_or_create(directory.path()).expect("a key");
        let pair = |seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a key");
        let (lease_key, device) = (pair(1), identity.device());
        let removal = |enrolled_ms, key| Removed { device, enrolled_ms }.sign(key, 50);
        assert!(!identity.is_ended_by(&removal(7, &lease_key)), "it never enrolled");
        let enrol = |identity: &mut Identity, enrolled_ms| {
            let lease_key = HEXLOWER.encode(lease_key.public_key().as_ref());
            let enrolled = Enrolled { device, lease_key, enrolled_ms };
            identity.note_enrolled(enrolled).expect("written");
        };
        enrol(&mut identity, Some(7));
        assert!(identity.is_ended_by(&removal(7, &lease_key)));
        assert!(!identity.is_ended_by(&removal(6, &lease_key)), "an old copy of the store");
        let other_key = pair(2);
        assert!(!identity.is_ended_by(&removal(7, &other_key)), "another fleet's key");
        let other = Removed { device: DeviceId([3; 16]), enrolled_ms: 7 }.sign(&lease_key, 50);
        assert!(!identity.is_ended_by(&other), "another device");
        // The orchestrator that enrolled it did not report the time.
        enrol(&mut identity, None);
        assert!(identity.is_ended_by(&removal(6, &lease_key)));
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let directory = underload_disk::faults::private_tempdir().expect("a directory");
        let path = directory.path().join("numbers.json");
        fs::write(&path, "[1,2,3]").expect("written");
        assert_eq!(read_json::<Vec<u8>>(&path, 7), Some(vec![1, 2, 3]));
        assert_eq!(read_json::<Vec<u8>>(&path, 6), None);
        assert_eq!(read_json::<String>(&path, 7), None, "other JSON");
    }
}
