// the library of plug.c
long plugged_spin(long n) {
    volatile long s = 0;
    for (long i = 0; i < n; i++) s += i * i;
    return s;
}
