//! A terminal: a pseudo-terminal whose session begins with `setsid --ctty`.

use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use nix::{
    pty::openpty,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::harness::{Scratch, can_be_interrupted};
use crate::show::{queued, until_queued};
use crate::skipped::skip;
use crate::until::wait_until;

/// Somebody who types, and reads what comes.
pub(crate) struct Typist {
    keys: File,
    pub(crate) screen: Arc<Mutex<String>>,
    leader: Child,
}

impl Typist {
    /// A script in a session of its own; `None` if that cannot be had here.
    pub(crate) fn sit_down(scratch: &Scratch, script: &str) -> Option<Self> {
        if Command::new("setsid").arg("--version").output().is_err() {
            skip("setsid is missing; install util-linux");
            return None;
        }
        let pair = openpty(None, None).expect("there is a pseudo-terminal");
        // The processes of other tests would inherit these ends. One of them is allowed so few descriptors that it could not start.
        for end in [&pair.master, &pair.slave] {
            fcntl_setfd(end, FdFlags::CLOEXEC).expect("it is open");
        }
        let end = || Stdio::from(pair.slave.try_clone().expect("it is open"));
        let mut command = scratch.command("setsid", &["--ctty", "sh", "-c", script]);
        let leader = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
        let (keys, screen) = (File::from(pair.master), Arc::new(Mutex::new(String::new())));
        let (mut shown, seen) = (keys.try_clone().expect("it is open"), screen.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Some(Self { keys, screen, leader })
    }

    /// A script that runs in bash, which can control jobs; `None` if that cannot be had here.
    pub(crate) fn sit_down_at_bash(scratch: &Scratch, script: &str) -> Option<Self> {
        if !Command::new("bash").arg("--version").output().is_ok_and(|output| output.status.success()) {
            skip("bash is missing");
            return None;
        }
        Self::sit_down(scratch, script)
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).expect("the terminal is there");
    }

    pub(crate) fn sees(&self, part: &str) {
        let screen = || self.screen.lock().unwrap().clone();
        let seen = std::panic::catch_unwind(|| wait_until(part, || screen().contains(part)));
        assert!(seen.is_ok(), "{part:?} is not on the screen: {:?}", screen());
    }

    /// Waits for the end of the session's first process, however it ends.
    fn goes(&mut self) {
        wait_until("the end of the session", || self.leader.try_wait().expect("it is a child").is_some());
    }

    /// The code of the session's first process.
    pub(crate) fn ends(mut self) -> i32 {
        let mut code = None;
        wait_until("the end of the session", || {
            code = self.leader.try_wait().expect("it is a child").and_then(|status| status.code());
            code.is_some()
        });
        code.expect("it came")
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        drop(self.leader.kill());
        drop(self.leader.wait());
    }
}

/// The leasehold that holds `k`.
pub(crate) fn holder(scratch: &Scratch) -> Pid {
    let status = scratch.done(&["status", "k"]).out;
    let pid = status.split_once(" pid ").and_then(|(_, rest)| rest.split(':').next()?.parse().ok());
    Pid::from_raw(pid.expect("its info has it"))
}

#[test]
fn a_command_can_read_from_the_terminal_and_gives_it_back() {
    let scratch = Scratch::new();
    let script = "leasehold run k -- sh -c 'echo ask; read line; echo got $line; exit 3'; echo code $?; read line; echo outer $line";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ask");
    typist.types("hello\n");
    typist.sees("got hello");
    typist.sees("code 3");
    typist.types("again\n");
    typist.sees("outer again");
    assert_eq!(typist.ends(), 0);
}

#[test]
fn control_c_reaches_the_command() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let script = "trap : INT; leasehold run k -- sh -c 'trap \"echo caught; exit 5\" INT; echo ready; while :; do sleep 0.02; done'; echo code $?";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ready");
    typist.types("\x03");
    typist.sees("caught");
    typist.sees("code 5");
    typist.ends();
}

/// Its group has not got the terminal: leasehold hears the key, and passes the signal on.
#[test]
fn control_c_reaches_a_command_in_a_pipeline() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let command = "sh -c 'trap \"echo caught; exit 5\" INT; echo ready; while :; do sleep 0.02; done'";
    let script = format!("trap : INT; leasehold run k -- {command} | (trap '' INT; cat); echo over");
    let Some(mut typist) = Typist::sit_down(&scratch, &script) else { return };
    typist.sees("ready");
    typist.types("\x03");
    typist.sees("caught");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

