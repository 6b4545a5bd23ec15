//! The cryptography of DTLS 1.2 for `dimpl`, on ring, which the program links anyway: one cipher
//! suite (AES-128-GCM), two groups (X25519, P-256), ECDSA on P-256. Browsers prefer or offer these.
//!
//! `dimpl` also requires a suite of DTLS 1.3 and tests everything with known answers whenever a
//! configuration is made; sessions use DTLS 1.2 alone.

use std::fmt;

use dimpl::crypto::{
    Aad, ActiveKeyExchange, Buf, Cipher, CryptoProvider, Dtls12CipherSuite, Dtls13CipherSuite,
    HashAlgorithm, HashContext, HashProvider, HmacProvider, KeyProvider, NamedGroup, Nonce,
    SecureRandom, SignatureAlgorithm, SignatureVerifier, SigningKey, SupportedDtls12CipherSuite,
    SupportedDtls13CipherSuite, SupportedKxGroup, TmpBuf, check_verify_scheme,
};
use dimpl::{CryptoError, CryptoOperation};
use ring::rand::SecureRandom as _;
use ring::{aead, agreement, digest, hmac, rand, signature};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The result of a step of DTLS.
type Result<T, E = CryptoError> = std::result::Result<T, E>;

pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        kx_groups: &[&Group::X25519, &Group::P256],
        signature_verification: &Ring,
        key_provider: &Ring,
        secure_random: &Ring,
        hash_provider: &Ring,
        hmac_provider: &Ring,
        cipher_suites: &[&Aes128Gcm],
        dtls13_cipher_suites: &[&ChaCha20Poly1305],
    }
}

#[derive(Debug)]
struct Ring;

fn crypto_error(operation: CryptoOperation) -> CryptoError {
    CryptoError::OperationFailed(operation)
}

impl SecureRandom for Ring {
    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        let filled = rand::SystemRandom::new().fill(bytes);
        filled.map_err(|_| crypto_error(CryptoOperation::FillRandom))
    }
}

impl HmacProvider for Ring {
    fn hmac(&self, hash: HashAlgorithm, key: &[u8], data: &[u8], out: &mut [u8]) -> Result<usize> {
        let algorithm = match hash {
            HashAlgorithm::SHA256 => hmac::HMAC_SHA256,
            HashAlgorithm::SHA384 => hmac::HMAC_SHA384,
            _ => return Err(CryptoError::UnsupportedHmacHash(hash)),
        };
        let tag = hmac::sign(&hmac::Key::new(algorithm, key), data);
        let place = out.get_mut(..tag.as_ref().len());
        place.ok_or(crypto_error(CryptoOperation::ComputeHmac))?.copy_from_slice(tag.as_ref());
        Ok(tag.as_ref().len())
    }
}

impl HashProvider for Ring {
    fn create_hash(&self, algorithm: HashAlgorithm) -> Box<dyn HashContext> {
        // The suites above use only SHA-256. For any other hash, a digest of the wrong length fails
        // one handshake, whereas a panic would end the thread of all channels.
        let algorithm = match algorithm {
            HashAlgorithm::SHA384 => &digest::SHA384,
            _ => &digest::SHA256,
        };
        Box::new(Hash(digest::Context::new(algorithm)))
    }
}

struct Hash(digest::Context);

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash")
    }
}

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        out.clear();
        out.extend_from_slice(self.0.clone().finish().as_ref());
    }
}

#[derive(Debug)]
enum Group {
    X25519,
    P256,
}

impl SupportedKxGroup for Group {
    fn name(&self) -> NamedGroup {
        match self {
            Self::X25519 => NamedGroup::X25519,
            Self::P256 => NamedGroup::Secp256r1,
        }
    }

    fn start_exchange(&self, _buf: Buf) -> Result<Box<dyn ActiveKeyExchange>> {
        let algorithm = match self {
            Self::X25519 => &agreement::X25519,
            Self::P256 => &agreement::ECDH_P256,
        };
        let random = rand::SystemRandom::new();
        let begun = agreement::EphemeralPrivateKey::generate(algorithm, &random)
            .and_then(|secret| secret.compute_public_key().map(|public| (secret, public)));
        let (secret, public) =
            begun.map_err(|_| crypto_error(CryptoOperation::StartKeyExchange))?;
        Ok(Box::new(Exchange { group: self.name(), secret, public }))
    }
}

