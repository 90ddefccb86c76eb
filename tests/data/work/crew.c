// crew T MS: T named threads that contend for one lock and sleep a little, for MS milliseconds.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long sum;
static double end;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void *hand(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "hand-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    while (now() < end) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < 3000; i++) sum += i;
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < 1000; i++) sum ^= i;
        if ((long)arg % 2) usleep(50);
    }
    return 0;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 3;
    end = now() + (argc > 2 ? atof(argv[2]) : 20);
    pthread_t t[64];
    if (n > 64) n = 64;
    for (long i = 0; i < n; i++) pthread_create(&t[i], 0, hand, (void *)i);
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    return 0;
}
