// pages N: touches N fresh pages, one page fault each.
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    size_t n = argc > 1 ? strtoul(argv[1], 0, 0) : 16;
    volatile char *p = mmap(0, n << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 1;
    madvise((void *)p, n << 12, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < n; i++) p[i << 12] = 1;
    return 0;
}
