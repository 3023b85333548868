//! How connections to etcd are encrypted, and whom both sides trust.

#[cfg(not(feature = "store-etcd-tls"))]
mod absent;
#[cfg(feature = "store-etcd-tls")]
mod files;

use std::{format, string::String};

use super::address::refused;
use crate::{
    machine::StoreError,
    store::{
        tls::{Certificates, taken},
        url::prefix_remedy,
    },
};

#[cfg(not(feature = "store-etcd-tls"))]
pub(super) use absent::{ENCRYPTS, encrypt};
#[cfg(feature = "store-etcd-tls")]
pub(super) use files::{ENCRYPTS, encrypt};

/// The error for an address that asks for TLS in a program without it.
const BUILT_WITHOUT: &str = "this program was built without TLS for etcd; enable leasehold's feature store-etcd-tls";

/// The TLS parameters of an address. They name files, which are read again after a connection failed: certificates are replaced while a
/// program runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    files: Certificates,
    /// The name in the servers' certificates, if they are reached by another one.
    server_name: Option<String>,
}

impl Tls {
    /// Reads the part after the question mark.
    pub(super) fn parse(query: &str) -> Result<Self, StoreError> {
        let mut parameters = query.split('&').filter(|parameter| !parameter.is_empty()).collect();
        let files = Certificates::taken(["ca", "cert", "key"], &mut parameters)?;
        let server_name = taken("server_name", &mut parameters)?;
        match parameters.first() {
            Some(other) => Err(unknown(other.split('=').next().unwrap_or_default())),
            None => Ok(Self { files, server_name }),
        }
    }

    /// Whether this program can encrypt at all.
    pub(super) fn check() -> Result<(), StoreError> {
        if ENCRYPTS { Ok(()) } else { Err(refused(BUILT_WITHOUT)) }
    }
}

fn unknown(name: &str) -> StoreError {
    // A name with other characters may be part of a password.
    let is_plain = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    let named = if is_plain { format!("parameter {name:?}") } else { "such parameter".into() };
    let remedy = prefix_remedy("connect_with_prefix");
    refused(&format!("an address of etcd takes no {named}; use ca, cert, key or server_name; {remedy}"))
}

/// Errors about a file contain these words.
pub(super) const NAMED: &str = "which the address of etcd names";

/// What a failed handshake means, judged by the TLS library's error.
pub(super) fn sentence_for(said: &str) -> Option<&'static str> {
    let has = |words: &str| said.contains(words);
    if has("UnknownIssuer") || has("unable to get local issuer") {
        Some("no authority that is trusted here signed the server's certificate; name the right CA file by ca=")
    } else if has("NotValidForName") || has("not valid for name") {
        Some(
            "the server's certificate is for other names; write the host as the certificate does, or name it by server_name=",
        )
    } else if has("certificate expired") || has("Expired") {
        Some("the certificate of the server has expired; renew it, or set the clock of this machine")
    } else if has("KeyMismatch") {
        Some("the key in the file of key= belongs to another certificate than the one of cert=; name a matching pair")
    } else if has("CertificateRequired") {
        Some("this etcd asks for a client certificate; name one by cert= and key=")
    } else if has("BadCertificate") || has("UnknownCA") || has("CertificateUnknown") || has("DecryptError") {
        Some("this etcd refused the client certificate, or asks for one; name one that it trusts by cert= and key=")
    } else {
        None
    }
}

/// What it may mean that a server hung up, judged by when it did. A server that asks for a client certificate learns only after the
/// handshake whether there is one.
pub(super) fn hint_for(said: &str, encrypts: bool) -> Option<&'static str> {
    let has = |words: &str| said.to_ascii_lowercase().contains(words);
    if encrypts && (has("handshake eof") || has("invalidcontenttype")) {
        Some("the server there does not speak TLS; if it is an etcd without TLS, begin its address with etcd://")
    } else if !["broken pipe", "connection closed", "connection reset", "closed by peer"].into_iter().any(has) {
        None
    } else if encrypts {
        Some(
            "the server hung up: it may ask for a client certificate, or have no TLS; name a certificate that it trusts by \
             cert= and key=, or begin its address with etcd://",
        )
    } else {
        Some("the server hung up, as an etcd with TLS would; if it has TLS, begin its address with etcds://")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_name_files_and_a_server() {
        let tls = Tls::parse("ca=/a%20b/ca.pem&cert=c&key=k&server_name=etcd.test").unwrap();
        assert_eq!(tls.files.ca.as_deref(), Some("/a b/ca.pem"));
        assert_eq!(tls.files.own, Some(("c".into(), "k".into())));
        assert_eq!(tls.server_name.as_deref(), Some("etcd.test"));
        assert_eq!(Tls::parse("").unwrap(), Tls::default());
    }

    #[test]
    fn parameters_that_cannot_be_right_are_refused_with_their_remedy() {
        for (query, remedy) in [
            ("cert=c", "name both"),
            ("key=k", "name both"),
            ("ca=", "empty"),
            ("ca=%ff", "UTF-8"),
            ("cacert=a", "ca, cert"),
        ] {
            let error = Tls::parse(query).unwrap_err().message;
            assert!(error.contains(remedy), "{query}: {error}");
        }
        assert!(!Tls::parse("Secret@host").unwrap_err().message.contains("Secret"));
    }
}
