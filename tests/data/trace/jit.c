// jit.c: a JIT compiler as `ptmake --jit` needs it: three versions of a function, each in the memory of the one before.
#include <string.h>
#include <sys/mman.h>
static const unsigned char code[][16] = {
    {0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0xc3},                                      // mov %edi,%ecx; 1: dec %ecx; jnz 1b; ret
    {0x85, 0xff, 0x74, 0x04, 0xff, 0xcf, 0xeb, 0xf8, 0xc3},                          // 1: test %edi,%edi; jz 2f; dec %edi; jmp 1b; 2: ret
    {0x85, 0xff, 0x74, 0x07, 0xff, 0xcf, 0xe8, 0xf5, 0xff, 0xff, 0xff, 0xc3, 0x90},  // f: test; jz 2f; dec %edi; call f; 2: ret
};
int main(void) {
  void *place = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int round = 0; round < 6; round++) {
    mprotect(place, 4096, PROT_READ | PROT_WRITE);
    memcpy(place, code[round % 3], 16);
    mprotect(place, 4096, PROT_READ | PROT_EXEC);
    for (int n = 1; n < 12; n++) ((void (*)(int))place)(n);
  }
}
