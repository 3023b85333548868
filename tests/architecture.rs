//! Holds the floor plan: which folder may use what, where the target and the features may be asked for, and a few manners.
//! Comments and the insides of literals do not count.

use std::{collections::HashSet, fs, path::Path};

const LONGEST_FILE: usize = 500;

/// Words that stand nowhere but in the files (or folders) that `except` lists.
struct Ban {
    words: &'static str,
    except: &'static str,
    because: &'static str,
}

const BANS: [Ban; 12] = [
    Ban {
        words: "target_family target_os target_arch target_env target_vendor",
        except: "src/lib.rs src/executor/mod.rs src/executor/bounds.rs src/store/mod.rs src/store/url/mod.rs src/signal/mod.rs src/bin/leasehold/stage.rs",
        because: "only the sockets know the target",
    },
    Ban {
        words: "feature",
        except: "src/lib.rs src/machine/failure.rs src/machine/sorted.rs src/driver/event.rs src/executor/mod.rs src/store/mod.rs src/store/postgres/drivers/mod.rs src/store/postgres/drivers/client/tls/mod.rs src/store/redis/tls/mod.rs src/store/etcd/tls/mod.rs src/store/tls/mod.rs src/store/url/mod.rs src/signal/mod.rs",
        because: "features choose modules, where modules are listed; stores, by their URL; whether events are told, whether a key may be locked, and how large maps are kept",
    },
    Ban {
        words: "wasm_bindgen wasm_bindgen_futures js_sys web_sys gloo_timers",
        except: "src/executor/web src/signal/broadcast src/store/indexed_db src/js/",
        because: "only the browser's adapters and bindings know the browser",
    },
    Ban {
        words: "tokio boot_time getrandom",
        except: "src/executor/mod.rs src/executor/tokio src/store/inside.rs src/store/sweep.rs src/store/under_way.rs src/store/postgres src/store/redis src/store/etcd src/bin/",
        because: "only its executor knows tokio, with stores and programs that run on it",
    },
    Ban { words: "rusqlite", except: "src/store/sqlite", because: "only its store knows a database" },
    Ban {
        words: "tokio_postgres deadpool_postgres sqlx",
        except: "src/store/postgres/drivers",
        because: "only the drivers of its store know how PostgreSQL is reached",
    },
    Ban { words: "redis sha1_smol", except: "src/store/redis src/store/mod.rs", because: "only its store knows Redis" },
    Ban { words: "etcd_client", except: "src/store/etcd", because: "only its store knows etcd" },
    Ban {
        words: "clap clap_complete clap_mangen nix",
        except: "src/bin/",
        because: "only programs have a command line",
    },
    Ban {
        words: "tracing",
        except: "src/driver/event.rs src/store/redis/setup.rs src/store/postgres/signals/hearing.rs",
        because: "one place reports events; a store warns if it could not check its server or if its signals do not arrive",
    },
    Ban {
        words: "PoisonError",
        except: "src/executor/mutex.rs src/signal/directory/ear.rs src/bin/",
        because: "the executors' Mutex is never poisoned; use it",
    },
    Ban { words: "utils", except: "", because: "it says nothing; name what it does" },
];

/// Rooms without doors: an adapter is named in its own file, in its folder's list, and where the crate is put together.
const ADAPTERS: [(&str, &str); 12] = [
    ("MemoryStore", "src/store/memory"),
    ("SqliteStore", "src/store/sqlite"),
    ("IndexedDbStore", "src/store/indexed_db"),
    ("PostgresStore", "src/store/postgres"),
    ("RedisStore", "src/store/redis"),
    ("EtcdStore", "src/store/etcd"),
    ("LocalSignals", "src/signal/local"),
    ("DirectorySignals", "src/signal/directory"),
    ("BroadcastSignals", "src/signal/broadcast"),
    ("WebExecutor", "src/executor/web"),
    ("TokioExecutor", "src/executor/tokio"),
    ("SimExecutor", "src/executor/sim"),
];

