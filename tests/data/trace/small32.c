// A 32-bit program without a C library that executes the kinds of branches there are, for ptmake.py.
typedef unsigned u32;

static u32 one(u32 x) { return x * 3 + 1; }
static u32 two(u32 x) { return x / 2; }
static u32 (*const table[2])(u32) = {two, one};

// Takes its argument off the stack when it returns.
__attribute__((stdcall, noinline)) static u32 add(u32 a, u32 b) { return a + b; }

__attribute__((noinline)) static u32 deep(u32 n) { return n < 2 ? n : deep(n - 1) + deep(n - 2); }

// A call to the next instruction, which is not a call; instructions of one byte in 32-bit code only (inc, dec); an operand
// of 16 bits; branches that depend on ecx.
__attribute__((noinline)) static u32 turns(u32 n) {
    u32 sum;
    __asm__ volatile(
        "xor %%eax, %%eax\n jecxz 2f\n"
        "call 3f\n 3: pop %%edx\n"
        "1: inc %%eax\n dec %%edx\n inc %%edx\n addw $0x1234, %%dx\n inc %%eax\n loop 1b\n"
        "2: nop"
        : "=a"(sum), "+c"(n)
        :
        : "edx", "cc");
    return sum;
}

__attribute__((noinline)) static u32 choose(u32 n) {
    switch (n) {
    case 0: return 7;
    case 1: return deep(4);
    case 2: return turns(3);
    case 3: return add(n, 5);
    case 4: return turns(0);
    case 5: return one(n);
    default: return 1;
    }
}

static int call(int number, int a, int b, int c) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

void _start(void) {
    u32 sum = 0;
    for (u32 n = 27; n != 1; sum++) {
        n = table[n & 1](n);
        if (sum % 8 == 0) sum = add(sum, choose(sum / 8 % 7) & 1);
        if (sum % 32 == 5) call(20, 0, 0, 0);
    }
    call(1, sum & 0, 0, 0);
    for (;;) {
    }
}
