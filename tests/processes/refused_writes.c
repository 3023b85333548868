/* Makes the writes of a process that preloads this fail as long as a file is there, by the number of the error that stands in it: a quota that
   is used up, or a file system that the system has made read-only, as no test can bring about. If the number is -n, nothing fails, but the
   process stops just before its nth write or sync. Only regular files are concerned. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_refused(int file) {
    static int done = 0;
    const char *path = getenv("LEASEHOLD_TEST_REFUSES");
    char number[8] = {0};
    struct stat found;
    int why = !path || fstat(file, &found) || !S_ISREG(found.st_mode) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (why < 0) return 0;
    ssize_t length = read(why, number, sizeof number - 1);
    close(why);
    int error = length > 0 ? atoi(number) : 0;
    if (error < 0 && ++done == -error) raise(SIGSTOP);
    if (error > 0) errno = error;
    return error > 0;
}

ssize_t write(int file, const void *bytes, size_t count) {
    return is_refused(file) ? -1 : syscall(SYS_write, file, bytes, count);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
    return is_refused(file) ? -1 : syscall(SYS_pwrite64, file, bytes, count, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    return is_refused(file) ? -1 : syscall(SYS_pwrite64, file, bytes, count, at);
}

int fsync(int file) {
    return is_refused(file) ? -1 : syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    return is_refused(file) ? -1 : syscall(SYS_fdatasync, file);
}
