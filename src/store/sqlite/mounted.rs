//! What is mounted alone, without the folder that it is in.

use std::{fs, path::Path};

/// What this process has mounted, as Linux tells it.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether this file or directory is mounted by itself from elsewhere, as a container does it with `-v /srv/leases.db:/data/leases.db`.
/// False where the system does not tell.
pub(super) fn is_alone(path: &Path) -> bool {
    // The paths of other mounts may be no text.
    let mounts = fs::read(MOUNTS).unwrap_or_default();
    is_alone_in(&String::from_utf8_lossy(&mounts), path)
}

/// A mount, as a line of the list has it.
struct Mount {
    /// The device.
    device: String,
    /// What of it is mounted.
    root: String,
    point: String,
}

impl Mount {
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split(' ').skip(2);
        let (device, root, point) = (words.next()?, words.next()?, words.next()?);
        Some(Self { device: device.to_owned(), root: plain(root), point: plain(point) })
    }
}

fn is_alone_in(mounts: &str, path: &Path) -> bool {
    let mounts: Vec<_> = mounts.lines().filter_map(Mount::of).collect();
    // The last one hides the others.
    let Some(file) = mounts.iter().rfind(|mount| Path::new(&mount.point) == path) else { return false };
    let Some(folder) = path.parent() else { return false };
    let around = mounts.iter().filter(|mount| folder.starts_with(&mount.point));
    let Some(around) = around.max_by_key(|mount| mount.point.len()) else { return true };
    // A file may be mounted over itself, with other options.
    let is_itself = path.strip_prefix(&around.point).is_ok_and(|rest| Path::new(&around.root).join(rest) == *file.root);
    file.device != around.device || !is_itself
}

/// Linux writes spaces, line breaks and backslashes in three octal digits.
fn plain(word: &str) -> String {
    [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")]
        .into_iter()
        .fold(word.to_owned(), |word, (code, letter)| word.replace(code, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "\
        500 400 0:60 / / rw,relatime - overlay overlay rw,lowerdir=/l\n\
        501 500 8:1 /srv/one /data/folder rw,relatime - ext4 /dev/sda1 rw\n\
        502 500 8:1 /srv/one/leases.db /data/leases.db rw,relatime - ext4 /dev/sda1 rw\n\
        503 501 8:1 /srv/two/leases.db /data/folder/other.db rw,relatime - ext4 /dev/sda1 rw\n\
        504 501 8:1 /srv/one/own.db /data/folder/own.db rw,relatime - ext4 /dev/sda1 rw\n\
        505 501 8:2 /srv/one/far.db /data/folder/far.db rw,relatime - ext4 /dev/sdb1 rw\n\
        506 500 8:1 /a\\040b/x.db /data/a\\040\\134b/x.db rw,relatime - ext4 /dev/sda1 rw\n";

    #[test]
    fn a_file_is_alone_if_its_folder_is_another_one_here() {
        for path in ["/data/leases.db", "/data/folder/other.db", "/data/folder/far.db", r"/data/a \b/x.db"] {
            assert!(is_alone_in(CONTAINER, Path::new(path)), "{path}");
        }
        for path in ["/data/folder/leases.db", "/data/folder/own.db", "/data/x.db", "/x.db", "/"] {
            assert!(!is_alone_in(CONTAINER, Path::new(path)), "{path}");
        }
        assert!(!is_alone_in("", Path::new("/data/leases.db")), "the system does not tell");
        let twice = format!("{CONTAINER}507 500 8:1 /data /data rw - ext4 /dev/sda1 rw\n");
        assert!(is_alone_in(&twice, Path::new("/data/leases.db")));
    }
}
