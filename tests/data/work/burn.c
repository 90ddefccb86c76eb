// burn MS DEPTH: works MS milliseconds in call chains up to DEPTH deep.
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

__attribute__((noinline)) uint64_t leaf_mul(uint64_t x) {
    for (int i = 0; i < 400; i++) x = x * 6364136223846793005ull + 1;
    return x;
}

__attribute__((noinline)) uint64_t leaf_xor(uint64_t x) {
    for (int i = 0; i < 200; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

__attribute__((noinline)) uint64_t down(int depth, uint64_t x) {
    if (depth <= 0) return (x & 1) ? leaf_mul(x) : leaf_xor(x);
    uint64_t r = down(depth - 1, x + depth);
    sink += r;
    return r ^ depth;
}

__attribute__((noinline)) uint64_t work_one(uint64_t x, int depth) { return down(depth, x) + 1; }
__attribute__((noinline)) uint64_t work_two(uint64_t x, int depth) { return down(depth / 2, x) + 2; }

int main(int argc, char **argv) {
    double ms = argc > 1 ? atof(argv[1]) : 20;
    int depth = argc > 2 ? atoi(argv[2]) : 8;
    uint64_t x = 88172645463325252ull;
    for (double end = now() + ms; now() < end;)
        for (int i = 0; i < 50; i++) {
            x += work_one(x, depth);
            x ^= work_two(x, depth);
        }
    sink += x;
    return 0;
}
