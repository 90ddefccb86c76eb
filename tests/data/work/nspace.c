// nspace N: N children that enter namespaces of their own (needs root).
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 2;
    for (int i = 0; i < n; i++) {
        if (fork() == 0) {
            if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID)) _exit(1);
            if (fork() == 0) {
                volatile long s = 0;
                for (long k = 0; k < 3000000; k++) s += k;
                _exit(0);
            }
            wait(0);
            _exit(0);
        }
        wait(0);
    }
    return 0;
}
