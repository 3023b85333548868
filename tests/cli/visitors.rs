//! Users who may read a store's file, and not write to it: they see what is there, and lock nobody out.

use std::{
    fs,
    os::unix::{
        fs::{FileExt, MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::harness::{Done, Running, Scratch, done};
use crate::skipped::leave_out;

/// The users that root plays.
const OWNER: u32 = 1_001;
const VISITOR: u32 = 1_002;

/// A folder, its owner, and somebody else. Any other user than root plays both, and takes its own rights away for the visit.
struct House {
    scratch: Scratch,
    is_root: bool,
    program: PathBuf,
}

impl House {
    fn new() -> Self {
        let scratch = Scratch::new();
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        // Another user may not be let into the folder that the program is in.
        let program = scratch.0.with_extension("program");
        // This process does not copy it: a child that another test forks would have the new file open for writing until its `exec`, and
        // nobody could run the file meanwhile.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_leasehold")).arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let house = Self { scratch, is_root, program };
        house.own(&house.scratch.0);
        house
    }

    fn own(&self, path: &Path) {
        if self.is_root {
            std::os::unix::fs::chown(path, Some(OWNER), Some(OWNER)).unwrap();
        }
    }

    fn command(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = self.scratch.command(self.program.to_str().unwrap(), arguments);
        if self.is_root {
            command.uid(user).gid(user);
        }
        command
    }

    /// What the owner does.
    fn owner(&self, arguments: &[&str]) -> Done {
        mode(&self.scratch.0, 0o755);
        if self.scratch.file().exists() {
            mode(&self.scratch.file(), 0o644);
        }
        done(&mut self.command(OWNER, arguments))
    }

    /// Gives both the folder and the file the rights that the visitor is to find.
    fn rights(&self, folder: u32, file: u32) {
        mode(&self.scratch.file(), file);
        mode(&self.scratch.0, folder);
    }

    fn visitor(&self, arguments: &[&str]) -> Done {
        done(&mut self.command(VISITOR, arguments))
    }

    fn run(&self) {
        let ran = self.owner(&["run", "k", "--", "true"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    fn beside(&self) -> Vec<String> {
        let listed = fs::read_dir(&self.scratch.0).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn part(&self, end: &str) -> PathBuf {
        self.scratch.0.join(format!("leases.db{end}"))
    }
}

impl Drop for House {
    fn drop(&mut self) {
        drop(fs::set_permissions(&self.scratch.0, fs::Permissions::from_mode(0o755)));
        drop(fs::remove_file(&self.program));
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn token(status: &Done) -> String {
    assert_eq!(status.code, 0, "{status:?}");
    let (_, after) = status.out.split_once("\"last_token\":").unwrap_or_else(|| panic!("{status:?}"));
    after.chars().take_while(char::is_ascii_digit).collect()
}

/// The log and the index of a visitor would keep the owner from writing for ever.
#[test]
fn who_looks_and_may_not_write_to_the_file_locks_nobody_out() {
    let house = House::new();
    house.run();
    let before = house.beside();
    house.rights(0o1777, 0o444);
    for order in [&["list"][..], &["watch"], &["status", "k"], &["status", "--json", "k"]] {
        let looked = house.visitor(order);
        assert_eq!((looked.code, &*looked.err), (0, ""), "{looked:?}");
        assert_eq!(house.beside(), before, "{order:?}");
    }
    house.run();
}

/// In a folder that all users share, the file belongs to the first user, and others may only read it.
#[test]
fn who_asks_for_a_lease_and_may_not_write_to_the_file_locks_nobody_out() {
    let house = House::new();
    house.run();
    let before = house.beside();
    house.rights(0o1777, 0o444);
    let refused = house.visitor(&["run", "k", "--", "true"]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.err.contains("let this user write to the file"), "{refused:?}");
    assert_eq!(house.beside(), before);
    house.run();
}

/// SQLite's files come and go beside the file meanwhile. A visitor who opens them at the wrong moment would make them anew.
#[test]
fn who_looks_while_others_open_and_close_the_file_locks_nobody_out() {
    let house = House::new();
    house.run();
    house.rights(0o1777, 0o444);
    if !house.is_root {
        return leave_out("only root can be two users at once");
    }
    mode(&house.scratch.file(), 0o644);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    assert_ne!(token(&house.visitor(&["status", "--json", "k"])), "0");
                }
            });
        }
        let runs = (0..60).map(|_| done(&mut house.command(OWNER, &["run", "k", "--", "true"])));
        let failed = runs.into_iter().find(|run| run.code != 0);
        ends.store(true, Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
}

/// Whoever closes the file keeps it locked meanwhile, and on a busy machine that may take long.
#[test]
fn who_may_not_write_waits_for_somebody_who_keeps_the_file_locked_for_a_second() {
    let house = House::new();
    house.run();
    let closes = rusqlite::Connection::open(house.scratch.file()).unwrap();
    closes.execute_batch("PRAGMA locking_mode = EXCLUSIVE; SELECT * FROM leasehold_record").unwrap();
    house.rights(0o1777, 0o444);
    let visitor = Running::start(&mut house.command(VISITOR, &["status", "--json", "k"]));
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(closes);
    assert_eq!(visitor.end(), (0, String::new()));
}

/// To say that nobody used the store would be false.
#[test]
fn who_may_write_neither_to_the_folder_nor_to_the_file_sees_the_truth() {
    let house = House::new();
    house.run();
    let told = token(&house.owner(&["status", "--json", "k"]));
    assert_ne!(told, "0");
    for file in [0o444, 0o666] {
        house.rights(0o555, file);
        let looked = house.visitor(&["status", "--json", "k"]);
        assert_eq!((token(&looked), &*looked.err), (told.clone(), ""), "{looked:?}");
    }
}

#[test]
fn who_may_not_write_sees_what_is_held_now() {
    let house = House::new();
    house.run();
    house.rights(0o1777, 0o444);
    let watch = Running::start(&mut house.command(VISITOR, &["watch", "--json", "k"]));
    assert_eq!(watch.line().as_deref(), Some("[]"), "{}", watch.err());
    mode(&house.scratch.file(), 0o644);
    let holder =
        Running::start(&mut house.command(OWNER, &["run", "k", "--", "sh", "-c", "echo ready; exec sleep 600"]));
    assert_eq!(holder.line().as_deref(), Some("ready"), "{}", holder.err());
    let is_held = |line: &String| line.contains(&format!("pid {}", holder.pid()));
    std::iter::from_fn(|| watch.line()).take(30).find(is_held).expect("the watch sees it");
    let list = house.visitor(&["list"]);
    assert!(list.code == 0 && list.out.contains(&format!("pid {}", holder.pid())), "{list:?}");
}

/// After the index is damaged, the next process that writes makes it anew. That takes only a moment.
#[test]
fn who_may_not_write_waits_while_others_make_the_index_anew() {
    let house = House::new();
    house.run();
    house.rights(0o1777, 0o444);
    mode(&house.scratch.file(), 0o644);
    let lease = ["run", "--lease", "4", "k", "--", "sh", "-c", "echo ready; exec sleep 600"];
    let holder = Running::start(&mut house.command(OWNER, &lease));
    assert_eq!(holder.line().as_deref(), Some("ready"), "{}", holder.err());
    let watch = Running::start(&mut house.command(VISITOR, &["watch", "--json", "k"]));
    assert!(watch.line().is_some(), "{}", watch.err());
    for _ in 0..3 {
        // The next heartbeat of the holder makes it anew.
        let index = fs::File::options().write(true).open(house.part("-shm")).unwrap();
        index.write_all_at(&[0; 136], 0).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1_500));
    }
    watch.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(watch.end(), (143, String::new()));
}

/// Without the index, a reader would have to make one.
#[test]
fn a_log_that_a_visitor_cannot_read_is_told_and_left_alone() {
    let house = House::new();
    house.run();
    let writer = rusqlite::Connection::open(house.scratch.file()).unwrap();
    writer.execute_batch("CREATE TABLE diary (line)").unwrap();
    let log = fs::read(house.part("-wal")).unwrap();
    drop(writer);
    fs::write(house.part("-wal"), log).unwrap();
    house.own(&house.part("-wal"));
    let before = house.beside();
    house.rights(0o1777, 0o444);
    let looked = house.visitor(&["status", "k"]);
    assert_eq!((looked.code, &*looked.out), (69, ""), "{looked:?}");
    assert!(looked.err.contains("only by a user who may write to the file"), "{looked:?}");
    assert_eq!(house.beside(), before);
}

#[test]
fn an_owner_who_is_locked_out_is_told_by_which_files_and_what_to_do() {
    let house = House::new();
    if !house.is_root {
        return leave_out("SQLite mends the rights of a user's own files, and only root can be two users");
    }
    house.run();
    let (log, index) = (house.part("-wal"), house.part("-shm"));
    for (content, remedy) in [(&b""[..], "delete them while no process uses"), (&[0; 64], "do not delete them")] {
        for file in [&log, &index] {
            drop(fs::remove_file(file));
        }
        fs::write(&log, content).unwrap();
        fs::write(&index, "").unwrap();
        for file in [&log, &index] {
            mode(file, 0o444);
        }
        let run = house.owner(&["run", "k", "--", "true"]);
        assert_eq!(run.code, 69, "{run:?}");
        let names = format!("{} and {}", log.display(), index.display());
        assert!(run.err.contains(&names) && run.err.contains(remedy), "{run:?}");
    }
    fs::remove_file(log).unwrap();
    fs::remove_file(index).unwrap();
    house.run();
}
