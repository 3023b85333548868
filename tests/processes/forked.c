/* As soon as a file exists, a process that preloads this has another id: to itself it then looks like the copy that a fork makes.
   The tests have no unsafe code, and a real fork is unsafe. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

pid_t getpid(void) {
    const char *path = getenv("LEASEHOLD_TEST_FORKED");
    pid_t process = (pid_t)syscall(SYS_getpid);
    return path && access(path, F_OK) == 0 ? process + 1 : process;
}
