// Preloaded into perfx by nth_failure.rs: lets the n-th call of a function fail, or that one and all later ones.
//   FAIL_CALL    the function: pthread_create, or write for any call that writes to a file
//   FAIL_NTH     which call, counted from 1
//   FAIL_ONWARDS set if all later calls fail, too
//   FAIL_MARK    a file that is made when a call fails
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *call) {
    static atomic_long calls;
    const char *wanted = getenv("FAIL_CALL"), *nth = getenv("FAIL_NTH"), *mark = getenv("FAIL_MARK");
    if (!wanted || !nth || !mark || strcmp(call, wanted)) return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (number < atol(nth) || (number > atol(nth) && !getenv("FAIL_ONWARDS"))) return 0;
    close(syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY, 0600));
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    return fails("pthread_create") ? EAGAIN : REAL(pthread_create)(thread, attr, start, arg);
}

#define FULL if (fd > 2 && fails("write")) return errno = ENOSPC, -1

ssize_t write(int fd, const void *from, size_t size) {
    FULL;
    return REAL(write)(fd, from, size);
}

ssize_t writev(int fd, const struct iovec *from, int count) {
    FULL;
    return REAL(writev)(fd, from, count);
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
    FULL;
    return REAL(pwrite64)(fd, from, size, at);
}

ssize_t copy_file_range(int in, off64_t *from, int fd, off64_t *to, size_t size, unsigned flags) {
    FULL;
    return REAL(copy_file_range)(in, from, fd, to, size, flags);
}

int fsync(int fd) {
    FULL;
    return REAL(fsync)(fd);
}
