// jit [ROUNDS]: runs code from an anonymous mapping, a memfd, a deleted file and a mapping renamed by prctl.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

// uint64_t f(uint64_t x, uint64_t n): adds 1 to x, n times
static unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x83, 0xc0, 0x01, 0x48, 0xff, 0xce, 0x75, 0xf7, 0xc3};
typedef uint64_t (*fn)(uint64_t, uint64_t);
static volatile uint64_t sink;

static void run(void *p, uint64_t n) {
    for (int i = 0; i < 4; i++) sink += ((fn)p)(i, n);
}

int main(int argc, char **argv) {
    uint64_t n = argc > 1 ? strtoull(argv[1], 0, 0) : 1000000;
    const int rwx = PROT_READ | PROT_WRITE | PROT_EXEC;

    void *p = mmap(0, 8192, rwx, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(p, code, sizeof code);
    run(p, n);

    int fd = memfd_create("jit code", 0);
    if (ftruncate(fd, 4096)) return 1;
    void *q = mmap(0, 4096, rwx, MAP_SHARED, fd, 0);
    memcpy(q, code, sizeof code);
    run(q, n);

    char name[] = "/tmp/perfx-data/gone-XXXXXX";
    int gone = mkstemp(name);
    if (gone < 0 || ftruncate(gone, 4096) || pwrite(gone, code, sizeof code, 0) < 0) return 1;
    unlink(name);
    void *r = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, gone, 0);
    run(r, n);

    void *s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    prctl(0x53564d41 /* PR_SET_VMA */, 0, s, 4096, "jit arena");
    memcpy(s, code, sizeof code);
    mprotect(s, 4096, PROT_READ | PROT_EXEC);
    run(s, n);
    return 0;
}
