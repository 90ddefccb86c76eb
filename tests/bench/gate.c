/* Work for gate.py: five functions, of which `hash` can be made slower (ONE, percent), or all (ALL). */
#include <stdint.h>

#ifndef ONE
#define ONE 100
#endif
#ifndef ALL
#define ALL 100
#endif
#define PLAIN __attribute__((noinline)) static void

static volatile uint64_t sink;
static uint32_t table[1 << 10];

PLAIN mix(long n) {
    uint64_t x = 88172645463325252ull;
    for (long i = 0; i < n; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
    sink = x;
}
PLAIN divide(long n) {
    uint64_t x = 1000000000000000000ull, s = 0;
    for (long i = 1; i <= n; i++) { s += x / (i | 1); x += s; }
    sink = s;
}
PLAIN walk(long n) {
    uint32_t at = 0;
    for (long i = 0; i < n; i++) at = table[at];
    sink = at;
}
PLAIN hash(long n) {
    uint64_t h = 14695981039346656037ull;
    for (long i = 0; i < n; i++) { h ^= i & 255; h *= 1099511628211ull; }
    sink = h;
}
PLAIN floats(long n) {
    double s = 0;
    for (long i = 1; i <= n; i++) s = s * 0.5 + 1.0 / i;
    sink = (uint64_t)(s * 1e6);
}

int main(void) {
    for (unsigned i = 0; i < 1 << 10; i++) table[i] = (i * 5 + 1) & ((1 << 10) - 1);
    for (int round = 0; round < 200; round++) {
        long n = SCALE * ALL / 100;
        mix(n * 10);
        divide(n * 5);
        walk(n * 15);
        hash(n * 7 * ONE / 100);
        floats(n * 5);
    }
}
