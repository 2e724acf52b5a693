/* Where a controller in C is when it crashes or takes too long. It is compiled into each of them (controller_file.py), and
 * only a sandbox calls it: its process then writes {"signal": 11, "place": 4660} instead of its results, and ends. The
 * place is an offset in the shared object, for addr2line; 0 if the code is somewhere else. */
#if defined(__linux__)
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>
#include <unistd.h>

extern const char __ehdr_start __attribute__((visibility("hidden"))); /* of this object: the linker defines both */
extern const char etext __attribute__((visibility("hidden")));

/* How many words of the stack may lie between a function of the C library and the return address of its caller. */
enum { WORDS = 64 };

static int reply;
static char own_stack[1 << 16]; /* a recursion without an end has used up the other one */

static uintptr_t offset_of(uintptr_t place) {
  uintptr_t begin = (uintptr_t)&__ehdr_start;
  return place > begin && place < (uintptr_t)&etext ? place - begin : 0;
}

static void report(int number, siginfo_t *info, void *context) {
  const mcontext_t *at = &((const ucontext_t *)context)->uc_mcontext;
  (void)info;
  (void)at;
#if defined(__x86_64__)
  uintptr_t place = offset_of(at->gregs[REG_RIP]);
  const uintptr_t *stack = (const uintptr_t *)at->gregs[REG_RSP];
#elif defined(__aarch64__)
  uintptr_t place = offset_of(at->pc);
  const uintptr_t *stack = (const uintptr_t *)at->sp;
#else
  uintptr_t place = 1;
  const uintptr_t *stack = 0;
#endif
  for (int word = 0; place == 0 && word < WORDS; ++word) {
    place = offset_of(stack[word] - 1); /* the call, and not what follows it */
  }
  char text[64];
  int length = snprintf(text, sizeof text, "{\"signal\": %d, \"place\": %llu}", number, (unsigned long long)place);
  _exit(write(reply, text, length) == length ? 0 : 1);
}

/* Let faults of this process be written to a pipe. */
void bbrgym_report_faults(int pipe) {
  const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU};
  const stack_t other = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
  struct sigaction action = {.sa_sigaction = report, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
  reply = pipe;
  sigaltstack(&other, NULL);
  for (unsigned index = 0; index < sizeof numbers / sizeof *numbers; ++index) {
    sigaction(numbers[index], &action, NULL);
  }
}
#endif
