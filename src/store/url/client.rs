//! What is left of a URL for the client of a server, which reads it itself.

use std::{format, string::String};

use super::Parts;

impl Parts<'_> {
    /// The URL without the parameters that only [`from_url`](super::from_url) reads.
    pub(in crate::store) fn for_client(&self) -> String {
        let url = format!("{}:{}", self.scheme, self.place);
        if self.others.is_empty() { url } else { format!("{url}?{}", self.others.join("&")) }
    }
}

/// How to choose a prefix, for who wrote one in a URL that a client reads: by a URL for [`from_url`](super::from_url), or by the call.
pub(in crate::store) fn prefix_remedy(call: &str) -> String {
    format!("to choose a prefix, write ?prefix= in a URL for store::from_url or the command line, or call {call}")
}
