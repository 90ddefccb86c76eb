/* Calls functions of libraries, through stubs of the linker: in .plt, on ppc64 in .text. */
int read_it(int), write_it(int);
static int one(int x) { return x + 1; }
static int (*pick(void))(int) { return one; }
static int chosen(int) __attribute__((ifunc("pick")));
int all(int x) { return read_it(x) + write_it(x) * 3 + chosen(x); }
