//! Digests and signatures of requests, by a library that needs nothing but a Rust compiler.

use graviola::hashing::hmac::Hmac;
use graviola::hashing::{Hash, HashContext, HashOutput, Sha256};
use graviola::signing::rsa::SigningKey;
use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use object_store::{Error, Result};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

/// The longest signature: that of a key of 8192 bits.
const LONGEST: usize = 1024;

/// What requests are signed with.
#[derive(Debug)]
pub(super) struct Graviola;

fn failed(why: impl std::fmt::Debug) -> Error {
    Error::Generic { store: "signature", source: format!("{why:?}").into() }
}

impl CryptoProvider for Graviola {
    fn digest(&self, algorithm: DigestAlgorithm) -> Result<Box<dyn DigestContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Once::new(Sha256::new()))),
            other => Err(failed(other)),
        }
    }

    fn hmac(&self, algorithm: DigestAlgorithm, secret: &[u8]) -> Result<Box<dyn HmacContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Once::new(Hmac::<Sha256>::new(secret)))),
            other => Err(failed(other)),
        }
    }

    fn sign(&self, algorithm: SigningAlgorithm, pem: &[u8]) -> Result<Box<dyn Signer>> {
        if algorithm != SigningAlgorithm::RS256 {
            return Err(failed(algorithm));
        }
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(failed)?;
        let key = SigningKey::from_pkcs8_der(key.secret_pkcs8_der()).map_err(failed)?;
        Ok(Box::new(Rsa(key)))
    }
}

/// A computation that ends once and keeps what came out.
struct Once<C> {
    context: Option<C>,
    output: Option<HashOutput>,
}

impl<C> Once<C> {
    fn new(context: C) -> Once<C> {
        Once { context: Some(context), output: None }
    }

    fn end(&mut self, finish: fn(C) -> HashOutput) -> Result<&[u8]> {
        let context = self.context.take().ok_or_else(|| failed("finished twice"))?;
        let output: &HashOutput = self.output.insert(finish(context));
        Ok(output.as_ref())
    }
}

type Digest = Once<<Sha256 as Hash>::Context>;
type Keyed = Once<Hmac<Sha256>>;

impl DigestContext for Digest {
    fn update(&mut self, data: &[u8]) {
        self.context.iter_mut().for_each(|context| context.update(data));
    }

    fn finish(&mut self) -> Result<&[u8]> {
        self.end(HashContext::finish)
    }
}

impl HmacContext for Keyed {
    fn update(&mut self, data: &[u8]) {
        self.context.iter_mut().for_each(|context| context.update(data));
    }

    fn finish(&mut self) -> Result<&[u8]> {
        self.end(Hmac::finish)
    }
}

struct Rsa(SigningKey);

impl Signer for Rsa {
    fn sign(&self, string_to_sign: &[u8]) -> Result<Vec<u8>> {
        let mut space = [0; LONGEST];
        self.0.sign_pkcs1_sha256(&mut space, string_to_sign).map(<[u8]>::to_vec).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::seal::hex;
    use super::*;

    #[test]
    fn digests_are_those_of_the_standards() {
        let mut digest = Graviola.digest(DigestAlgorithm::Sha256).unwrap();
        digest.update(b"ab");
        digest.update(b"c");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(digest.finish().unwrap()), expected);
        assert!(digest.finish().is_err());
        let mut hmac = Graviola.hmac(DigestAlgorithm::Sha256, b"Jefe").unwrap();
        hmac.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(hmac.finish().unwrap()), expected);
    }

    #[test]
    fn keys_that_are_none_are_refused() {
        assert!(Graviola.sign(SigningAlgorithm::RS256, b"no key").is_err());
    }
}