/// What a part of the tree may name of this crate, and what it must not name at all. The first part that fits counts.
const FLOORS: [(&str, &str, &str); 5] = [
    // Pure: core, alloc and plain data.
    ("src/machine/", "machine", "std async await Rc Cell RefCell Mutex atomic futures rand tracing"),
    (
        "src/store/",
        "oneshot machine store signal::deliver signal::has_fallen signal::make_directory signal::forsake_locks signal::Signals signal::Beacons signal::Inbox signal::Notice executor::MaybeSend executor::Mutex executor::Shared executor::WeakShared executor::now executor::process_wide executor::random executor::spawn executor::this_process executor::timers_run_here executor::Part executor::ProcessMark executor::DROPS_TASKS",
        "",
    ),
    (
        "src/signal/",
        "machine signal store::Reach executor::MaybeSend executor::Mutex executor::Shared executor::WeakShared executor::HAS_MANY_CONTEXTS executor::process_wide executor::spawn executor::this_process executor::Part executor::ProcessMark",
        "",
    ),
    ("src/executor/", "machine::Now machine::Monotonic machine::Wall machine::whole_ms executor", ""),
    // Not `js`, the floor above.
    ("src/", "oneshot machine store signal executor client driver LeaseManager", ""),
];

/// All that is wrong with one file, as `path:line: what, and why`.
fn complaints(path: &str, source: &str) -> Vec<String> {
    let code = without_comments_and_literals(source);
    let mut found = Vec::new();
    let mut complain = |line: usize, what: String| found.push(format!("{path}:{line}: {what}"));

    if code.lines().count() > LONGEST_FILE {
        complain(LONGEST_FILE + 1, format!("a file has at most {LONGEST_FILE} lines; split it by subject"));
    }
    // Collections say `get_mut`; and what takes a `this` is the browser's, and named by it.
    let getter = |line: &str| line.replace("fn get_mut", "").contains("fn get_") && !line.contains("(this: ");
    for (index, _) in code.lines().enumerate().filter(|(_, line)| getter(line)) {
        complain(index + 1, "`get_` says nothing; name what is got".into());
    }
    for (line, name) in names(&code) {
        for reason in reasons_against(path, &name) {
            complain(line, format!("`{name}`: {reason}"));
        }
    }
    found
}

/// Why a file must not use a name such as `std::time` or `crate::store::Store`; empty if it may.
fn reasons_against(path: &str, name: &str) -> Vec<String> {
    let segments: Vec<&str> = name.split("::").collect();
    let lists = |list: &str, word: &str| list.split(' ').any(|listed| listed == word);
    let starts_with_one_of = |text: &str, list: &str| list.split_terminator(' ').any(|start| text.starts_with(start));
    let in_charge = starts_with_one_of(path, "src/lib.rs src/js/ src/bin/");

    let bans = BANS
        .iter()
        .filter(|ban| !starts_with_one_of(path, ban.except))
        .filter(|ban| segments.iter().any(|segment| lists(ban.words, segment)))
        .map(|ban| ban.because.to_string());
    let doors = ADAPTERS
        .iter()
        .filter(|(adapter, home)| segments.contains(adapter) && !path.starts_with(home))
        .filter(|_| !in_charge && !path.ends_with("/mod.rs"))
        .map(|(_, home)| format!("it is not known outside of {home}"));

    let inside = match segments[..] {
        ["crate", _, ..] => name.strip_prefix("crate::"),
        // A floor, when said in a `mod.rs`; elsewhere `super` holds neighbours, which bear other names.
        ["super", floor, ..] if lists("store signal executor manager js", floor) => name.strip_prefix("super::"),
        _ => None,
    };
    let (part, may, must_not) = FLOORS.iter().find(|(part, ..)| path.starts_with(part)).expect("src/ is a part");
    let above = inside.filter(|inside| !in_charge && !starts_with_one_of(inside, may));
    let above = above.map(|_| format!("{part} may name of this crate only: {may}"));
    let alien = segments.iter().find(|segment| lists(must_not, segment));
    let alien = alien.map(|_| format!("{part} must not name: {must_not}"));

    bans.chain(doors).chain(above).chain(alien).collect()
}

