/* The tests have no unsafe code, and a real fork is unsafe. So a process that preloads this forks when it first asks who its parent is: the
   copy is told 0, as by `fork`. And as soon as a file exists, the process has another id: to itself it then looks like such a copy. */
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

pid_t getppid(void) {
    return fork();
}
