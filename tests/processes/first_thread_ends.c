/* The first thread of a process that preloads this ends before the program begins. Another thread goes on, heeds no signal that can be
   heeded, and writes a line now and then, for a minute at most. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *work(void *unused) {
    for (int lines = 0; lines < 3000; lines++) {
        if (write(STDOUT_FILENO, "works\n", 6) != 6) _exit(1);
        usleep(20000);
    }
    _exit(0);
    return unused;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_create(&thread, NULL, work, NULL);
    syscall(SYS_exit, 0);
}