/// Each name in the code with its line; `use a::{b, c::d}` counts as `a::b` and `a::c::d`.
fn names(code: &str) -> Vec<(usize, String)> {
    let (mut found, mut line, mut name) = (Vec::new(), 1, String::new());
    // For each open brace, the path that it continues: empty for an ordinary block.
    let mut braces: Vec<String> = Vec::new();
    for letter in code.chars().chain(['\n']) {
        match letter {
            ':' => name.push(':'),
            letter if letter.is_alphanumeric() || letter == '_' => {
                if name.is_empty() || (name.ends_with(':') && !name.ends_with("::")) {
                    name = braces.last().cloned().unwrap_or_default();
                }
                name.push(letter);
            }
            '*' if name.ends_with("::") => name.push('*'),
            '{' if name.ends_with("::") => braces.push(std::mem::take(&mut name)),
            end => {
                let whole = std::mem::take(&mut name).trim_matches(':').to_string();
                found.extend(Some((line, whole)).filter(|(_, whole)| !whole.is_empty()));
                match end {
                    '{' => braces.push(String::new()),
                    '}' => drop(braces.pop()),
                    '\n' => line += 1,
                    _ => {}
                }
            }
        }
    }
    found
}

fn without_comments_and_literals(source: &str) -> String {
    let (mut code, mut rest) = (String::new(), source);
    while let Some(letter) = rest.chars().next() {
        let length = comment_or_literal(rest);
        if length == 0 {
            code.push(letter);
        } else {
            // Something stays in its place, and every line keeps its number.
            code.push(' ');
            code.extend(rest[..length].chars().filter(|letter| *letter == '\n'));
        }
        rest = &rest[length.max(letter.len_utf8())..];
    }
    code
}

/// How many bytes long the comment or literal is that the text starts with; 0 if it starts with neither.
fn comment_or_literal(text: &str) -> usize {
    let until = |end: &str, from: usize| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    let closing = |hashes| String::from('"') + &"#".repeat(hashes);
    let hashes = text.bytes().skip(1).take_while(|byte| *byte == b'#').count();
    let mut letters = text.chars();
    match (letters.next(), letters.next(), letters.next()) {
        (Some('/'), Some('/'), _) => text.find('\n').unwrap_or(text.len()),
        (Some('/'), Some('*'), _) => until("*/", 2),
        (Some('r'), ..) if text[1 + hashes..].starts_with('"') => until(&closing(hashes), 2 + hashes),
        (Some('\''), Some('\\'), _) => until("'", 3),
        (Some('\''), Some(letter), Some('\'')) => 2 + letter.len_utf8(),
        (Some('"'), ..) => {
            let mut escaped = false;
            let end = text[1..].find(|letter| {
                let closes = letter == '"' && !escaped;
                escaped = letter == '\\' && !escaped;
                closes
            });
            end.map_or(text.len(), |at| at + 2)
        }
        _ => 0,
    }
}

/// Every Rust file below a folder of the crate, in whose root cargo runs its tests.
fn rust_files(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("its entry can be read").path();
        if path.is_dir() {
            // The libraries of the tests' pages are many files.
            files.extend(if path.ends_with("node_modules") { Vec::new() } else { rust_files(&path) });
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.to_string_lossy().replace('\\', "/");
            files.push((name, fs::read_to_string(&path).expect("it is text")));
        }
    }
    files
}

#[test]
fn the_tree_keeps_the_floor_plan() {
    let files = rust_files(Path::new("src"));
    assert!(files.iter().any(|(path, _)| path == "src/machine/mod.rs"), "the walk missed floor 0");
    let found: Vec<String> = files.iter().flat_map(|(path, source)| complaints(path, source)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// A file without its extension, or its folder if that stands for it.
fn module_of(path: &str) -> &str {
    path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs")).expect("it is Rust")
}

fn is_program(path: &str) -> bool {
    let (folder, file) = path.rsplit_once('/').expect("it is in a folder");
    ["main.rs", "lib.rs"].contains(&file) || folder.ends_with("tests") || folder.ends_with("bin")
}

/// The modules that a file declares in lines of their own.
fn declared<'a>((path, source): &'a (String, String)) -> impl Iterator<Item = String> + 'a {
    let (folder, file) = path.rsplit_once('/').expect("it is in a folder");
    let below = if is_program(path) || file == "mod.rs" { folder } else { module_of(path) };
    let lines = source.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter_map(move |line| {
        if let Some(elsewhere) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            let (mut above, mut place) = (folder, elsewhere);
            while let Some(rest) = place.strip_prefix("../") {
                (above, place) = (above.rsplit_once('/').map_or("", |(above, _)| above), rest);
            }
            return Some(module_of(&format!("{above}/{place}")).to_string());
        }
        let (_, rest) = line.split_once("mod ")?;
        Some(format!("{below}/{}", rest.strip_suffix(';')?))
    })
}

