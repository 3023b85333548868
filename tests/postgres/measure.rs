pub(crate) fn play(_: &str, _: &str) {}
