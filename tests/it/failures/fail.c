/* Makes one call fail, for tests/it/failures.rs: LD_PRELOAD puts these functions before those of libc.
 *
 * FAIL_CALL  "thread", "open" (of a new file), "folder" (mkdir) or "write" (to a regular file)
 * FAIL_AT    the number of the call that fails, from 1
 * FAIL_MARK  this file is made when it fails
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int fails(const char *call) {
    const char *chosen = getenv("FAIL_CALL"), *at = getenv("FAIL_AT"), *mark = getenv("FAIL_MARK");
    if (!chosen || !at || !mark || strcmp(chosen, call) || atomic_fetch_add(&calls, 1) + 1 != atol(at))
        return 0;
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY, 0600));
    return 1;
}

static int write_fails(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && fails("write");
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OR_FULL(failing, call) (failing) ? (errno = ENOSPC, -1) : (call)

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    return fails("thread") ? EAGAIN : REAL(pthread_create)(thread, attr, start, arg);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    return OR_FULL(makes && fails("open"), REAL(open64)(path, flags, mode));
}

int mkdir(const char *path, mode_t mode) {
    return OR_FULL(fails("folder"), REAL(mkdir)(path, mode));
}

ssize_t write(int fd, const void *bytes, size_t len) {
    return OR_FULL(write_fails(fd), REAL(write)(fd, bytes, len));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return OR_FULL(write_fails(fd), REAL(writev)(fd, parts, count));
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    return OR_FULL(write_fails(fd), REAL(pwrite64)(fd, bytes, len, at));
}

int ftruncate64(int fd, off64_t len) {
    return OR_FULL(write_fails(fd), REAL(ftruncate64)(fd, len));
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t len, unsigned flags) {
    return OR_FULL(write_fails(out), REAL(copy_file_range)(in, from, out, to, len, flags));
}
