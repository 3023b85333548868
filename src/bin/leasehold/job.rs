//! The job of a shell that this process belongs to.

use std::fs;

use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid};

/// Whether a shell is there that notices when this process stops, and can continue it. If there is none, the kernel lets TSTP stop
/// nobody, because the process group is orphaned: no member has a parent in another group of the same session.
pub(crate) fn can_be_continued() -> bool {
    let (group, session) = (getpgrp(), getsid(None));
    let mut ancestor = getppid();
    loop {
        match getpgid(Some(ancestor)) {
            _ if ancestor.as_raw() <= 0 => return false,
            Err(_) => return false,
            Ok(other) if other != group => return getsid(Some(ancestor)) == session,
            Ok(_) => {}
        }
        // Where the system does not tell, a shell is likely.
        let Some(parent) = parent_of(ancestor) else { return true };
        ancestor = parent;
    }
}

fn parent_of(process: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; then come the state and the parent.
    let (_, rest) = status.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}
