# A made-up kernel for `etmmake.py --kernel`: what a system call and an interrupt go through. Nothing runs it: etmmake
# follows it, taking each conditional branch as it pleases.
.globl _text, _stext, entry_svc, entry_irq, work, _etext
.text
_text:
_stext: nop
entry_svc: stp x29, x30, [sp, #-16]!
1: subs x0, x0, #1
 b.eq 2f
 bl work
 b 1b
2: adrp x1, work
 blr x1
 isb
 ldp x29, x30, [sp], #16
 eret
work: tbnz x1, #0, 3f
 add x2, x2, #1
3: cbz x2, 4f
 nop
4: ret
entry_irq: str x30, [sp, #-16]!
 bl work
 ldr x30, [sp], #16
 eret
.balign 4096
_etext: nop
