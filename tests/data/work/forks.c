// forks N [EXEC]: forks N children one after the other; with EXEC=1 each one executes this program again (forks 0).
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 5, exec = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 0; i < n; i++) {
        pid_t p = fork();
        if (p == 0) {
            if (exec) {
                execl("/proc/self/exe", "forks", "0", (char *)0);
                _exit(1);
            }
            char b[16];
            snprintf(b, sizeof b, "child-%d", i);
            prctl(PR_SET_NAME, b);
            volatile long s = 0;
            for (int k = 0; k < 20000; k++) s += k;
            _exit(0);
        }
        waitpid(p, 0, 0);
    }
    return 0;
}
