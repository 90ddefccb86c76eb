// jit MODE FOLDER MILLISECONDS: makes code, runs it, and writes a jitdump as a JIT compiler does. Modes: plain; twice
// (the dump is mapped twice); close (CLOSE in the middle); move; reuse (code half over older code); fork (a child goes
// on writing); torn (half a record at the end).
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// mov rcx,rdi; 1: dec rcx; jnz 1b; ret
static const uint8_t code[] = {0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3};
static int fd;
static uint64_t next_index;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t size) { return memcpy(at, bytes, size), at + size; }
static uint8_t *u32(uint8_t *at, uint32_t value) { return put(at, &value, 4); }
static uint8_t *u64(uint8_t *at, uint64_t value) { return put(at, &value, 8); }

static void record(uint32_t id, const uint8_t *body, size_t size, size_t written) {
    uint8_t bytes[512], *at = u64(u32(u32(bytes, id), 16 + size), now());
    put(at, body, size);
    if (write(fd, bytes, written ? written : 16 + size) < 0) exit(1);
}

static void map(void) { mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0); }

static void load(const char *name, uint8_t *address, size_t written) {
    uint8_t body[256], *at = u32(u32(body, getpid()), getpid());
    at = u64(u64(u64(u64(at, (uintptr_t)address), (uintptr_t)address), sizeof code), ++next_index);
    at = put(put(at, name, strlen(name) + 1), code, sizeof code);
    memcpy(address, code, sizeof code);
    record(0, body, at - body, written);
}

static void run(uint8_t *address, unsigned milliseconds) {
    void (*function)(long) = (void (*)(long))address;
    for (uint64_t end = now() + milliseconds * 1000000ull; now() < end;) function(300000);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *mode = argv[1];
    unsigned part = atoi(argv[3]) / 6;
    char path[256], name[16];
    uint8_t header[40], *at = u32(u32(u32(u32(u32(u32(header, 0x4A695444), 1), 40), 62), 0), getpid());
    u64(u64(at, now()), 0);
    snprintf(path, sizeof path, "%s/jit-%d.dump", argv[2], getpid());
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, header, sizeof header) < 0) return 1;
    map();
    uint8_t *area = mmap(NULL, 1 << 20, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) snprintf(name, sizeof name, "first_%d", i), load(name, area + 256 * i, 0);
    if (!strcmp(mode, "twice")) map();
    for (int i = 0; i < 3; i++) run(area + 256 * i, part);
    if (!strcmp(mode, "close")) record(3, NULL, 0, 0);
    if (!strcmp(mode, "move")) {
        uint8_t body[48], *at = u32(u32(body, getpid()), getpid()), *new = area + 8192;
        at = u64(u64(u64(at, (uintptr_t)new), (uintptr_t)area + 512), (uintptr_t)new);
        at = u64(u64(at, sizeof code), next_index);
        memcpy(new, code, sizeof code);
        record(1, body, at - body, 0);
        run(new, 3 * part);
    } else if (!strcmp(mode, "fork")) {
        if (fork() == 0) {
            load("child", area + 4096, 0);
            run(area + 4096, 2 * part);
            run(area, part);
            _exit(0);
        }
        wait(NULL);
    } else {
        int reuses = !strcmp(mode, "reuse");
        for (int i = 0; i < 3; i++) {
            uint8_t *address = reuses ? area + 256 * i + 4 : area + 4096 + 256 * i;
            snprintf(name, sizeof name, "second_%d", i), load(name, address, 0);
            run(address, part);
        }
    }
    if (!strcmp(mode, "torn")) load("torn", area + 16384, 70);
    return 0;
}
