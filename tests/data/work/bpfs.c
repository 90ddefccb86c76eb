// bpfs N: loads and unloads N small BPF socket filters (needs root): KSYMBOL and BPF_EVENT records.
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 2;
    for (int i = 0; i < n; i++) {
        struct bpf_insn prog[] = {
            {.code = 0xb7, .dst_reg = 0, .imm = i}, {.code = 0x07, .dst_reg = 0, .imm = 1}, {.code = 0x95}};
        union bpf_attr a;
        memset(&a, 0, sizeof a);
        a.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
        a.insns = (uint64_t)(uintptr_t)prog;
        a.insn_cnt = 3;
        a.license = (uint64_t)(uintptr_t) "GPL";
        snprintf(a.prog_name, sizeof a.prog_name, "perfx_bpf_%d", i);
        int fd = syscall(SYS_bpf, BPF_PROG_LOAD, &a, sizeof a), sv[2];
        if (fd < 0) return perror("bpf"), 1;
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv)) return 1;
        setsockopt(sv[0], SOL_SOCKET, 50 /* SO_ATTACH_BPF */, &fd, sizeof fd);
        char b[8] = "x";
        for (int k = 0; k < 50; k++) {
            if (write(sv[1], b, 1) < 0) return 1;
            recv(sv[0], b, 1, MSG_DONTWAIT);
        }
        close(sv[0]);
        close(sv[1]);
        close(fd);
    }
    usleep(20000); // the unload happens a little later
    return 0;
}
