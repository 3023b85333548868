//! Who may use the files of a directory: those whom the directory lets make files in it, whatever the umask of a process is.

pub(crate) use sys::Rights;

#[cfg(unix)]
mod sys {
    use std::{
        fs::{self, DirBuilder, File, Metadata, Permissions},
        io,
        os::{
            fd::{AsRawFd, OwnedFd},
            unix::{
                fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, fchown},
                net::UnixDatagram,
            },
        },
        path::{Path, PathBuf},
        process,
        sync::atomic::{AtomicU64, Ordering},
    };

    /// What a directory or a file grants to its owner, to its group and to all others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Rights {
        mode: u32,
        owner: u32,
        group: u32,
    }

    impl Rights {
        pub(crate) fn of(path: &Path) -> io::Result<Self> {
            let found = fs::metadata(path)?;
            Ok(Self { mode: found.mode() & 0o666, owner: found.uid(), group: found.gid() })
        }

        /// Makes a directory with these rights. It has its name only once it has them.
        pub(crate) fn make_directory(self, directory: &Path) -> io::Result<()> {
            static MADE: AtomicU64 = AtomicU64::new(0);
            let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            // A new one would take the place of one that is empty, and have none of its other rights.
            if fs::symlink_metadata(directory).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let mut place = name.to_owned();
            place.push(format!(".{}.{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed)));
            let hidden = in_private(&parent.join(place), |path| {
                self.open_directory(path, &make_private(path)?)?;
                fs::rename(path, directory)
            });
            // If the hidden name is too long, or somebody else has taken it, the directory is made in its place at once.
            hidden.or_else(|_| self.open_directory(directory, &make_private(directory)?))
        }

        /// Gives a file to those who have these rights.
        pub(in super::super) fn open_file(self, file: &File) -> io::Result<()> {
            let mode = self.after_change(&file.metadata()?, |owner, group| fchown(file, owner, group));
            file.set_permissions(Permissions::from_mode(mode | 0o600))
        }

        /// Changes the rights by the descriptor, because any user who may write to the folder around it may replace the path by a link.
        fn open_directory(self, path: &Path, made: &File) -> io::Result<()> {
            check_private(path, made)?;
            let mode = self.after_change(&made.metadata()?, |owner, group| fchown(made, owner, group));
            // Whoever may write may make files in it.
            let enter = (mode & 0o222) >> 1;
            made.set_permissions(Permissions::from_mode(mode | enter | 0o700))
        }

        /// Makes a socket to which only those who have these rights can send. It is bound where nobody else can reach it, and gets its name
        /// only once it has its rights.
        pub(in super::super) fn bind<T>(
            self,
            place: &Path,
            named: &Path,
            bind: impl FnOnce(&Path) -> io::Result<T>,
        ) -> io::Result<T> {
            in_private(place, |path| {
                let bound = bind(path)?;
                let mode = self.open_at(path)?;
                fs::set_permissions(path, Permissions::from_mode(mode | 0o600))?;
                fs::rename(path, named)?;
                Ok(bound)
            })
        }

        fn open_at(self, path: &Path) -> io::Result<u32> {
            Ok(self.after_change(&fs::symlink_metadata(path)?, |owner, group| chown(path, owner, group)))
        }

        /// Changes the owner and the group, and returns the mode that grants no more than these rights do. Only root can change the owner,
        /// and others only to a group that they are in.
        fn after_change(self, made: &Metadata, change: impl Fn(Option<u32>, Option<u32>) -> io::Result<()>) -> u32 {
            if made.uid() != self.owner {
                // A file of another owner serves, too.
                let _ = change(Some(self.owner), None);
            }
            if made.gid() == self.group || change(None, Some(self.group)).is_ok() {
                return self.mode;
            }
            // If it has another group, that group gets the rights of all others.
            self.mode & !0o070 | (self.mode & 0o007) << 3
        }
    }

    /// Makes something at a path where nobody else can replace it meanwhile: else, a change of its rights might change those of whatever
    /// somebody put there. The place is a directory that stands for a moment. It is reached by its descriptor, as Linux allows; elsewhere
    /// this fails.
    fn in_private<T>(place: &Path, make: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let made = make_private(place).and_then(|open| {
            check_private(place, &open)?;
            let inside = PathBuf::from(format!("/proc/self/fd/{}/made", open.as_raw_fd()));
            let made = make(&inside);
            if made.is_err() {
                let _ = fs::remove_file(&inside).or_else(|_| fs::remove_dir(&inside));
            }
            made
        });
        let _ = fs::remove_dir(place);
        made
    }

    /// Makes a directory that nobody else can use, and opens it.
    fn make_private(path: &Path) -> io::Result<File> {
        DirBuilder::new().mode(0o700).create(path)?;
        File::open(path)
    }

    /// Checks that the open directory is the one just made. Before it was opened, somebody may have put another one in its place, or a link
    /// to one that this user had made before.
    fn check_private(path: &Path, open: &File) -> io::Result<()> {
        let (found, named) = (open.metadata()?, fs::symlink_metadata(path)?);
        let is_named = (found.dev(), found.ino()) == (named.dev(), named.ino());
        if is_named && found.is_dir() && found.mode() & 0o077 == 0 && found.uid() == this_user()? {
            return Ok(());
        }
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// A socket without a name belongs to whoever made it.
    fn this_user() -> io::Result<u32> {
        let socket = OwnedFd::from(UnixDatagram::unbound()?);
        Ok(File::from(socket).metadata()?.uid())
    }

    #[cfg(test)]
    mod tests {
        use std::{env, os::unix::fs::symlink};

        use super::*;

        /// Otherwise a user who may write to the folder could make root give away a directory of its own.
        #[test]
        fn a_link_that_took_the_place_of_a_directory_leads_to_no_change() {
            let folder = env::temp_dir().join(format!("leasehold-private-{}", process::id()));
            fs::create_dir_all(&folder).unwrap();
            let [own, made, gone] = ["own", "made", "gone"].map(|name| folder.join(name));
            let rights = Rights { mode: 0o666, ..Rights::of(&folder).unwrap() };
            drop(make_private(&own).unwrap());
            let open = make_private(&made).unwrap();
            fs::rename(&made, &gone).unwrap();
            symlink(&own, &made).unwrap();
            for open in [&open, &File::open(&made).unwrap()] {
                rights.open_directory(&made, open).unwrap_err();
            }
            for (path, mode) in [(&own, 0o700), (&gone, 0o700)] {
                assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, mode, "{}", path.display());
            }
            rights.open_directory(&gone, &open).unwrap();
            assert_eq!(fs::metadata(&gone).unwrap().mode() & 0o777, 0o777);
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}

/// No rights that Rust's standard library could set.
#[cfg(not(unix))]
mod sys {
    use std::{fs, io, path::Path};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Rights;

    impl Rights {
        pub(crate) fn of(path: &Path) -> io::Result<Self> {
            fs::metadata(path).map(|_| Self)
        }

        pub(crate) fn make_directory(self, directory: &Path) -> io::Result<()> {
            fs::create_dir(directory)
        }

        pub(in super::super) fn open_file(self, _file: &fs::File) -> io::Result<()> {
            Ok(())
        }
    }
}
