//! The job of a shell that this process belongs to.

use std::{fs, iter::successors};

use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid, getsid};

/// Whether a shell is there that notices when this process stops, and can continue it. If there is none, the kernel lets TSTP stop
/// nobody, because the process group is orphaned: no member has a parent in another group of the same session.
pub(crate) fn can_be_continued() -> bool {
    match starter() {
        Starter::Process { process, .. } => getsid(Some(process)) == getsid(None),
        Starter::Nobody => false,
        // A shell is likely.
        Starter::Untold => true,
    }
}

/// Whether this is the process group of the shell that started the job, of an outer leasehold, or of another job of theirs. `entry` is what
/// only our command and its descendants have in their environment.
pub(crate) fn is_of_the_shell(group: Pid, entry: &str) -> bool {
    let shells: Vec<_> = starters().collect();
    let is_shell = |process| shells.iter().any(|(shell, _)| *shell == process);
    shells.iter().any(|(_, its)| *its == group)
        || members_of(group).any(|member| began_beside_us(member, is_shell) && !has_in_environment(member, entry))
}

/// Whether the process descends from a shell of ours, and not from us.
fn began_beside_us(process: Pid, is_shell: impl Fn(Pid) -> bool) -> bool {
    let own = getpid();
    let mut line = successors(Some(process), |below| parent_of(*below).filter(|parent| parent.as_raw() > 0));
    line.find(|process| *process == own || is_shell(*process)).is_some_and(|process| process != own)
}

/// The first process of a container adopts what the command left behind. If that process is the shell, only the environment distinguishes
/// such an orphan from another job of the shell.
fn has_in_environment(process: Pid, entry: &str) -> bool {
    let all = fs::read(format!("/proc/{process}/environ"));
    all.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes()))
}

/// The processes of a group, as far as the system tells. The leader, whose id names the group, may have ended.
fn members_of(group: Pid) -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    processes.filter(move |process| getpgid(Some(*process)) == Ok(group))
}

/// Whether `/proc` shows that all processes of a group are zombies. It is read twice: a process may have started another one during the
/// first reading.
pub(crate) fn have_all_ended(group: Pid) -> bool {
    shows_all()
        && (0..2).all(|_| {
            let mut members = members_of(group).peekable();
            members.peek().is_some() && members.all(has_ended)
        })
}

/// Whether `/proc` hides no process of other users, such as that of a program with the set-user-ID bit.
fn shows_all() -> bool {
    fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| !mounts.contains("hidepid="))
}

/// Whether this is a zombie. A process whose first thread has ended has the same state while its other threads run.
fn has_ended(process: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().count();
    threads <= 1 && state_and_parent(process).is_some_and(|(state, _)| state == "Z")
}

/// If an outer leasehold is in this process group, the leader of the group that it started: the process whose stops it sees.
pub(crate) fn leader_under_leasehold_in(group: Pid) -> Option<Pid> {
    let mut leader = getpgrp();
    for (process, its) in starters() {
        if its == group {
            return is_leasehold(process).then_some(leader);
        }
        leader = its;
    }
    None
}

/// The starter, and its process group. If it is another leasehold, its starter comes next, and so on.
fn starters() -> impl Iterator<Item = (Pid, Pid)> {
    let of = |below| match starter_of(below) {
        Starter::Process { process, group } => Some((process, group)),
        Starter::Nobody | Starter::Untold => None,
    };
    successors(of((getpgrp(), getppid())), move |(process, group)| {
        let parent = parent_of(*process).filter(|_| is_leasehold(*process))?;
        of((*group, parent))
    })
}

/// Whether the given process runs a program of the same name as this one, perhaps another version in another place, or one that was replaced
/// since. If the system does not tell, the answer is no.
fn is_leasehold(process: Pid) -> bool {
    program(&process.to_string()).is_some_and(|its| program("self") == Some(its))
}

/// The name of the program that a process runs.
fn program(process: &str) -> Option<String> {
    let path = fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    // Linux adds this to the path of a program that was deleted or replaced.
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).into())
}

/// The closest ancestor in another process group.
enum Starter {
    Process {
        process: Pid,
        group: Pid,
    },
    Nobody,
    /// The system does not tell.
    Untold,
}

fn starter() -> Starter {
    starter_of((getpgrp(), getppid()))
}

/// The starter of a process in this group, with this parent.
fn starter_of((own, mut process): (Pid, Pid)) -> Starter {
    loop {
        match getpgid(Some(process)) {
            _ if process.as_raw() <= 0 => return Starter::Nobody,
            Err(_) => return Starter::Nobody,
            Ok(group) if group != own => return Starter::Process { process, group },
            Ok(_) => {}
        }
        let Some(parent) = parent_of(process) else { return Starter::Untold };
        process = parent;
    }
}

fn parent_of(process: Pid) -> Option<Pid> {
    state_and_parent(process).map(|(_, parent)| parent)
}

fn state_and_parent(process: Pid) -> Option<(String, Pid)> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; then come the state and the parent.
    let (_, rest) = status.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let (state, parent) = (fields.next()?, fields.next()?);
    Some((state.into(), Pid::from_raw(parent.parse().ok()?)))
}
