pub(crate) fn count(_: &str, _: &str) {}
