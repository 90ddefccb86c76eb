// contend T N: T threads that map memory and write one file, N times each, and so wait for the kernel's locks.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int rounds, file;

static void *contend(void *arg) {
    static char text[1 << 16];
    for (int i = 0; i < rounds; i++) {
        char *at = mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int page = 0; page < 1 << 18; page += 1 << 12) at[page] = 1;
        munmap(at, 1 << 18);
        if (pwrite(file, text, sizeof text, 0) < 0) abort();
        usleep(200);
    }
    return arg;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 4;
    rounds = argc > 2 ? atoi(argv[2]) : 10;
    file = open("contended", O_RDWR | O_CREAT | O_TRUNC, 0600);
    pthread_t threads[16];
    for (int i = 0; i < count && i < 16; i++) pthread_create(&threads[i], 0, contend, 0);
    for (int i = 0; i < count && i < 16; i++) pthread_join(threads[i], 0);
    fsync(file);
    unlink("contended");
    return 0;
}
