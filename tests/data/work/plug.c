// plug LIBRARY MS: loads LIBRARY at run time and works in it MS milliseconds.
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    void *h = dlopen(argv[1], RTLD_NOW);
    if (!h) return 1;
    long (*spin)(long) = (long (*)(long))dlsym(h, "plugged_spin");
    if (!spin) return 1;
    volatile long s = 0;
    for (double end = now() + (argc > 2 ? atof(argv[2]) : 20); now() < end;) s += spin(2000);
    dlclose(h);
    return 0;
}