/// As `leasehold run … | less` needs it.
#[test]
fn the_reader_of_a_pipeline_keeps_the_terminal() {
    let scratch = Scratch::new();
    let script = "leasehold run k -- sh -c 'echo data; sleep 0.3' | sh -c 'read data; echo ask; read line < /dev/tty; echo reader $data $line'";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ask");
    typist.types("hello\n");
    typist.sees("reader data hello");
    assert_eq!(typist.ends(), 0);
}

/// As `… | leasehold run k -- less` needs it: it is stopped when it asks for the terminal, and then given it.
#[test]
fn a_command_behind_a_pipe_gets_the_terminal_when_it_asks() {
    let scratch = Scratch::new();
    let script = "echo data | leasehold run k -- sh -c 'read data; echo ask; read line < /dev/tty; echo got $data $line'; read line; echo outer $line";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ask");
    typist.types("hello\n");
    typist.sees("got data hello");
    typist.types("again\n");
    typist.sees("outer again");
    assert_eq!(typist.ends(), 0);
}

#[test]
fn control_z_stops_the_command_and_control_z_lets_it_go_on_under_the_same_lease() {
    let scratch = Scratch::new();
    let script =
        "leasehold run --lease 2 --on-loss warn k -- sh -c 'echo ready; read line; echo went on $line'; echo code $?";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ready");
    typist.types("\x1a");
    typist.sees("the command is stopped, and the lease of \"k\" is still renewed; ^Z continues it, ^C ends it");
    let rival = scratch.done(&["run", "-q", "-w", "4.5", "--lease", "2", "k", "true"]);
    assert_eq!(rival.code, 1, "twice the lease has passed: {rival:?}");
    typist.types("\x1a");
    typist.types("hello\n");
    typist.sees("went on hello");
    typist.sees("code 0");
    assert_eq!(typist.ends(), 0);
}

#[test]
fn control_c_ends_a_command_that_control_z_has_stopped() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    // A shell that starts `sleep` by vfork could be stopped while it does so, and then its parent is not told.
    let script = "trap : INT; leasehold run k -- sh -c 'echo ready; exec sleep 600'; echo code $?";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ready");
    typist.types("\x1a");
    typist.sees("^C ends it");
    typist.types("\x03");
    typist.sees("code 130");
    typist.ends();
}

/// A command that was killed has not set the terminal as it was.
#[test]
fn the_terminal_is_set_as_before_after_a_command_that_was_killed() {
    let scratch = Scratch::new();
    let script = "leasehold run k -- sh -c 'stty -echo -icanon; kill -KILL $$'; echo code $?; stty -a | tr ' ' '\\n' | grep -E '^-?(echo|icanon)$' | tr '\\n' ' '; echo modes";
    let Some(typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("code 137");
    typist.sees("modes");
    let screen = typist.screen.lock().unwrap().clone();
    assert!(
        screen.contains("icanon")
            && screen.contains("echo")
            && !screen.contains("-icanon")
            && !screen.contains("-echo"),
        "{screen}"
    );
    assert_eq!(typist.ends(), 0);
}

/// With `tostop`, the kernel stops who writes while another group has the terminal. A leasehold that is stopped would
/// end nothing.
#[test]
fn a_loss_is_told_on_a_terminal_that_stops_background_writers() {
    let scratch = Scratch::new();
    let script = "stty tostop; leasehold run k -- sh -c 'echo ready; sleep 600'; echo code $?";
    let Some(typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ready");
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    typist.sees("another process stole it");
    typist.sees("code 75");
    assert_eq!(typist.ends(), 0);
}

#[test]
fn watch_draws_anew_until_control_c() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let script = "trap : INT; leasehold watch; echo code $?";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("HOLDER");
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    typist.sees(&format!("pid {}", holder.pid()));
    typist.types("\x03");
    typist.sees("code 130");
    typist.ends();
}

#[test]
fn watch_keeps_its_head_in_a_window_that_is_too_low_for_the_table() {
    let scratch = Scratch::new();
    let _holders: Vec<_> = (0..7).map(|_| scratch.ready(&["-s"], "echo ready; exec sleep 600")).collect();
    let script = "stty rows 6; exec leasehold watch";
    let Some(typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("… and 4 more");
    let screen = typist.screen.lock().unwrap().clone();
    let first = screen.split("… and").next().unwrap_or_default();
    assert_eq!(first.matches("pid ").count(), 3, "{screen:?}");
}

#[test]
fn watch_says_why_it_shows_nothing() {
    let scratch = Scratch::new();
    let Some(typist) = Typist::sit_down(&scratch, "exec leasehold watch") else { return };
    typist.sees("there is no such file yet");
}

/// A stopped `watch` can send nothing to the terminal before the shell prints its next line.
#[test]
fn a_watcher_that_is_stopped_leaves_the_terminal_as_it_was() {
    let scratch = Scratch::new();
    let script = "exec bash -c 'set -m; leasehold watch; echo stopped; kill -9 %1'";
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, script) else { return };
    typist.sees("HOLDER");
    typist.types("\x1a");
    typist.sees("stopped");
    let screen = typist.screen.lock().unwrap().clone();
    let (cuts, wraps) = (screen.rfind("\x1b[?7l"), screen.rfind("\x1b[?7h"));
    assert!(cuts.is_some() && cuts < wraps, "long lines are still cut off: {screen:?}");
    typist.ends();
}

#[test]
fn who_waits_can_be_interrupted() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let _holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let script = "trap : INT; leasehold run k -- true; echo code $?";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("waiting for");
    typist.types("\x03");
    typist.sees("code 130");
    typist.ends();
}

