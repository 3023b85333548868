//! The JavaScript examples of the README, of the guides and of the types' comments, taken out of the text and bundled as a
//! reader's build would.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context as _, bail, ensure};

use crate::skipped::skip;

/// Blocks in these languages are run.
const RUN: [&str; 4] = ["js", "jsx", "ts", "tsx"];
/// Blocks in these are not: Rust is run as a doctest; SQL, and the shell's of the command line's guide, by native tests. The shell's of other
/// guides are not run, and the others are no programs.
const LEFT: [&str; 7] = ["rust", "sh", "sql", "html", "css", "toml", "text"];

/// What a build says to the libraries that guides use.
const DEFINES: [&str; 4] = [
    "--define:import.meta.hot=globalThis.hot",
    "--define:__VUE_OPTIONS_API__=true",
    "--define:__VUE_PROD_DEVTOOLS__=false",
    "--define:__VUE_PROD_HYDRATION_MISMATCH_DETAILS__=false",
];

/// The folder of the bundles of the types' examples.
const TYPES: &str = "types";

/// One block, which is a module of its own.
#[derive(Clone, Debug)]
pub struct Example {
    /// Where it stands: a file and a line.
    pub place: String,
    /// What it prints: the `text` block right behind it, else nothing.
    pub prints: String,
    /// Its bundle, for the server.
    pub url: String,
    /// Whether it speaks of things that the prelude makes.
    pub needs_prelude: bool,
    guide: String,
    file: String,
    code: String,
}

/// Those of the README and of the guides, bundled; none where esbuild is missing, which it says.
///
/// # Panics
/// In CI, where nothing may be skipped.
pub fn of_guides() -> anyhow::Result<Vec<Example>> {
    Ok(bundled()?.iter().filter(|example| example.guide != TYPES).cloned().collect())
}

/// Those of the types' comments, which only run; some speak of what the page's prelude makes.
///
/// # Panics
/// In CI, where nothing may be skipped.
pub fn of_types() -> anyhow::Result<Vec<Example>> {
    Ok(bundled()?.iter().filter(|example| example.guide == TYPES).cloned().collect())
}

/// Both, once.
fn bundled() -> anyhow::Result<&'static [Example]> {
    static EXAMPLES: OnceLock<Result<Vec<Example>, String>> = OnceLock::new();
    let examples = EXAMPLES.get_or_init(|| bundle().map_err(|error| format!("{error:#}")));
    examples.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

fn bundle() -> anyhow::Result<Vec<Example>> {
    let mut examples = Vec::new();
    for guide in guides()? {
        let text = fs::read_to_string(root(&guide)).with_context(|| guide.clone())?;
        examples.extend(read(&guide, &text)?);
    }
    for entry in fs::read_dir(root("src/js/types"))? {
        let file = entry?.path();
        let name = file.file_stem().and_then(|stem| stem.to_str()).context("a name in UTF-8")?;
        examples.extend(read_comments(name.trim_end_matches(".d"), &fs::read_to_string(&file)?));
    }
    ensure!(!examples.is_empty(), "the guides have examples");
    if Command::new("esbuild").arg("--version").output().is_err() {
        skip("there is no esbuild on PATH; `.ci/with cargo test` has it");
        return Ok(Vec::new());
    }
    let sources = root("target/guides/source");
    if sources.exists() {
        fs::remove_dir_all(&sources)?;
    }
    for Example { guide, file, code, .. } in &examples {
        fs::create_dir_all(sources.join(guide))?;
        fs::write(sources.join(guide).join(file), code)?;
    }
    let files = examples.iter().map(|Example { guide, file, .. }| sources.join(guide).join(file));
    let bundled = Command::new("esbuild")
        .args(files)
        .args(["--bundle", "--format=esm", "--target=es2022", "--jsx=automatic", "--log-level=warning"])
        .args(["--external:leasehold", "--external:leasehold/*"])
        .args(DEFINES)
        .arg(format!("--outbase={}", sources.display()))
        .arg(format!("--outdir={}", root("target/guides/bundles").display()))
        .env("NODE_PATH", root("tests/browser/node_modules"))
        .output()?;
    ensure!(bundled.status.success(), "the examples do not bundle: {}", String::from_utf8_lossy(&bundled.stderr));
    Ok(examples)
}

/// The README, and every guide in `docs/`.
fn guides() -> anyhow::Result<Vec<String>> {
    let mut guides = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root("docs"))? {
        let name = entry?.file_name().into_string().ok().context("a name in UTF-8")?;
        guides.extend(name.ends_with(".md").then(|| format!("docs/{name}")));
    }
    guides.sort();
    Ok(guides)
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A fenced block: the line where it opens, its language, its text, the line behind it.
struct Block<'a> {
    line: usize,
    language: &'a str,
    text: String,
    end: usize,
}

fn read(guide: &str, text: &str) -> anyhow::Result<Vec<Example>> {
    let blocks = blocks(guide, text)?;
    let lines: Vec<_> = text.lines().collect();
    let mut examples = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        if !RUN.contains(&block.language) {
            continue;
        }
        // With nothing but empty lines in between.
        let output = blocks.get(number + 1).filter(|next| {
            next.language == "text" && lines[block.end..next.line - 1].iter().all(|line| line.trim().is_empty())
        });
        let stem = guide.trim_start_matches("docs/").trim_end_matches(".md").to_lowercase();
        let file = named(&block.text).unwrap_or_else(|| format!("line-{}.{}", block.line, block.language));
        let bundle = Path::new(&file).with_extension("js");
        examples.push(Example {
            place: format!("{guide}:{}", block.line),
            prints: output.map(|output| output.text.trim_end().to_owned()).unwrap_or_default(),
            url: format!("/guides/{stem}/{}", bundle.display()),
            needs_prelude: false,
            guide: stem,
            file,
            code: block.text.clone(),
        });
    }
    Ok(examples)
}