struct Exchange {
    group: NamedGroup,
    secret: agreement::EphemeralPrivateKey,
    public: agreement::PublicKey,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("group", &self.group).finish_non_exhaustive()
    }
}

impl ActiveKeyExchange for Exchange {
    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn complete(self: Box<Self>, peer_pub: &[u8], out: &mut Buf) -> Result<()> {
        let peer = agreement::UnparsedPublicKey::new(self.secret.algorithm(), peer_pub);
        out.clear();
        agreement::agree_ephemeral(self.secret, &peer, |shared| out.extend_from_slice(shared))
            .map_err(|_| CryptoError::InvalidPublicKey(self.group))
    }

    fn group(&self) -> NamedGroup {
        self.group
    }
}

impl KeyProvider for Ring {
    fn load_private_key(&self, key_der: &[u8]) -> Result<Box<dyn SigningKey>> {
        let random = rand::SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_ASN1_SIGNING;
        let pair = signature::EcdsaKeyPair::from_pkcs8(algorithm, key_der, &random);
        Ok(Box::new(Key(pair.map_err(|_| CryptoError::InvalidPrivateKey)?)))
    }
}

#[derive(Debug)]
struct Key(signature::EcdsaKeyPair);

impl SigningKey for Key {
    fn sign(&mut self, data: &[u8], hash_alg: HashAlgorithm, out: &mut Buf) -> Result<()> {
        if hash_alg != HashAlgorithm::SHA256 {
            let group = NamedGroup::Secp256r1;
            return Err(CryptoError::SigningKeyUnsupportedHash { group, hash: hash_alg });
        }
        let signed = self.0.sign(&rand::SystemRandom::new(), data);
        out.clear();
        out.extend_from_slice(signed.map_err(|_| crypto_error(CryptoOperation::Sign))?.as_ref());
        Ok(())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &[HashAlgorithm::SHA256]
    }
}

impl SignatureVerifier for Ring {
    fn verify_signature(
        &self,
        cert_der: &[u8],
        data: &[u8],
        signature: &[u8],
        hash_alg: HashAlgorithm,
        sig_alg: SignatureAlgorithm,
    ) -> Result<()> {
        let group = NamedGroup::Secp256r1;
        check_verify_scheme(sig_alg, hash_alg, group)?;
        let algorithm = match hash_alg {
            HashAlgorithm::SHA384 => webpki::ring::ECDSA_P256_SHA384,
            _ => webpki::ring::ECDSA_P256_SHA256,
        };
        let der = CertificateDer::from(cert_der);
        let certificate = EndEntityCert::try_from(&der);
        let certificate = certificate.map_err(|_| CryptoError::CertificateParseFailed)?;
        let wrong = |_| CryptoError::SignatureVerificationFailed {
            signature: sig_alg,
            hash: hash_alg,
            group,
        };
        certificate.verify_signature(algorithm, data, signature).map_err(wrong)
    }
}

/// A record's cipher of either suite: both have tags of 16 bytes behind the text.
#[derive(Debug)]
struct Aead(aead::LessSafeKey);

impl Aead {
    fn boxed(algorithm: &'static aead::Algorithm, key: &[u8]) -> Result<Box<dyn Cipher>> {
        let key = aead::UnboundKey::new(algorithm, key);
        let key = key.map_err(|_| crypto_error(CryptoOperation::CreateCipher))?;
        Ok(Box::new(Self(aead::LessSafeKey::new(key))))
    }
}

const TAG_BYTES: usize = 16;

