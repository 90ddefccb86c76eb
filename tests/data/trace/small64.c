/* small64.c: a freestanding AArch64 program that executes branches of all kinds, for the CoreSight fixtures. */
static long call(long n, long a, long b, long c, long d) {
    register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
enum { EXIT = 93, KILL = 129, ACTION = 134, PID = 172, PARENT = 173 };
static volatile unsigned sink;
static void *env[5];
#define FAR __attribute__((noinline, noclone))
FAR unsigned leaf(unsigned x) { return x * 2654435761u ^ (x >> 7); }
FAR unsigned deep(unsigned n) { return n ? deep(n - 1) + leaf(n) : 1; }
FAR unsigned choose(unsigned x) {
    switch (x % 9) {
    case 0: return x + 1;
    case 1: return leaf(x);
    case 2: return x ^ 3;
    case 3: return leaf(x) - 7;
    case 4: return x * 5;
    case 5: return leaf(x) + 2;
    case 6: return x >> 1;
    case 7: return ~x;
    default: return leaf(x | 9);
    }
}
FAR unsigned first(unsigned x) { return x + leaf(x); }
FAR unsigned second(unsigned x) { return x ^ leaf(x + 1); }
static unsigned (*const volatile both[2])(unsigned) = {first, second};
FAR void jump(unsigned n) {
    if (n) jump(n - 1);
    else __builtin_longjmp(env, 1);
    sink++;
}
FAR unsigned halve(unsigned n) {
    unsigned k = 0;
    for (unsigned long x = n * 4096ul; !(x & 1); x >>= 1) k++;
    return k;
}
#ifdef SIGNALS
static void handler(int signal) { sink += leaf(signal); }
__asm__("restore: mov x8, #139\n svc #0\n");
extern void restore(void);
#endif
FAR void work(unsigned n) {
    unsigned s = 1, a[24];
#ifdef SIGNALS
    struct { void *handler; long flags; void *restorer; long mask; } action = {handler, 0x04000000, restore, 0};
    call(ACTION, 10, (long)&action, 0, 8);
#endif
    for (unsigned i = 0; i < n; i++) {
        s = choose(s) + both[s & 1](s);
        if (i % 17 == 0) s += deep(i % 40);
        if (i % 31 == 0 && !__builtin_setjmp(env)) jump(i % 9);
        if (i % 11 == 0) s += halve(i + 1);
        if (i % 23 == 0) {
            for (unsigned k = 0; k < 24; k++) a[k] = s * k ^ (k << 3);
            for (unsigned k = 1; k < 24; k++)
                for (unsigned m = k; m && a[m - 1] > a[m]; m--) {
                    unsigned t = a[m];
                    a[m] = a[m - 1];
                    a[m - 1] = t;
                }
            s += a[5];
        }
#ifdef SIGNALS
        if (i % 13 == 0) call(KILL, call(PID, 0, 0, 0, 0), 10, 0, 0);
#endif
        if (i % 19 == 0) sink = call(PARENT, 0, 0, 0, 0);
        if (i % 29 == 0) __asm__ volatile("isb" ::: "memory");
    }
    sink = s;
}
__attribute__((used)) void begin(unsigned n) {
    work(ROUNDS);
    call(EXIT, 0, 0, 0, 0);
}
__asm__(".globl _start\n_start: mov x29, #0\n bl begin\n");
