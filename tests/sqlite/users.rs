//! Users of one machine who share a file: each hears the others, and sees their deaths, at once.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
    time::Duration,
};

use leasehold::{LeaseGuard, LeaseManager};
use tokio::runtime::Runtime;

use crate::{
    Other, Scratch, file,
    files::is_root,
    manager, say,
    skipped::leave_out,
    told,
    until::{until, wait_until},
};

/// The users that root plays, and a group that both are in.
const ONE: u32 = 1_001;
const TWO: u32 = 1_002;
const GROUP: u32 = 1_003;
/// Heartbeats are so rare that none comes while this runs.
const LONG_LEASE: Duration = Duration::from_secs(3_600);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// The other process: does what it is told, and says so.
pub(crate) fn act(directory: &Path) {
    let runtime = Runtime::new().unwrap();
    let leases = manager(directory).lease(LONG_LEASE).build().unwrap();
    // A context without a lease rests after a while, and lowers its beacon: others would see that.
    let _rest = runtime.block_on(acquire(&leases, &format!("of {}", std::process::id()))).unwrap();
    let mut guard = None;
    for order in told() {
        match &*order {
            "acquire" => match runtime.block_on(acquire(&leases, "k")) {
                Ok(granted) => guard = Some(granted),
                Err(error) => say(&error),
            },
            "look" => {
                let guard = guard.as_ref().unwrap();
                let lost =
                    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), guard.lost()).await });
                say(&lost.map_or_else(|_| "keeps it".into(), |reason| format!("lost it: {reason:?}")));
                continue;
            }
            "release" => drop(runtime.block_on(guard.take().unwrap().release()).unwrap()),
            unknown => panic!("no order is called {unknown:?}"),
        }
        say(&format!("holds: {}", guard.is_some()));
    }
}

/// It ends, whatever gets lost.
async fn acquire(leases: &LeaseManager, key: &str) -> Result<LeaseGuard, String> {
    leases.lock(key).timeout(BUSY).acquire().await.map_err(|error| error.to_string())
}

/// A file that several users share, in a folder of their own.
struct House {
    scratch: Scratch,
    program: Scratch,
}

