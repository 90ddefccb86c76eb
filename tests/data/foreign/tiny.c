/* A program of no library, whose user stacks are unwound in the tests: recursion, a frame of variable size, a callback,
   and a function without a frame. It ends with a trap. See make.sh. */
#define APART __attribute__((noinline, noclone))

static volatile unsigned long sink;

APART unsigned leaf(unsigned x, unsigned times) {
    for (unsigned i = 0; i < times; i++) x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return x;
}

APART unsigned deep(unsigned depth, unsigned x) {
    volatile unsigned own = x;
    unsigned below = depth ? deep(depth - 1, x + 1) : leaf(x | 1, 20000);
    return below ^ own;
}

APART unsigned variable(unsigned x) {
    volatile char *room = __builtin_alloca((x & 127) + 32);
    room[0] = x;
    return deep(3, x) + room[0];
}

APART unsigned callback(unsigned (*called)(unsigned), unsigned x) { return called(x) + 1; }

__attribute__((used)) void entry(void) {
    for (int i = 0; i < 2500; i++) sink += variable(sink) + callback(variable, sink) + leaf(sink | 1, 20000);
    __builtin_trap();
}

#if defined(__arm__)
/* The tables of exceptions name these. */
void __aeabi_unwind_cpp_pr0(void) {}
void __aeabi_unwind_cpp_pr1(void) {}
#endif

#if defined(__i386__)
__asm__(".globl _start\n_start:\n.cfi_startproc\n.cfi_undefined eip\nxorl %ebp,%ebp\ncall entry\nhlt\n.cfi_endproc");
#else
void _start(void) { entry(); }
#endif
