//! The files with certificates that the URL of a store names.

use std::{
    format,
    fs::{self, File},
    io,
    string::String,
    vec::Vec,
};

use super::decoded;
use crate::machine::{StoreError, StoreErrorKind};

/// Whom a connection trusts, and what it shows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Certificates {
    /// Who signs the server's certificate, if not an authority that the system trusts.
    pub(in crate::store) ca: Option<String>,
    /// This program's own certificate, and its key.
    pub(in crate::store) own: Option<(String, String)>,
}

impl Certificates {
    /// Takes the parameters of these names out of those of a URL: the file of the authority, that of the own certificate, and its key.
    pub(in crate::store) fn taken(names: [&str; 3], parameters: &mut Vec<&str>) -> Result<Self, StoreError> {
        let mut take = |name| taken(name, parameters);
        let [ca, cert, key] = names;
        let own = match (take(cert)?, take(key)?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(refused(format!(
                    "a client certificate needs its file and its key; name both, by {cert}= and {key}="
                )));
            }
        };
        Ok(Self { ca: take(ca)?, own })
    }

    /// Refuses a file that cannot be read when a store is opened by its URL: most likely its path is wrong. Later it may be missing for a
    /// moment, while somebody replaces it under a running program.
    pub(in crate::store) fn check(names: [&str; 3], parameters: &[&str]) -> Result<(), StoreError> {
        let Self { ca, own } = Self::taken(names, &mut parameters.to_vec())?;
        let (cert, key) = own.unzip();
        for (name, file) in names.into_iter().zip([ca, cert, key]) {
            let Some(file) = file else { continue };
            check_file(&file).map_err(|why| refused(format!("{file:?}, which {name}= in the URL names, {why}")))?;
        }
        Ok(())
    }
}

/// What is wrong with a path that does not lead to a regular file. Reading a pipe would block this program, and the next read would find
/// nothing.
pub(in crate::store) const NO_FILE: &str =
    "is a folder, a pipe or a device; name a file, because it is read for each new connection";

/// Why a file cannot be read, and what to do about it.
fn check_file(file: &str) -> Result<(), String> {
    let unreadable = |why: io::Error| {
        let remedy = match why.kind() {
            io::ErrorKind::PermissionDenied => "let the user of this program read it",
            _ => "correct the path",
        };
        format!("cannot be read ({why}); {remedy}")
    };
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(NO_FILE.into());
    }
    File::open(file).map(drop).map_err(unreadable)
}

/// Takes the value of one parameter out of those of a URL.
pub(in crate::store) fn taken(name: &str, parameters: &mut Vec<&str>) -> Result<Option<String>, StoreError> {
    let value_of = |parameter: &str| {
        parameter.split_once('=').filter(|(other, _)| *other == name).map(|(_, value)| decoded(value))
    };
    let found: Vec<_> = parameters.iter().filter_map(|parameter| value_of(parameter)).collect();
    parameters.retain(|parameter| value_of(parameter).is_none());
    match found.as_slice() {
        [] => Ok(None),
        [Some(value)] if !value.is_empty() => Ok(Some(value.clone())),
        [_] => Err(refused(format!("the parameter {name} in the URL is empty, or not percent-encoded UTF-8"))),
        _ => Err(refused(format!("the URL has the parameter {name} twice; leave one out"))),
    }
}

fn refused(sentence: String) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(parameters: &mut Vec<&str>) -> Result<Certificates, StoreError> {
        Certificates::taken(["ca", "cert", "key"], parameters)
    }

    #[test]
    fn files_are_taken_out_of_the_parameters() {
        let mut parameters = vec!["a=1", "ca=/a%20b/ca.pem", "key=k", "cert=c", "carrot=2", "ca"];
        let found = files(&mut parameters).unwrap();
        assert_eq!(found.ca.as_deref(), Some("/a b/ca.pem"));
        assert_eq!(found.own, Some(("c".into(), "k".into())));
        assert_eq!(parameters, ["a=1", "carrot=2", "ca"]);
        assert_eq!(files(&mut parameters).unwrap(), Certificates::default());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_for_good() {
        let check = |parameters: &[&str]| Certificates::check(["ca", "cert", "key"], parameters);
        let there = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let ca = format!("ca={there}");
        check(&[]).unwrap();
        check(&[&ca, "prefix=jobs"]).unwrap();
        for (parameters, name) in [(&["ca=/no/such.pem"][..], "ca="), (&[&ca, "cert=/no/such.pem", "key=k"], "cert=")] {
            let error = check(parameters).unwrap_err();
            assert!(!error.retry && error.message.contains(name), "{error}");
            assert!(error.message.contains("/no/such.pem") && error.message.contains("correct the path"), "{error}");
        }
        // If the URL names the folder of the certificates, another attempt would not help.
        let folder = concat!("ca=", env!("CARGO_MANIFEST_DIR"));
        for parameters in [&[folder][..], &["ca=/dev/null"]] {
            let error = check(parameters).unwrap_err();
            assert!(!error.retry && error.message.contains("name a file"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_right_is_refused_with_its_remedy() {
        for (parameter, remedy) in
            [("cert=c", "by cert= and key="), ("key=k", "name both"), ("ca=", "empty"), ("ca=%ff", "UTF-8")]
        {
            let error = files(&mut vec![parameter]).unwrap_err().message;
            assert!(error.contains(remedy), "{parameter}: {error}");
        }
        assert!(files(&mut vec!["ca=a", "ca=b"]).unwrap_err().message.contains("twice"));
    }
}
