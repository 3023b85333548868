//! What is made of the options: help, the manual page, completions; and the benchmark.

use std::{fs, process::Command};

use crate::harness::{Done, Scratch, done};
use crate::skipped::skip;

const CODES: [&str; 9] = [" 1 ", "64", "69", "71", "75", "126", "127", "128 +", "-E"];

#[test]
fn help_and_the_manual_page_have_every_exit_code_and_every_command() {
    let scratch = Scratch::new();
    for arguments in [&["--help"][..], &["man"]] {
        let done = scratch.done(arguments);
        let text = done.out.replace("\\-", "-");
        assert!(done.code == 0 && done.err.is_empty(), "{done:?}");
        for part in CODES.iter().chain(&[
            "could not be written",
            "LEASEHOLD_STORE",
            "run",
            "list",
            "status",
            "watch",
            "steal",
            "elect",
            "bench",
        ]) {
            assert!(text.contains(part), "{arguments:?} lacks {part:?}: {text}");
        }
    }
    let run = scratch.done(&["run", "--help"]).out;
    for part in ["LEASEHOLD_TOKEN", "killed with it", "KILL after the grace"] {
        assert!(run.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "{part:?}: {run}");
    }
}

#[test]
fn the_manual_page_has_a_section_for_each_command() {
    let scratch = Scratch::new();
    let page = scratch.done(&["man"]).out;
    for name in ["RUN", "LIST", "STATUS", "WATCH", "STEAL", "ELECT", "BENCH"] {
        let section = format!(".SH \"LEASEHOLD {name}\"");
        assert!(page.contains(&section), "{section} is missing: {page}");
    }
    for section in ["EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"] {
        assert!(page.contains(&format!(".SH \"{section}\"\n")), "{section} is missing: {page}");
    }
    assert!(page.ends_with("\\fBflock\\fR(1)\n"), "{page}");
    for odd in ["KEY COMMAND", "[default: ]", "<\\fIKEY\\fR>\n\n", "<\\fISHELL\\fR>\n\n"] {
        assert!(!page.contains(odd), "{odd:?}: {page}");
    }
    assert!(!page.contains("leasehold\\-run(1)"), "there is one page: {page}");
}

#[test]
fn completions_are_written_for_each_shell() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = scratch.done(&["completions", shell]);
        assert!(done.code == 0 && done.out.contains("on-loss"), "{shell}: {done:?}");
    }
}

/// What a shell offers to complete a line: one word among others, unless that is empty, and never the other one.
fn offers<'a>(done: &Done, reply: impl Iterator<Item = &'a str>, (line, offered, never): (&str, &str, &str)) {
    let reply: Vec<_> = reply.collect();
    assert!(done.code == 0 && done.err.is_empty(), "{line}: {done:?}");
    assert!(offered.is_empty() || reply.contains(&offered), "{line}: {done:?}");
    assert!(!reply.contains(&never), "{line}: {done:?}");
}

/// After KEY a shell completes the command, and offers none of leasehold's options, which would be refused there.
#[test]
fn bash_completes_the_command_after_the_key() {
    let scratch = Scratch::new();
    if Command::new("bash").arg("--version").output().is_err() {
        return skip("bash is not installed");
    }
    let script = scratch.done(&["completions", "bash"]).out;
    let complete = r#"
        COMPREPLY=() COMP_WORDS=(LINE)
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
        complete -p leasehold | grep -q -- '-F _leasehold_line ' || echo "not registered"
        _leasehold_line leasehold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[@]}"
    "#;
    for (words, offered, never) in [
        ("run --on-lo", "--on-loss", "printf"),
        ("run --on-loss ''", "kill", "printf"),
        ("run --on-loss = k", "kill", "warn"),
        ("run k -", "", "--on-loss"),
        ("run k ''", "printf", "--on-loss"),
        ("run k -- print", "printf", "--on-loss"),
        ("run k -- ls --", "", "--on-loss"),
        ("run k ls -w ''", "", "--on-loss"),
        ("run -w 3 -", "--on-loss", "printf"),
        ("run -nE 0 -", "--on-loss", "printf"),
        ("run -w 3 k print", "printf", "--on-loss"),
        ("run --store = sqlite : a.db -", "--on-loss", "printf"),
        ("run --store = sqlite : a.db cron : report print", "printf", "--on-loss"),
        ("run cron : rep", "", "--on-loss"),
        ("run -- k print", "printf", "--on-loss"),
        ("elect --timeout 3 k -- print", "printf", "--on-loss"),
        ("steal k print", "printf", "--on-loss"),
        ("status --js", "--json", "printf"),
        ("st", "steal", "printf"),
    ] {
        let line = format!("{script}\n{}", complete.replace("LINE", &format!("leasehold {words}")));
        let done = done(&mut scratch.command("bash", &["--norc", "-c", &line]));
        offers(&done, done.out.split_whitespace(), (words, offered, never));
    }
}

