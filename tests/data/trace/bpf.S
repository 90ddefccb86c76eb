# Two made-up BPF programs as the kernel compiles them, for `ptmake --bpf`: the second one, with SECOND, comes to the address
# of the first. Nothing runs them.
#   gcc -c -o bpf.o bpf.S && ld -R vmlinux --section-start .main=0xffffffffc0001000 --section-start .sub=0xffffffffc0002040 \
#       -e main -o bpf bpf.o
.globl main, sub
.section .main, "ax"
main: .byte 0x0f, 0x1f, 0x44, 0, 0; push %rbp; mov %rsp,%rbp
#ifdef SECOND
jmp 2f
1: test %rdi,%rdi; js 3f; call work
2: call sub; dec %rsi; jnz 1b
3: leave; ret
#else
cmp $2,%rdi; jz 1f; call sub
1: call work; mov %rax,%rdi; call sub; leave; ret
#endif
.section .sub, "ax"
sub: push %rbp
#ifdef SECOND
test %rdi,%rdi; jz 1f; call work; inc %rax; 1: pop %rbp; ret
#else
mov %rsp,%rbp; dec %rdi; jnz 1f; inc %rax; jmp 2f; 1: add %rdi,%rax; 2: leave; ret
#endif
