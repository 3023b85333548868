//! The documents: every link leads somewhere, every guide is in the index, and every Rust example is a doctest.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]

use std::{fs, path::Path};

/// Where the README's links lead, which must work on npm and on crates.io, too.
const REPOSITORY: &str = "https://github.com/leasehold/leasehold/blob/HEAD/";
/// Documents beside those in `docs/`.
const OTHERS: [&str; 6] =
    ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "tests/README.md", "tests/model/README.md"];

fn documents() -> Vec<String> {
    OTHERS.into_iter().map(str::to_owned).chain(guides().into_iter().map(|guide| format!("docs/{guide}"))).collect()
}

fn guides() -> Vec<String> {
    let files = fs::read_dir(path("docs")).expect("there are guides");
    let names = files.map(|file| file.expect("it can be listed").file_name().into_string().expect("a name in UTF-8"));
    names.filter(|name| name.ends_with(".md")).collect()
}

fn path(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(document: &str) -> String {
    fs::read_to_string(path(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// The files of a folder, and of the folders in it.
fn sources(folder: &str) -> Vec<String> {
    let files = fs::read_dir(path(folder)).expect("there is source").map(|file| file.expect("it can be listed"));
    let each = files.map(|file| (file.path().is_dir(), format!("{folder}/{}", file.file_name().display())));
    each.flat_map(|(is_folder, path)| if is_folder { sources(&path) } else { vec![path] }).collect()
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Where `[words](target)` and `[name]: target` lead.
fn links(text: &str) -> Vec<String> {
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ").map(|(_, target)| target));
    inline.chain(named).map(str::to_owned).collect()
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn has_heading(document: &str, name: &str) -> bool {
    prose(&read(document)).lines().any(|line| {
        let heading = line.trim_start_matches('#');
        heading.len() < line.len() && anchor(heading.trim()) == name
    })
}

/// What is wrong with a link in a document; nothing with one that leads out of the repository.
fn complaint(document: &str, link: &str) -> Option<String> {
    let home = "https://github.com/leasehold/leasehold#";
    let (file, name) = match (link.strip_prefix(REPOSITORY), link.strip_prefix(home)) {
        (Some(inside), _) => (format!("./{inside}"), None),
        (None, Some(name)) => ("./README.md".to_owned(), Some(name)),
        (None, None) if link.contains("://") => return None,
        (None, None) if link.starts_with('#') => (format!("./{document}{link}"), None),
        (None, None) => {
            let folder = Path::new(document).parent().map(|folder| folder.display().to_string());
            (format!("./{}/{link}", folder.unwrap_or_default()), None)
        }
    };
    let (file, name) = file.split_once('#').map_or((file.as_str(), name), |(file, name)| (file, Some(name)));
    if !path(file).exists() {
        return Some(format!("{document}: {link} leads nowhere"));
    }
    let found = name.is_none_or(|name| has_heading(file, name));
    (!found).then(|| format!("{document}: there is no such heading: {link}"))
}

#[test]
fn every_link_leads_somewhere() {
    let mut complaints = Vec::new();
    for document in documents() {
        let text = prose(&read(&document));
        complaints.extend(links(&text).iter().filter_map(|link| complaint(&document, link)));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// On npm and on crates.io nothing lies beside the README.
#[test]
fn the_readme_links_to_whole_addresses() {
    let relative: Vec<_> = links(&prose(&read("README.md"))).into_iter().filter(|link| !link.contains("://")).collect();
    assert!(relative.is_empty(), "these work in the repository only: {relative:?}");
}

/// Whoever has the crate has what `include` names, and nothing beside it.
#[test]
fn no_guide_links_out_of_the_package() {
    let packaged = |file: &Path| {
        let inside: Vec<_> = file.components().collect();
        let top = inside.first().map(|part| part.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
        let listed = format!("\"/{top}{}\"", if inside.len() > 1 || path(&top).is_dir() { "/**" } else { "" });
        read("Cargo.toml").lines().any(|line| line.starts_with("include = ") && line.contains(&listed))
    };
    let mut complaints = Vec::new();
    for guide in guides() {
        let text = prose(&read(&format!("docs/{guide}")));
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let target = link.split('#').next().unwrap_or_default();
            let file = target.strip_prefix("../").map_or_else(|| Path::new("docs").join(target), Into::into);
            if !packaged(&file) {
                complaints.push(format!("docs/{guide}: {link} leads out of the package; write the whole address"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// `[words][name]` is shown as it stands if nothing has that name.
#[test]
fn every_name_that_the_readme_links_by_is_there() {
    let text = prose(&read("README.md"));
    let used = text.split("][").skip(1).filter_map(|rest| rest.split(']').next());
    let missing: Vec<_> = used.filter(|name| !text.contains(&format!("\n[{name}]: "))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Most methods of a store have a default. A wrapper that does not forward one hides what the inner store provides.
#[test]
fn the_guides_store_around_another_one_forwards_every_method() {
    let source = read("src/store/mod.rs");
    let (_, rest) = source.split_once("pub trait Store: ").expect("the trait is there");
    let body = rest.split("\n}").next().unwrap_or_default();
    let names = body.lines().filter_map(|line| line.trim_start().trim_start_matches("async ").strip_prefix("fn "));
    let methods: Vec<_> = names.filter_map(|rest| rest.split('(').next()).collect();
    assert!(methods.contains(&"transact") && methods.contains(&"reach"), "{methods:?}");
    let guide = read("docs/write-a-store.md");
    let missing: Vec<_> = methods.into_iter().filter(|name| !guide.contains(&format!("self.inner.{name}("))).collect();
    assert!(missing.is_empty(), "docs/write-a-store.md does not forward {missing:?}");
}

#[test]
fn every_guide_is_in_the_index() {
    let index = read("docs/README.md");
    let missing: Vec<_> =
        guides().into_iter().filter(|guide| guide != "README.md" && !index.contains(&format!("({guide})"))).collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

/// The headings of the protocol, as code names them: `s1`, `k`, `rule-5`, `i11`, `p4`.
fn rules() -> Vec<String> {
    let numbered = |name: &str, count: u32| (1..=count).map(|number| format!("{name}{number}")).collect::<Vec<_>>();
    let letters = ["a", "e", "f", "k", "l", "o", "q", "r", "s", "t"].map(str::to_owned);
    [numbered("s", 17), numbered("i", 14), numbered("p", 7), numbered("rule-", 10), letters.to_vec()].concat()
}

#[test]
fn every_rule_of_the_protocol_has_a_heading() {
    let missing: Vec<_> = rules().into_iter().filter(|rule| !has_heading("docs/protocol.md", rule)).collect();
    assert!(missing.is_empty(), "docs/protocol.md has no heading for {missing:?}");
}

/// The rules that a comment such as `docs/protocol.md#s4, #p5.` links to.
fn linked_rules(source: &str) -> Vec<String> {
    let comments = source.lines().filter_map(|line| line.split_once("docs/protocol.md#"));
    let names = comments.flat_map(|(_, names)| names.trim_end_matches('.').split(", #"));
    names
        .map(|name| name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default().to_owned())
        .collect()
}

/// Code that keeps a rule says so by a link. A principle may have no single place, and nothing in the code is about an honest origin.
#[test]
fn code_links_to_the_rules_that_it_keeps() {
    let linked: Vec<_> = sources("src").iter().flat_map(|file| linked_rules(&read(file))).collect();
    let known = rules();
    let unknown: Vec<_> = linked.iter().filter(|rule| !known.contains(rule)).collect();
    assert!(unknown.is_empty(), "docs/protocol.md has no rule {unknown:?}");
    let has_a_place = |rule: &String| rule.starts_with('s') && rule.len() > 1 || rule.len() == 1 && rule != "t";
    let missing: Vec<_> = known.iter().filter(|rule| has_a_place(rule) && !linked.contains(rule)).collect();
    assert!(missing.is_empty(), "nothing in src links to {missing:?}");
}

/// A doctest runs natively only. The code of this page is in tests that run in browsers.
const FOR_BROWSERS: &str = "docs/rust-in-the-browser.md";

#[test]
fn the_rust_for_browsers_is_tested_there() {
    let tests = read("tests/web/guide.rs") + &read("tests/web_panic.rs");
    let page = read(FOR_BROWSERS);
    let blocks: Vec<_> = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty(), "{FOR_BROWSERS} has no code");
    let missing: Vec<_> = blocks.into_iter().filter(|block| !tests.contains(block)).collect();
    assert!(missing.is_empty(), "no test has these blocks: {missing:?}");
}

#[test]
fn every_rust_example_is_a_doctest() {
    let library = read("src/lib.rs");
    let guides = documents().into_iter().filter(|document| document != FOR_BROWSERS);
    let with_rust = guides.filter(|document| read(document).contains("```rust\n"));
    let missing: Vec<_> =
        with_rust.filter(|document| !library.contains(&format!("include_str!(\"../{document}\")"))).collect();
    assert!(missing.is_empty(), "src/lib.rs does not include {missing:?}");
}

/// `#[tokio::main]` takes two features of tokio that the library does not turn on.
#[test]
fn the_readme_names_all_that_its_example_needs() {
    let readme = read("README.md");
    assert!(readme.contains("#[tokio::main]"), "else this test is of no use any more");
    let commands: Vec<_> = readme.split('`').filter(|code| code.starts_with("cargo add tokio ")).collect();
    assert_eq!(commands, ["cargo add tokio --features macros,rt-multi-thread"]);
}

/// Whoever copies it gets the program that is tested, and nothing that only a test needs.
#[test]
fn the_program_of_the_native_worker_is_the_example() {
    let (guide, example) = (read("docs/a-native-worker.md"), read("examples/report_worker.rs"));
    let program = guide.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    let (tested, _) = example.split_once("\n#[cfg(test)]").expect("it has tests");
    assert!(tested.ends_with(program), "docs/a-native-worker.md and examples/report_worker.rs differ");
}
