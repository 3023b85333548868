//! A static file server on loopback: the demo page at `/`, and beside it what the tests and the benchmark need.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Context as _;

use crate::port::free_port;

/// A connection that a browser opened in advance and never used is given up after this.
const IDLE: Duration = Duration::from_secs(60);

/// Under this prefix the same files are served with headers that let the browser cache them.
const KEPT: &str = "/kept/";

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// A name of this machine that is not loopback's: a page of it over plain http is an insecure context. Browsers of
    /// ours know it.
    pub const INSECURE_HOST: &str = "leasehold.test";

    /// On a free port that no server of this process had before: what a browser keeps belongs to an origin, and so to a port.
    ///
    /// # Errors
    /// When another process takes the port at this moment.
    pub fn start() -> anyhow::Result<Self> {
        Self::listen(free_port())
    }

    /// On this port.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn listen(port: u16) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("port {port} is taken"))?;
        let port = listener.local_addr()?.port();
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        let thread = Some(thread::spawn(move || accept(&listener, &seen)));
        Ok(Self { port, stopped, thread })
    }

    /// The address of a page, in a secure context.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        self.url_at("localhost", path)
    }

    /// The address of a page by another name for this machine, which the browser must know.
    #[must_use]
    pub fn url_at(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    /// The folder of an old build of the npm package, if the environment names one: it is served at `/old-pkg/`.
    #[must_use]
    pub fn old_package() -> Option<PathBuf> {
        std::env::var_os("LEASEHOLD_OLD_PKG").map(PathBuf::from)
    }

    /// Serves until the program is ended.
    pub fn run(mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("accepting connections does not panic");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // One more connection, so that the thread looks.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// A thread for each connection, and a connection for each file: a page has a dozen, and no request waits for another.
fn accept(listener: &TcpListener, stopped: &AtomicBool) {
    for connection in listener.incoming().filter_map(Result::ok) {
        if stopped.load(Ordering::Acquire) {
            return;
        }
        // A browser that went away before its answer is no concern of ours.
        thread::spawn(move || answer(connection).ok());
    }
}

fn answer(mut connection: TcpStream) -> io::Result<()> {
    connection.set_read_timeout(Some(IDLE))?;
    let Some(asked) = asked_path(&connection)? else { return Ok(()) };
    let kept = asked.strip_prefix(KEPT);
    let path = kept.map_or_else(|| asked.clone(), |rest| format!("/{rest}"));
    let Some((content, place)) = locate(&path).and_then(|place| Some((fs::read(&place).ok()?, place))) else {
        return write!(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n", content.len())?;
    let headers = if kept.is_some() { headers_of_kept(&place) } else { headers(&path, &place) };
    for (name, value) in headers {
        write!(connection, "{name}: {value}\r\n")?;
    }
    connection.write_all(b"\r\n")?;
    connection.write_all(&content)
}

/// The path of a GET, read to the end of its headers, without its query; none when the browser asks nothing.
fn asked_path(connection: &TcpStream) -> io::Result<Option<String>> {
    let mut lines = BufReader::new(connection).lines();
    let Some(request) = lines.next().transpose()? else { return Ok(None) };
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let target = request.strip_prefix("GET ").and_then(|rest| rest.split([' ', '?']).next());
    Ok(target.map(str::to_owned))
}

/// What a site says of files whose names change with their content: a browser that has cached them requests only the pages.
fn headers_of_kept(place: &Path) -> Vec<(&'static str, &'static str)> {
    let content = content_type(place);
    let is_page = content.starts_with("text/html");
    vec![
        ("Content-Type", content),
        ("Cache-Control", if is_page { "no-cache" } else { "public, max-age=31536000, immutable" }),
    ]
}

fn headers(path: &str, place: &Path) -> Vec<(&'static str, &'static str)> {
    let mut headers = vec![("Content-Type", content_type(place)), ("Cache-Control", "no-cache")];
    if path.starts_with("/pkg/") || path.starts_with("/tests/") {
        // A sandboxed frame is of another origin than its own files.
        headers.push(("Access-Control-Allow-Origin", "*"));
    }
    // An isolated page has a clock of 5 µs in Chromium and of 20 µs in Firefox; others get 100 µs and 1 ms.
    if path.starts_with("/benches/") {
        headers.push(("Cross-Origin-Opener-Policy", "same-origin"));
    }
    // Its workers are to be isolated as well, with all that they import.
    if path.starts_with("/benches/") || path.starts_with("/pkg/") {
        headers.push(("Cross-Origin-Embedder-Policy", "require-corp"));
    }
    if path == "/tests/cleared.html" {
        headers.push(("Clear-Site-Data", "\"storage\""));
    }
    headers
}

/// The file behind a path; none for one that tries to leave its folder.
fn locate(path: &str) -> Option<PathBuf> {
    let mounts = [
        ("/pkg/", package()),
        // The page of the profile has the package whose wasm marks its parts.
        ("/marked-pkg/", root("target/marked-pkg")),
        ("/tests/", root("tests/browser/pages")),
        ("/modules/", root("tests/browser/node_modules")),
        ("/guides/", root("target/guides/bundles")),
        ("/benches/", root("benches")),
    ];
    let (folder, rest) = mounts
        .into_iter()
        .chain(Server::old_package().map(|folder| ("/old-pkg/", folder)))
        .find_map(|(prefix, folder)| Some((folder, path.strip_prefix(prefix)?)))
        .or_else(|| Some((root("www"), path.strip_prefix('/')?)))?;
    let inside = Path::new(rest).components().all(|part| matches!(part, Component::Normal(_)));
    let place = folder.join(rest);
    inside.then(|| if place.is_dir() { place.join("index.html") } else { place })
}

/// The built npm package, or another build of it that the environment names.
fn package() -> PathBuf {
    std::env::var_os("LEASEHOLD_PKG").map_or_else(|| root("pkg"), PathBuf::from)
}

fn root(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

fn content_type(place: &Path) -> &'static str {
    match place.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