#[test]
fn fish_completes_the_command_after_the_key() {
    let scratch = Scratch::new();
    if Command::new("fish").arg("--version").output().is_err() {
        return skip("fish is not installed");
    }
    let script = scratch.done(&["completions", "fish"]).out;
    for (line, offered, never) in [
        ("run --on-lo", "--on-loss", "printf"),
        ("run --on-loss ", "kill", "printf"),
        ("run k -", "", "--on-loss"),
        ("run k print", "printf", "--on-loss"),
        ("run k -- print", "printf", "--on-loss"),
        ("run k -- tidy --dee", "--deeply", "--on-loss"),
        ("run k tidy --dee", "--deeply", "--on-loss"),
        ("run k --foo", "", "--on-loss"),
        ("run k -- --", "", "--on-loss"),
        ("run k -- -x y", "", "--on-loss"),
        ("run -w 3 --on-lo", "--on-loss", "printf"),
        ("run -nE 0 --on-lo", "--on-loss", "printf"),
        ("run -w 3 k print", "printf", "--on-loss"),
        ("run --store=sqlite:a.db k print", "printf", "--on-loss"),
        ("run --store sqlite:a.db k print", "printf", "--on-loss"),
        ("run 'a key' print", "printf", "--on-loss"),
        ("run -- k print", "printf", "--on-loss"),
        ("elect --timeout 3 k -- print", "printf", "--on-loss"),
        ("steal k print", "printf", "--on-loss"),
        ("status --js", "--json", "printf"),
        ("completions z", "zsh", "printf"),
        ("st", "steal", "printf"),
    ] {
        let program = format!(
            "{script}\ncomplete -c tidy -l deeply\ncomplete -C '{}'",
            format!("leasehold {line}").replace('\'', "\\'")
        );
        let done = done(&mut scratch.command("fish", &["--no-config", "-c", &program]));
        let reply = done.out.lines().filter_map(|line| line.split('\t').next());
        offers(&done, reply, (line, offered, never));
    }
}

/// zsh completes only at a terminal, so it gets one of its own.
#[test]
fn zsh_completes_the_command_after_the_key() {
    let scratch = Scratch::new();
    if Command::new("zsh").arg("--version").output().is_err() {
        return skip("zsh is not installed");
    }
    fs::write(scratch.0.join("_leasehold"), scratch.done(&["completions", "zsh"]).out).unwrap();
    let shell = "TERM=dumb COLUMNS=200 zsh -f -i";
    let begin = "PROMPT=READY; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; setopt no_list_beep";
    let complete = format!(
        "zmodload zsh/zpty; zpty shell '{shell}'; zpty -w shell '{begin}'; zpty -r shell out '*READY*READY*'
         zpty -w -n shell \"leasehold $1\"$'\\t'; zpty -r shell out \"*$2*\"; print -r -- \"$out\"; zpty -d shell"
    );
    for (line, offered) in [
        ("run k print", "printf"),
        ("run kill -- ls --almost", "--almost-all"),
        ("run -w 3 k -- unam", "uname"),
        ("run --on-lo", "--on-loss"),
    ] {
        let done = done(&mut scratch.command("timeout", &["30", "zsh", "-f", "-c", &complete, "zsh", line, offered]));
        assert!(done.code == 0 && done.out.contains(offered), "{line}: {done:?}");
    }
}

#[test]
fn the_benchmark_measures_any_store() {
    let scratch = Scratch::new();
    for url in [&*scratch.url(), "memory:"] {
        let done = scratch.done(&["bench", "--rounds", "10", "--store", url]);
        let lines: Vec<_> = done.out.lines().collect();
        assert_eq!(lines.len(), 3, "{done:?}");
        for (line, name) in lines[1..].iter().zip(["acquire and release", "hand-off"]) {
            let figures = line.strip_prefix(name).unwrap_or_else(|| panic!("{name}: {done:?}"));
            let figures: Vec<f64> = figures.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
            assert!(figures.len() == 2 && figures[1] >= figures[0], "{done:?}");
        }
    }
    let json = scratch.done(&["bench", "--json", "--rounds", "10"]);
    let figures = json.out.strip_prefix("{\"rounds\":10,\"acquire_and_release\":{\"p50_ms\":").expect(&json.err);
    let words = figures.replace(",\"p95_ms\":", " ").replace("},\"hand_off\":{\"p50_ms\":", " ");
    let figures = words.strip_suffix("}}\n").expect("it is one line").split(' ');
    let figures: Vec<f64> = figures.map(|figure| figure.parse().unwrap()).collect();
    assert!(figures.len() == 4 && figures.iter().all(|ms| *ms > 0.0), "{json:?}");
    assert_eq!(scratch.done(&["bench", "--rounds", "0"]).code, 64);
    assert_eq!(scratch.done(&["list", "--json"]).out, "[]\n", "nothing is left behind");
}
