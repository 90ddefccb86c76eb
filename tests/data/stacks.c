// stacks MS: works MS milliseconds in frames that need DWARF to be unwound: without frame pointers, of changing
// size, called back by a library, below a signal handler, and on a second thread.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile unsigned long sink;
static double end;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

__attribute__((noinline)) void leaf(int n) {
    for (int i = 0; i < n; i++) sink += i * sink + 1;
}

__attribute__((noinline)) void down(int depth) {
    char *p = alloca(16 + (depth & 3) * 24);
    memset(p, depth, 16);
    if (depth) down(depth - 1);
    else leaf(2000);
    sink += p[3];
}

__attribute__((noinline)) int compare(const void *a, const void *b) {
    for (int i = 0; i < 20; i++) sink += i;
    return *(const int *)a - *(const int *)b;
}

static void on_signal(int number) {
    (void)number;
    leaf(100000);
}

static void *work(void *unused) {
    int numbers[300];
    for (int k = 0; now() < end; k++) {
        down(k % 40);
        for (int i = 0; i < 300; i++) numbers[i] = (i * 7919 + k) % 997;
        qsort(numbers, 300, sizeof *numbers, compare);
        if (k % 20 == 0) raise(SIGUSR1);
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    end = now() + (argc > 1 ? atof(argv[1]) : 50);
    signal(SIGUSR1, on_signal);
    pthread_create(&thread, NULL, work, NULL);
    work(NULL);
    pthread_join(thread, NULL);
    return 0;
}
