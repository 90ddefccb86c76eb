# A made-up kernel for `ptmake --kernel --guest`: a system call that enters a guest. Nothing runs it.
#   as -o kvm.o kvm.S && ld -o vmlinux-kvm -Ttext 0xffffffff81000000 -e _text kvm.o
.globl _text, _stext, entry_SYSCALL_64, asm_common_interrupt, vcpu_run, vmx_vmexit, work, table_call, _etext, _end
.text
_text: _stext: nop
.type entry_SYSCALL_64,@function
entry_SYSCALL_64: swapgs; push %rbp; call vcpu_run; pop %rbp; swapgs; sysretq
.size entry_SYSCALL_64, .-entry_SYSCALL_64
.type vcpu_run,@function
vcpu_run: push %rbp; mov %rax,%rcx
1: call work; vmresume; ud2
.size vcpu_run, .-vcpu_run
.type vmx_vmexit,@function
vmx_vmexit: dec %rcx; jz 2f; jmp 1b
2: call table_call; pop %rbp; ret
.size vmx_vmexit, .-vmx_vmexit
.type work,@function
work: test $1,%al; jnz 3f; add $1,%rbx
3: rep movsb; ret
.size work, .-work
.type table_call,@function
table_call: mov $work,%rdx; call *%rdx; lea work(%rip),%rdx; jmp *%rdx
.size table_call, .-table_call
.type asm_common_interrupt,@function
asm_common_interrupt: cld; push %rax; call work; pop %rax; iretq
.size asm_common_interrupt, .-asm_common_interrupt
.balign 4096
_etext: _end: nop