/// The files that are neither a program nor a module of another file.
fn modules_of_nothing(files: &[(String, String)]) -> Vec<&str> {
    let declared: HashSet<_> = files.iter().flat_map(declared).collect();
    let is_used = |path: &&str| is_program(path) || declared.contains(module_of(path));
    files.iter().map(|(path, _)| path.as_str()).filter(|path| !is_used(path)).collect()
}

/// The tests in a file that no `mod` names would not run, and nothing else would say so.
#[test]
fn each_file_is_a_part_of_a_program() {
    let files: Vec<_> = ["src", "tests"].into_iter().flat_map(|folder| rust_files(Path::new(folder))).collect();
    assert!(files.len() > 500, "the walk missed most of them: {}", files.len());
    assert_eq!(modules_of_nothing(&files), [""; 0]);
}

#[test]
fn a_file_without_a_program_is_found() {
    let root = "mod used;\n// mod commented;\n#[path = \"../stores/far.rs\"]\nmod far;\npub(crate) mod folder;";
    let files = [
        ("tests/a/main.rs", root),
        ("tests/a/used.rs", "mod within;"),
        ("tests/a/used/within.rs", ""),
        ("tests/a/folder/mod.rs", ""),
        ("tests/stores/far.rs", ""),
        ("tests/a/commented.rs", ""),
        ("tests/a/forgotten.rs", "mod used;"),
        ("tests/a/folder/used.rs", ""),
    ];
    let files = files.map(|(path, source)| (path.to_string(), source.to_string()));
    let found = modules_of_nothing(&files);
    assert_eq!(found, ["tests/a/commented.rs", "tests/a/forgotten.rs", "tests/a/folder/used.rs"]);
}

#[test]
fn each_rule_can_fail() {
    let long = "\n".repeat(LONGEST_FILE) + "fn last() {}\n";
    for (path, source, line) in [
        ("src/client/guard.rs", "\n#[cfg(not(all(\n    target_family = \"wasm\")))]\nmod sys;", 3),
        ("src/store/memory.rs", "#[cfg(feature = \"web\")]\nmod web;", 1),
        ("src/machine/record.rs", "use core::fmt;\nuse std::time::Instant;", 2),
        ("src/machine/record.rs", "pub async fn read() {}", 1),
        ("src/machine/record.rs", "use alloc::{rc::Rc, vec::Vec};", 1),
        ("src/machine/record.rs", "use crate::{\n    store::Store,\n    machine::Key,\n};", 2),
        ("src/machine/mod.rs", "use super::signal::Signals;", 1),
        ("src/machine/mod.rs", "use crate::*;", 1),
        ("src/store/sqlite.rs", "let text = \"// no comment\"; crate::executor::sleep();", 1),
        ("src/store/sqlite.rs", "use super::MemoryStore;", 1),
        ("src/signal/local.rs", "use crate::store::{Reach, Store};", 1),
        ("src/executor/sim.rs", "use crate::machine::Record;", 1),
        ("src/client/manager.rs", "fn f<'a>(x: &'a str) { let y: char = '\"'; tokio::spawn(g()); }", 1),
        ("src/client/manager.rs", "use crate::js::Lease;", 1),
        ("src/client/manager.rs", "use redis::Client;", 1),
        ("src/client/manager.rs", "let store = store::MemoryStore::new();", 1),
        ("src/driver.rs", "/* two\nlines */ use wasm_bindgen::prelude::*;", 2),
        ("src/client/guard.rs", "use nix::sys::signal;", 1),
        ("src/client/guard.rs", "impl Guard {\n    pub fn get_token(&self) {}\n}", 2),
        ("src/lib.rs", "mod utils;", 1),
        ("src/client/error.rs", &long, LONGEST_FILE + 1),
    ] {
        let found = complaints(path, source);
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        assert!(found[0].starts_with(&format!("{path}:{line}: ")), "{source}: {found:?}");
    }
}

#[test]
fn comments_and_literals_do_not_count() {
    for source in [
        "//! Runs on tokio.\n/// See [`crate::js`].\nfn f() {} // async",
        "/* std::time */ const TEXT: &str = \"std \\\" tokio\";",
        "const TEXT: &str = r#\"a \"tokio\" b\"#; const QUOTE: char = '\\''; const END: char = 't';",
        "pub(crate) fn f(key: &crate::machine::Key) {}",
    ] {
        assert_eq!(complaints("src/machine/record.rs", source), [""; 0], "{source}");
    }
}
