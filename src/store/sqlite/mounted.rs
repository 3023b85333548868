//! Finds files and directories that are mounted alone, without the folder that they are in.

use std::{fs, path::Path};

/// What this process has mounted, as Linux tells it.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether this file or directory is mounted by itself from elsewhere, as a container does with `-v /srv/leases.db:/data/leases.db`.
/// False on systems that do not say what is mounted.
pub(super) fn is_alone(path: &Path) -> bool {
    // The paths of other mounts need not be text.
    let mounts = fs::read(MOUNTS).unwrap_or_default();
    is_alone_in(&String::from_utf8_lossy(&mounts), path)
}

/// A mount, as a line of the list has it.
struct Mount {
    id: String,
    /// The mount that this one is in. The list lacks it if this process cannot reach it, as in a `chroot`.
    parent: String,
    /// The device.
    device: String,
    /// The path on the device that is mounted.
    root: String,
    point: String,
}

impl Mount {
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split(' ').map(plain);
        let mut word = || words.next();
        Some(Self { id: word()?, parent: word()?, device: word()?, root: word()?, point: word()? })
    }
}

fn is_alone_in(mounts: &str, path: &Path) -> bool {
    let mounts: Vec<_> = mounts.lines().filter_map(Mount::of).collect();
    let Some(folder) = path.parent() else { return false };
    let (Some(file), around) = (seen_at(&mounts, path), seen_at(&mounts, folder)) else { return false };
    let Some(around) = around else { return true };
    if file.id == around.id {
        return false;
    }
    // A file may be mounted over itself, with other options.
    let is_itself = path.strip_prefix(&around.point).is_ok_and(|rest| Path::new(&around.root).join(rest) == *file.root);
    file.device != around.device || !is_itself
}

/// The mount in which this process finds what is at a path. The list also has those that a later mount hides, with all that is in them.
fn seen_at<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let is_in = |mount: &Mount, around: Option<&Mount>| match around {
        Some(around) => mount.parent == around.id && mount.id != around.id,
        None => mounts.iter().all(|other| other.id != mount.parent || other.id == mount.id),
    };
    let mut places: Vec<_> = path.ancestors().collect();
    places.reverse();
    places.into_iter().fold(None, |mut seen, place| {
        // One may be mounted over another at the same place.
        while let Some(upper) = mounts.iter().rfind(|mount| is_in(mount, seen) && Path::new(&mount.point) == place) {
            seen = Some(upper);
        }
        seen
    })
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
    }

    /// What is mounted at a folder hides what was mounted below it before.
    #[test]
    fn a_mount_that_nobody_sees_does_not_count() {
        let hidden = format!("{CONTAINER}507 500 8:1 /srv/three /data rw - ext4 /dev/sda1 rw\n");
        assert!(!is_alone_in(&hidden, Path::new("/data/leases.db")), "this one is in /srv/three");
        let later = format!("{hidden}508 507 8:1 /srv/one/own.db /data/folder/own.db rw - ext4 /dev/sda1 rw\n");
        assert!(is_alone_in(&later, Path::new("/data/folder/own.db")), "its folder is in /srv/three");
        let itself = format!("{hidden}508 507 8:1 /srv/three/x.db /data/x.db rw - ext4 /dev/sda1 rw\n");
        assert!(!is_alone_in(&itself, Path::new("/data/x.db")));
        let twice = format!("{itself}509 508 8:1 /srv/one/x.db /data/x.db rw - ext4 /dev/sda1 rw\n");
        assert!(is_alone_in(&twice, Path::new("/data/x.db")), "the upper one counts");
    }

    /// The mount around the new root is not in the list, unless it is mounted there.
    #[test]
    fn a_file_in_a_root_that_is_no_mount_is_alone_if_it_is_mounted() {
        let jail =
            "501 27 8:1 /srv/one /data rw - ext4 /dev/sda1 rw\n502 27 8:1 /srv/x.db /x.db rw - ext4 /dev/sda1 rw\n";
        assert!(is_alone_in(jail, Path::new("/x.db")));
        assert!(!is_alone_in(jail, Path::new("/data/leases.db")) && !is_alone_in(jail, Path::new("/y.db")));
        let rootfs = format!("1 1 0:2 / / rw - rootfs rootfs rw\n27 1 8:1 / / rw - ext4 /dev/sda1 rw\n{jail}");
        assert!(is_alone_in(&rootfs, Path::new("/x.db")) && !is_alone_in(&rootfs, Path::new("/y.db")));
    }
}
