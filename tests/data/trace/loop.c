// Calls, returns, indirect branches, recursion, longjmp, a signal and system calls. SMALL leaves out qsort and the vdso.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
volatile unsigned sink; static jmp_buf env;
__attribute__((noinline)) unsigned leaf(unsigned x){return x*2654435761u^(x>>7);}
__attribute__((noinline)) unsigned deep(unsigned n){return n?deep(n-1)+leaf(n):1;}
__attribute__((noinline)) unsigned sw(unsigned x){switch(x%9){case 0:return x+1;case 1:return leaf(x);case 2:return x^3;case 3:return x-7;case 4:return x*5;case 5:return leaf(x)+2;case 6:return x>>1;case 7:return ~x;default:return x|9;}}
static unsigned fa(unsigned x){return x+leaf(x);} static unsigned fb(unsigned x){return x^leaf(x+1);} static unsigned (*volatile ft[2])(unsigned)={fa,fb};
static int cmp(const void*a,const void*b){unsigned x=*(unsigned*)a,y=*(unsigned*)b;return x<y?-1:x>y;}
__attribute__((noinline)) void jump(unsigned n){if(n)jump(n-1);else longjmp(env,1);sink++;}
static void handler(int s){sink+=s;leaf(s);}
int main(int c,char**v){int n=c>1?atoi(v[1]):200;unsigned a[64],s=1;char b[256];struct timespec t;
 signal(SIGUSR1,handler);
 for(int i=0;i<n;i++){s=sw(s)+ft[s&1](s);if(i%17==0)s+=deep(i%130);if(i%31==0&&!setjmp(env))jump(i%9);
#ifndef SMALL
  if(i%23==0){for(int k=0;k<64;k++)a[k]=s*k^(k<<3);qsort(a,64,4,cmp);s+=a[5];}
#endif
#ifndef NOSIG
  if(i%41==0)raise(SIGUSR1);
#endif
  if(i%13==0){memset(b,i,sizeof b);s+=strlen(strcpy(b,"hello trace"));
#ifndef SMALL
   clock_gettime(CLOCK_MONOTONIC,&t);s+=t.tv_nsec&1;
#endif
  }
  if(i%67==0)s+=getppid();}
 sink=s;printf("%u\n",s);return 0;}
