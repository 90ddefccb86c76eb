// compat: a freestanding 32-bit program, for registers of the 32-bit ABI.
void _start(void) {
    volatile unsigned long s = 0;
    for (unsigned long i = 0; i < 20000000ul; i++) s += i;
    __asm__ volatile("int $0x80" ::"a"(1), "b"(0));
}