/// The examples in the comments of a file. One that imports nothing of ours is the inside of a function.
fn read_comments(name: &str, text: &str) -> Vec<Example> {
    let inside = |line: &str| {
        let line = line.trim_start().trim_start_matches('*');
        line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n"
    };
    let mut examples = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if !line.contains("@example") {
            continue;
        }
        let code = lines.by_ref().map(|(_, line)| line).skip(1).take_while(|line| !line.contains("```"));
        let code: String = code.map(inside).collect();
        let whole = code.contains("from \"leasehold");
        let file = format!("{name}-{}.js", index + 1);
        examples.push(Example {
            place: format!("src/js/types/{name}.d.ts:{}", index + 1),
            prints: String::new(),
            url: format!("/guides/{TYPES}/{file}"),
            needs_prelude: !whole,
            guide: TYPES.into(),
            file,
            code: if whole { code } else { format!("await (async () => {{\n{code}}})();\n") },
        });
    }
    examples
}

/// The name of a block that others of its guide import: its first line, as in `// tokens.js`.
fn named(code: &str) -> Option<String> {
    let name = code.lines().next()?.strip_prefix("// ")?;
    let (stem, extension) = name.split_once('.')?;
    (RUN.contains(&extension) && !stem.contains([' ', '/'])).then(|| name.to_owned())
}

/// All fenced blocks. One in a language that is neither run nor left is refused: else it would be skipped unseen.
fn blocks<'a>(guide: &str, text: &'a str) -> anyhow::Result<Vec<Block<'a>>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'a>> = None;
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        match (&mut open, fence) {
            (None, true) => {
                let Some(language) = line.strip_prefix("```") else {
                    bail!("{guide}:{}: a block that is indented is not run", index + 1);
                };
                // Behind a comma stands what rustdoc is to do with the block.
                let language = language.split_once(',').map_or(language, |(language, _)| language);
                if !RUN.contains(&language) && !LEFT.contains(&language) {
                    bail!("{guide}:{}: name the language of the block: {RUN:?} or {LEFT:?}", index + 1);
                }
                open = Some(Block { line: index + 1, language, text: String::new(), end: 0 });
            }
            (Some(block), false) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (Some(_), true) => blocks.extend(open.take().map(|block| Block { end: index + 1, ..block })),
            (None, false) => {}
        }
    }
    ensure!(open.is_none(), "{guide}: a block does not end");
    Ok(blocks)
}

/// Tests of the code that reads the examples. They need no browser.
pub mod reading {
    use libtest_mimic::Trial;

    use super::*;

    pub fn trials() -> [Trial; 4] {
        let trial = |name: &str, test: fn()| {
            Trial::test(format!("examples::{name}"), move || {
                test();
                Ok(())
            })
        };
        [
            trial("what_is_printed_stands_right_behind", what_is_printed_stands_right_behind),
            trial("a_block_may_have_a_name", a_block_may_have_a_name),
            trial(
                "a_comment_is_the_inside_of_a_function_unless_it_is_whole",
                a_comment_is_the_inside_of_a_function_unless_it_is_whole,
            ),
            trial("nothing_is_skipped_unseen", nothing_is_skipped_unseen),
        ]
    }

    fn read_lines(lines: &[&str]) -> anyhow::Result<Vec<Example>> {
        read("docs/a-guide.md", &lines.join("\n"))
    }

    fn what_is_printed_stands_right_behind() {
        let guide = [
            "```js", "first()", "```", "", "```text", "one", "two", "```", "```jsx", "second()", "```", "words",
            "```text", "```",
        ];
        let [first, second] = &read_lines(&guide).expect("it can be read")[..] else { panic!("there are two") };
        assert_eq!((&*first.code, &*first.prints, &*first.place), ("first()\n", "one\ntwo", "docs/a-guide.md:1"));
        assert_eq!((&*second.code, &*second.prints, &*second.file), ("second()\n", "", "line-9.jsx"));
    }

    fn a_block_may_have_a_name() {
        let named =
            read_lines(&["```js", "// tokens.js", "```", "```js", "// not a.name.js", "```"]).expect("it can be read");
        let files: Vec<_> = named.iter().map(|example| &*example.file).collect();
        assert_eq!(files, ["tokens.js", "line-4.js"]);
    }

    fn a_comment_is_the_inside_of_a_function_unless_it_is_whole() {
        let text = "/**\n * @example\n * ```js\n * if (lease) {\n *   use(lease);\n * }\n * ```\n */";
        let [example] = &read_comments("lease", text)[..] else { panic!("there is one") };
        assert_eq!(example.code, "await (async () => {\nif (lease) {\n  use(lease);\n}\n})();\n");
        let whole = text.replace("if (lease) {", "import { init } from \"leasehold\";");
        assert!(read_comments("lease", &whole)[0].code.starts_with("import"), "{whole}");
    }

    fn nothing_is_skipped_unseen() {
        for guide in [["```javascript", "```"], ["```", "```"], ["  ```js", "```"], ["```js", "never_ends()"]] {
            assert!(read_lines(&guide).is_err(), "{guide:?}");
        }
    }
}
