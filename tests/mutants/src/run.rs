//! Builds tests in the copy, runs them, and tells how that ended.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::{Mutant, Suite, tree::Tree};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// A copy of the crate, and where it is built.
#[derive(Debug)]
pub struct Workshop {
    tree: Tree,
    build: PathBuf,
    log: PathBuf,
}

/// How the tests of a suite ended.
#[derive(Debug)]
pub struct Run {
    /// Whether a test failed. Those after it may have been stopped.
    pub failed: bool,
    /// They were still running when patience ended.
    pub timed_out: bool,
    /// The first complaint.
    pub complaint: String,
    /// From the edit to the end, with the build.
    pub took: Duration,
}

impl Workshop {
    /// Copies the crate to a folder of this name below `target/mutants`.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let crate_root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let place = crate_root.join("target/mutants").join(name);
        let tree = Tree::new(crate_root, place.join("tree"))?;
        Ok(Self { tree, build: place.join("build"), log: place.join("run.log") })
    }

    /// Runs a suite on the source as it is.
    ///
    /// # Errors
    /// When it does not build, runs no test at all, or one fails.
    pub fn run_unspoilt(&self, suite: Suite) -> anyhow::Result<Run> {
        let run = self.run(suite)?;
        ensure!(!run.timed_out && !run.failed, "{suite} fails without a mutant: {}", run.complaint);
        Ok(run)
    }

    /// Runs the suite that should catch a mutant on the source that it spoilt.
    ///
    /// # Errors
    /// When the mutant does not build or does not fit the source, or when nothing fails.
    pub fn run_spoilt(&self, mutant: &Mutant) -> anyhow::Result<Run> {
        let spoilt = self.tree.spoil(mutant)?;
        let run = self.run(mutant.caught_by);
        drop(spoilt);
        let run = run?;
        if run.timed_out {
            ensure!(mutant.hangs, "{} did not end within {PATIENCE:?}", mutant.caught_by);
        } else {
            ensure!(run.failed, "SURVIVES {}", mutant.caught_by);
        }
        Ok(run)
    }

    fn run(&self, suite: Suite) -> anyhow::Result<Run> {
        let began = now();
        let tests = self.build(suite)?;
        let log = File::create(&self.log)?;
        let child = Command::new(tests)
            // So that a failure is told at once.
            .args([&suite.filter(), "--nocapture"])
            .current_dir(self.tree.root())
            .envs(suite.environment())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let status = self.wait(child)?;
        let told = self.told()?;
        ensure!(!told.contains("running 0 tests"), "no test has a name like {}", suite.filter());
        let (failed, complaint) = (has_failed(&told), complaint(&told));
        if status.is_some_and(|status| !status.success()) && !failed {
            bail!("{suite} ended without a verdict: {complaint}");
        }
        Ok(Run { timed_out: status.is_none() && !failed, failed, complaint, took: began.elapsed() })
    }

    /// How the tests ended, or `None` if they were stopped: because one failed, which is enough, or because they did not end.
    fn wait(&self, mut tests: Child) -> anyhow::Result<Option<ExitStatus>> {
        let began = now();
        loop {
            if let Some(status) = tests.try_wait()? {
                return Ok(Some(status));
            }
            if began.elapsed() > PATIENCE || has_failed(&self.told()?) {
                tests.kill()?;
                tests.wait()?;
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }

    fn told(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Builds the tests, and tells where they are.
    fn build(&self, suite: Suite) -> anyhow::Result<PathBuf> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["test", "--no-run", "--locked", "--quiet", "--message-format", "json-render-diagnostics"])
            .args(suite.target())
            .current_dir(self.tree.root())
            .env("CARGO_TARGET_DIR", &self.build)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            // A mutant leaves things unused.
            .env("RUSTFLAGS", "--cap-lints=allow")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()?;
        ensure!(built.status.success(), "it does not build:\n{}", String::from_utf8_lossy(&built.stderr));
        let told = String::from_utf8_lossy(&built.stdout);
        let mut executables = told.lines().filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            // With tests in a folder of their own, cargo builds the package's programs, too.
            message["profile"]["test"].as_bool().filter(|is_test| *is_test)?;
            message["executable"].as_str().map(PathBuf::from)
        });
        executables.next_back().context("cargo names no test executable")
    }
}

#[expect(clippy::disallowed_methods, reason = "other processes really take time")]
fn now() -> Instant {
    Instant::now()
}

/// Whether a test has failed. If it runs alone, what it prints stands between its name and its verdict.
fn has_failed(told: &str) -> bool {
    told.lines().any(|line| line == "FAILED" || (line.starts_with("test ") && line.ends_with(" ... FAILED")))
}

/// What stands after the first panic, in one line.
fn complaint(told: &str) -> String {
    let after = told.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
    after
        .take_while(|line| !line.is_empty())
        .next()
        .unwrap_or_default()
        .chars()
        .take(120)
        .map(|char| if char == '|' { '/' } else { char })
        .collect()
}