/// It leaves the queue, and comes back to it.
#[test]
fn who_waits_is_stopped_by_control_z_and_goes_on_in_the_foreground() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let script = "exec bash -c 'set -m; leasehold run -q k -- echo granted; echo stopped; read go; fg; echo over'";
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, script) else { return };
    until_queued(&scratch, 1);
    typist.types("\x1a");
    typist.sees("stopped");
    assert_eq!(queued(&scratch), 0);
    typist.types("go\n");
    until_queued(&scratch, 1);
    drop(holder);
    typist.sees("granted");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

/// Nobody could continue it: the kernel stops no process of an orphaned group at `^Z`.
#[test]
fn control_z_does_not_stop_who_waits_where_no_shell_could_continue_it() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let script = "leasehold run -q k -- echo granted; echo code $?";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    until_queued(&scratch, 1);
    typist.types("\x1a");
    typist.sees("^Z");
    drop(holder);
    typist.sees("granted");
    typist.sees("code 0");
    assert_eq!(typist.ends(), 0);
}

/// The command has the terminal, so the terminal does not tell the shell.
#[test]
fn control_c_ends_the_script_around_a_command_that_it_ends() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    for command in [
        "leasehold run k -- sh -c 'echo ready; exec sleep 600'",
        "leasehold elect k -- sh -c 'echo ready; exec sleep 600'",
    ] {
        let script = format!("{command}; echo went on; exec sleep 600");
        let Some(mut typist) = Typist::sit_down(&scratch, &script) else { return };
        typist.sees("ready");
        typist.types("\x03");
        typist.goes();
        assert!(!typist.screen.lock().unwrap().contains("went on"));
        assert!(
            scratch.done(&["status", "k"]).out.contains("free; its next token will be above"),
            "the lease was released before"
        );
    }
}

#[test]
fn control_c_does_not_end_the_script_around_a_command_that_takes_care_of_it() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let script = "leasehold run k -- sh -c 'trap \"exit 130\" INT; echo ready; while :; do sleep 0.02; done'; echo went on with $?";
    let Some(mut typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ready");
    typist.types("\x03");
    typist.sees("went on with 130");
    assert_eq!(typist.ends(), 0);
}

/// Somebody asked leasehold alone to end.
#[test]
fn int_to_leasehold_does_not_end_the_script_around_it() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let script = "leasehold run k -- sh -c 'echo ready; exec sleep 600'; echo went on with $?";
    let Some(typist) = Typist::sit_down(&scratch, script) else { return };
    typist.sees("ready");
    kill(holder(&scratch), Signal::SIGINT).unwrap();
    typist.sees("went on with 130");
    assert_eq!(typist.ends(), 0);
}