impl Cipher for Aead {
    fn encrypt(&mut self, plaintext: &mut Buf, aad: Aad, nonce: Nonce) -> Result<()> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce.0);
        let tag = self.0.seal_in_place_separate_tag(nonce, aead::Aad::from(&aad[..]), plaintext);
        let tag = tag.map_err(|_| crypto_error(CryptoOperation::Encrypt))?;
        plaintext.extend_from_slice(tag.as_ref());
        Ok(())
    }

    fn decrypt(&mut self, ciphertext: &mut TmpBuf<'_>, aad: Aad, nonce: Nonce) -> Result<()> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce.0);
        let opened = self.0.open_in_place(nonce, aead::Aad::from(&aad[..]), ciphertext.as_mut());
        let len = opened.map_err(|_| crypto_error(CryptoOperation::Decrypt))?.len();
        ciphertext.truncate(len);
        Ok(())
    }
}

#[derive(Debug)]
struct Aes128Gcm;

impl SupportedDtls12CipherSuite for Aes128Gcm {
    fn suite(&self) -> Dtls12CipherSuite {
        Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    /// Lengths of the MAC, of the key, and of the part of the nonce that is not sent (RFC 5288, 3).
    fn key_lengths(&self) -> (usize, usize, usize) {
        (0, 16, 4)
    }

    fn explicit_nonce_len(&self) -> usize {
        8
    }

    fn tag_len(&self) -> usize {
        TAG_BYTES
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>> {
        Aead::boxed(&aead::AES_128_GCM, key)
    }
}

#[derive(Debug)]
struct ChaCha20Poly1305;

impl SupportedDtls13CipherSuite for ChaCha20Poly1305 {
    fn suite(&self) -> Dtls13CipherSuite {
        Dtls13CipherSuite::CHACHA20_POLY1305_SHA256
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn key_len(&self) -> usize {
        32
    }

    fn iv_len(&self) -> usize {
        12
    }

    fn tag_len(&self) -> usize {
        TAG_BYTES
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>> {
        Aead::boxed(&aead::CHACHA20_POLY1305, key)
    }

    /// Returns the mask of a record number: five bytes from ring, then zeros. A record number has at most two
    /// bytes.
    fn encrypt_sn(&self, sn_key: &[u8], sample: &[u8; 16]) -> [u8; 16] {
        let mut mask = [0; 16];
        let key = aead::quic::HeaderProtectionKey::new(&aead::quic::CHACHA20, sn_key);
        if let Ok(bytes) = key.and_then(|key| key.new_mask(sample)) {
            mask[..bytes.len()].copy_from_slice(&bytes);
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `dimpl` checks hashes, signatures, key exchanges and ciphers against known answers.
    #[test]
    fn cryptography_matches_known_answers() {
        provider().validate().unwrap();
    }

    #[test]
    fn a_record_that_was_changed_or_cut_is_not_opened() {
        let mut cipher = Aes128Gcm.create_cipher(&[7; 16]).unwrap();
        let mut sealed = Buf::new();
        sealed.extend_from_slice(b"a probe");
        let aad = || Aad([1; 13].into());
        cipher.encrypt(&mut sealed, aad(), Nonce([9; 12])).unwrap();
        let opened = |bytes: &mut [u8]| {
            let mut cipher = Aes128Gcm.create_cipher(&[7; 16]).unwrap();
            let mut text = TmpBuf::new(bytes);
            cipher.decrypt(&mut text, aad(), Nonce([9; 12])).ok()?;
            Some(text.as_ref().to_vec())
        };
        let sealed = sealed.into_vec();
        assert_eq!(opened(&mut sealed.clone()).as_deref(), Some(&b"a probe"[..]));
        for len in 0..sealed.len() {
            assert_eq!(opened(&mut sealed[..len].to_vec()), None, "{len} bytes");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(opened(&mut changed), None, "byte {at}");
        }
    }

    #[test]
    fn keys_signatures_and_certificates_of_others_are_refused() {
        assert!(Ring.load_private_key(b"no key").is_err());
        let verified = Ring.verify_signature(
            b"no certificate",
            b"data",
            b"signature",
            HashAlgorithm::SHA256,
            SignatureAlgorithm::ECDSA,
        );
        assert_eq!(verified, Err(CryptoError::CertificateParseFailed));
        for group in [Group::X25519, Group::P256] {
            let exchange = group.start_exchange(Buf::new()).unwrap();
            assert!(exchange.complete(&[0; 32], &mut Buf::new()).is_err(), "{group:?}");
        }
    }
}