impl House {
    /// With these modes. Both belong to the first user and to the group.
    fn new(folder: u32, mode: u32) -> Self {
        let house = Self { scratch: Scratch::new(), program: Scratch::new() };
        fs::write(file(&house.scratch.0), "").unwrap();
        for (path, mode) in [(file(&house.scratch.0), mode), (house.scratch.0.clone(), folder)] {
            chown(&path, Some(ONE), Some(GROUP)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        // Another user may not be let into the folder that this program is in.
        // By a process of its own: a child that another test starts meanwhile would have the copy open for writing, so it could not run.
        let copied =
            Command::new("cp").arg(std::env::current_exe().unwrap()).arg(house.program.0.join("actor")).status();
        assert!(copied.unwrap().success());
        house
    }

    /// A process of this user. Its umask gives no other user any right to what it makes.
    fn start(&self, user: u32) -> Other {
        Other::start_by(Path::new("setpriv"), "actor", &self.scratch, |command| {
            command.args([format!("--reuid={user}"), format!("--regid={user}"), format!("--groups={GROUP}")]);
            command.args(["sh", "-c", "umask 077; exec \"$0\" \"$@\""]).arg(self.program.0.join("actor"));
        })
    }

    fn signals(&self) -> std::path::PathBuf {
        self.scratch.0.join("leases.db-leasehold.d")
    }
}

/// Lets one process acquire the key, and the other one wait for it.
fn hold_and_wait(house: &House, holder: &mut Other, waiter: &mut Other) {
    assert_eq!(holder.ask("acquire"), "holds: true");
    waiter.tell("acquire");
    Runtime::new().unwrap().block_on(async {
        let looks = manager(&house.scratch.0).build().unwrap();
        until("the waiter queues", async || looks.status("k").await.unwrap().queue.len() == 1).await;
    });
}

/// Who shares a file with whom: all users, or a group.
const SHARED: [(u32, u32); 2] = [(0o777, 0o666), (0o2770, 0o660)];

/// One user holds the key, and another one waits for it, in each kind of shared file. When the hold ends so, the waiter has the key.
fn the_next_user_is_granted_the_key_after(pairs: &[(u32, u32)], end: impl Fn(&mut Other)) {
    if !is_root() {
        return leave_out("only root can be two users at once");
    }
    for (folder, mode) in SHARED {
        let house = House::new(folder, mode);
        for &(first, second) in pairs {
            let (mut holder, mut waiter) = (house.start(first), house.start(second));
            hold_and_wait(&house, &mut holder, &mut waiter);
            end(&mut holder);
            assert_eq!(waiter.hear(), "holds: true", "{first} to {second}, {mode:o}");
        }
    }
}

#[test]
fn a_user_hears_at_once_that_another_one_has_released() {
    the_next_user_is_granted_the_key_after(&[(ONE, TWO), (TWO, ONE), (0, TWO), (ONE, 0)], |holder| {
        assert_eq!(holder.ask("release"), "holds: false");
    });
}

#[test]
fn a_user_sees_at_once_that_the_process_of_another_one_was_killed() {
    the_next_user_is_granted_the_key_after(&[(ONE, TWO), (TWO, ONE), (0, TWO)], Other::kill);
}

/// Another process at the path would use another file.
#[test]
fn a_holder_is_told_that_its_file_was_moved_or_deleted_out_of_sight() {
    if !is_root() {
        return leave_out("only root can hide a file from another user");
    }
    let hide = |folder: &Path| {
        chown(folder, Some(0), Some(0)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    };
    let replaced: &dyn Fn(&Path) = &|folder| {
        fs::rename(folder, folder.with_extension("old")).unwrap();
        fs::create_dir(folder).unwrap();
        hide(folder);
    };
    let deleted: &dyn Fn(&Path) = &|folder| {
        hide(folder);
        fs::remove_file(file(folder)).unwrap();
    };
    for (way, expected) in [(replaced, "lost it: StoreFailed"), (deleted, "lost it: StoreFailed"), (&hide, "keeps it")]
    {
        let house = House::new(0o2770, 0o660);
        let mut holder = house.start(ONE);
        assert_eq!(holder.ask("acquire"), "holds: true");
        way(&house.scratch.0);
        assert_eq!(holder.ask("look"), expected);
        drop(fs::remove_dir_all(house.scratch.0.with_extension("old")));
    }
}

/// Whoever made the directory anew has other rights than whoever made it first.
#[test]
fn a_directory_that_is_made_anew_is_for_the_same_users() {
    if !is_root() {
        return leave_out("only root can be two users at once");
    }
    let house = House::new(0o2770, 0o660);
    let (mut holder, mut waiter) = (house.start(TWO), house.start(ONE));
    hold_and_wait(&house, &mut holder, &mut waiter);
    let rights = || fs::metadata(house.signals()).map(|found| (found.mode(), found.gid())).ok();
    let before = rights();
    assert_eq!(before.map(|(mode, group)| (mode & 0o777, group)), Some((0o770, GROUP)));
    fs::remove_dir_all(house.signals()).unwrap();
    wait_until("the directory is made anew", || rights() == before);
    until_files(&house, 4);
    assert_eq!(holder.ask("release"), "holds: false");
    assert_eq!(waiter.hear(), "holds: true");
}

/// Both processes have put a beacon and a socket back.
fn until_files(house: &House, count: usize) {
    let names = || fs::read_dir(house.signals()).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let stands = |name: std::ffi::OsString| {
        let path = Path::new(&name).to_owned();
        path.extension().is_some_and(|end| end == "socket" || end == "beacon")
    };
    wait_until("the files stand again", || names().filter(|name| stands(name.clone())).count() == count);
}