/// A shell tells a job that runs nothing when it brings it to the foreground; some shells send CONT, and bash does not.
#[test]
fn a_command_in_the_background_that_asks_for_the_terminal_goes_on_in_the_foreground() {
    let scratch = Scratch::new();
    let script =
        "exec bash -c 'set -m; leasehold run k -- sh -c \"read line; echo got \\$line\" & read go; fg; echo over'";
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, script) else { return };
    typist.sees("fg in its shell, or SIGCONT to leasehold, continues it");
    typist.types("go\n");
    typist.sees("leasehold run k");
    typist.types("hello\n");
    typist.sees("got hello");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

/// The shell took it when leasehold was stopped, and would end if it lost it.
#[test]
fn a_command_that_ends_in_the_background_leaves_the_terminal_to_the_shell() {
    let scratch = Scratch::new();
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, "PS1= exec bash --norc --noprofile -i") else { return };
    typist.types("leasehold run k -- sh -c 'echo rea''dy; while [ ! -e go ]; do sleep 0.02; done'\n");
    typist.sees("ready");
    kill(holder(&scratch), Signal::SIGSTOP).unwrap();
    typist.sees("Stopped");
    typist.types("bg; echo it go''es\n");
    typist.sees("it goes");
    std::fs::write(scratch.0.join("go"), "").expect("the folder is there");
    wait_until("the release", || scratch.done(&["status", "k"]).out.contains("free"));
    typist.types("echo the shell li''ves\n");
    typist.sees("the shell lives");
    typist.types("exit 0\n");
    assert_eq!(typist.ends(), 0);
}

/// To the shell the job is leasehold, which runs, so it says nothing of a stopped job.
#[test]
fn a_command_that_is_stopped_does_not_keep_its_lease_once_its_shell_has_ended() {
    let scratch = Scratch::new();
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, "PS1= exec bash --norc --noprofile -i") else { return };
    typist.types("leasehold run k -- sh -c 'read line </dev/tty' &\n");
    typist.sees("fg in its shell, or SIGCONT to leasehold, continues it");
    typist.types("exit 0\n");
    assert_eq!(typist.ends(), 0);
    wait_until("the release", || scratch.done(&["status", "k"]).out.contains("free"));
}

/// Somebody sent CONT to the command, and not to leasehold. The command runs, so it needs no shell.
#[test]
fn a_command_that_others_have_continued_is_not_hung_up_when_its_shell_ends() {
    let scratch = Scratch::new();
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, "PS1= exec bash --norc --noprofile -i") else { return };
    let script = "echo pid $$,; while [ ! -e go ]; do sleep 0.02; done; touch went";
    typist.types(&format!("leasehold run k -- sh -c '{script}' </dev/null &\n"));
    typist.sees(",\r\n");
    let screen = typist.screen.lock().unwrap().clone();
    let pid = screen.rsplit("pid ").find_map(|after| after.split_once(',')?.0.parse().ok());
    let command = Pid::from_raw(pid.expect("it was said"));
    kill(command, Signal::SIGSTOP).unwrap();
    typist.sees("SIGCONT to leasehold continues it");
    kill(command, Signal::SIGCONT).unwrap();
    typist.types("exit 0\n");
    assert_eq!(typist.ends(), 0);
    // leasehold looks for its shell every second.
    thread::sleep(std::time::Duration::from_millis(2_500));
    std::fs::write(scratch.0.join("go"), "").expect("the folder is there");
    wait_until("the end of the command by itself", || scratch.0.join("went").exists());
}

/// Without a shell, nobody can bring the command to the foreground.
#[test]
fn a_command_that_asks_for_the_terminal_without_a_shell_does_not_keep_its_lease() {
    let scratch = Scratch::new();
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, "PS1= exec bash --norc --noprofile -i") else { return };
    typist.types("(leasehold run k -- sh -c ': > began; read line </dev/tty' &)\n");
    wait_until("the begin of the command", || scratch.0.join("began").exists());
    wait_until("the release", || scratch.done(&["status", "k"]).out.contains("free"));
    typist.types("exit 0\n");
    assert_eq!(typist.ends(), 0);
}
