// calls N [MS]: four system calls in a loop, N rounds; with MS again and again for MS milliseconds.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 10;
    double end = now() + (argc > 2 ? atof(argv[2]) : 0);
    int fd = open("/dev/zero", O_RDWR);
    char b[256];
    do {
        for (int i = 0; i < n; i++) {
            syscall(SYS_getppid);
            if (read(fd, b, sizeof b) < 0) return 1;
            if (write(fd, b, 16) < 0) return 1;
            lseek(fd, 0, SEEK_SET);
        }
    } while (now() < end);
    return 0;
}
