/* Moves the wall clock of a process that preloads this, by as many seconds as a file says at that moment. No other clock moves.
   libfaketime cannot be loaded into every server: with jemalloc, which Redis uses, it calls itself without end. And it does not reach
   a program in Go, such as etcd, which reads the clock by the kernel's vDSO and not by the C library. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long none = 0;
static const volatile long long *seconds = &none;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("LEASEHOLD_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    seconds = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *seconds;
    return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (told) *told = precise.tv_sec;
    return precise.tv_sec;
}

/* A copy of the kernel's vDSO that has only one function, which is the `clock_gettime` above. */
static unsigned long own_vdso(const char *kernels) {
    const ElfW(Ehdr) *header = (const void *)kernels;
    const ElfW(Phdr) *parts = (const void *)(kernels + header->e_phoff);
    size_t length = 0, dynamic = 0, symbols = 0, names = 0;
    for (int part = 0; part < header->e_phnum; part++) {
        if (parts[part].p_type == PT_LOAD) length = parts[part].p_offset + parts[part].p_memsz;
        if (parts[part].p_type == PT_DYNAMIC) dynamic = parts[part].p_offset;
    }
    char *own = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) abort();
    memcpy(own, kernels, length);
    for (ElfW(Dyn) *entry = (void *)(own + dynamic); entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = entry->d_un.d_ptr;
    }
    /* The names follow the symbols. */
    for (ElfW(Sym) *symbol = (void *)(own + symbols); (char *)symbol < own + names; symbol++) {
        int is_clock = strstr(own + names + symbol->st_name, "clock_gettime") != NULL;
        symbol->st_shndx = is_clock ? symbol->st_shndx : SHN_UNDEF;
        symbol->st_value = (ElfW(Addr))clock_gettime - (ElfW(Addr))own;
    }
    return (unsigned long)own;
}

/* Go finds the vDSO by the auxiliary vector, which follows the environment on the stack. */
__attribute__((constructor)) static void replace_vdso(void) {
    char **end = environ;
    while (*end) end++;
    for (ElfW(auxv_t) *entry = (void *)(end + 1); entry->a_type != AT_NULL; entry++)
        if (entry->a_type == AT_SYSINFO_EHDR) entry->a_un.a_val = own_vdso((const char *)entry->a_un.a_val);
}
