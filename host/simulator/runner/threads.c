/* POSIX threads, as far as kernels use them, on the types of the boards' C library. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

#include "system.h"

enum { STACK_BYTES = 1 << 20 };
/* The kernel clears `lives` and wakes those who wait for it when the thread ends. */
enum {
    FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
            CLONE_CHILD_CLEARTID
};
enum { FREE, HELD, AWAITED }; /* of a mutex */

typedef struct {
    int lives;
    void *(*run)(void *);
    void *argument;
    size_t bytes; /* of its stack, which this lies on */
} thread;

static void futex_wait(int *word, int value, int scope) {
    CALL(SYS_futex, (long)word, FUTEX_WAIT | scope, value);
}

static void futex_wake(int *word, int count) {
    CALL(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, count);
}

static void run_thread(thread *self) {
    self->run(self->argument);
    CALL(SYS_exit, 0);
}

/* clone(2): the new thread continues here with an empty stack below `self`. */
static long start_thread(thread *self) {
#if defined __aarch64__
    register long n __asm__("x8") = SYS_clone, result __asm__("x0") = FLAGS;
    register void *stack __asm__("x1") = self;
    register int *lives __asm__("x4") = &self->lives;
    __asm__ volatile("svc 0\n\tcbnz x0, 1f\n\tmov x0, %[self]\n\tblr %[run]\n1:"
                     : "+r"(result)
                     : "r"(n), "r"(stack), "r"(lives), [self] "r"(self), [run] "r"(run_thread)
                     : "memory");
#elif defined __arm__
    register long n __asm__("r7") = SYS_clone, result __asm__("r0") = FLAGS;
    register void *stack __asm__("r1") = self;
    register int *lives __asm__("r4") = &self->lives;
    __asm__ volatile("svc 0\n\tcmp r0, #0\n\tbne 1f\n\tmov r0, %[self]\n\tblx %[run]\n1:"
                     : "+r"(result)
                     : "r"(n), "r"(stack), "r"(lives), [self] "r"(self), [run] "r"(run_thread)
                     : "memory", "cc");
#elif defined __riscv
    register long n __asm__("a7") = SYS_clone, result __asm__("a0") = FLAGS;
    register void *stack __asm__("a1") = self;
    register int *lives __asm__("a4") = &self->lives;
    __asm__ volatile("ecall\n\tbnez a0, 1f\n\tmv a0, %[self]\n\tjalr %[run]\n1:"
                     : "+r"(result)
                     : "r"(n), "r"(stack), "r"(lives), [self] "r"(self), [run] "r"(run_thread)
                     : "memory");
#endif
    return result;
}

int pthread_attr_init(pthread_attr_t *attr) {
    *(size_t *)attr = STACK_BYTES;
    return 0;
}

int pthread_attr_setstacksize(pthread_attr_t *attr, size_t bytes) {
    *(size_t *)attr = bytes;
    return 0;
}

int pthread_attr_destroy(pthread_attr_t *attr) {
    (void)attr;
    return 0;
}

int pthread_create(pthread_t *made, const pthread_attr_t *attr, void *(*run)(void *),
                   void *argument) {
    const size_t bytes = attr ? *(const size_t *)attr : STACK_BYTES;
    char *stack = map_memory(bytes);
    if (!stack)
        return EAGAIN;
    thread *self = (thread *)(stack + bytes - 64);
    *self = (thread){1, run, argument, bytes};
    *made = (pthread_t)self;
    if (start_thread(self) > 0)
        return 0;
    unmap_memory(stack, bytes);
    return EAGAIN;
}

int pthread_join(pthread_t joined, void **result) {
    (void)result;
    thread *other = (thread *)joined;
    for (int lives; (lives = __atomic_load_n(&other->lives, __ATOMIC_ACQUIRE));)
        futex_wait(&other->lives, lives, 0); /* the kernel's wake is not private */
    const size_t bytes = other->bytes;
    unmap_memory((char *)other + 64 - bytes, bytes);
    return 0;
}

/* Threads are only compared: any unique number will do. */
pthread_t pthread_self(void) {
    return (pthread_t)CALL(SYS_gettid);
}

int pthread_equal(pthread_t a, pthread_t b) {
    return a == b;
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr) {
    (void)attr;
    *(int *)mutex = FREE;
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    (void)mutex;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    int *word = (int *)mutex, found = FREE;
    if (__atomic_compare_exchange_n(word, &found, HELD, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return 0;
    while (__atomic_exchange_n(word, AWAITED, __ATOMIC_ACQUIRE) != FREE)
        futex_wait(word, AWAITED, FUTEX_PRIVATE_FLAG);
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (__atomic_exchange_n((int *)mutex, FREE, __ATOMIC_RELEASE) == AWAITED)
        futex_wake((int *)mutex, 1);
    return 0;
}

int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attr) {
    (void)attr;
    *(int *)condition = 0;
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition) {
    (void)condition;
    return 0;
}

/* The word counts the broadcasts, so that none between unlocking and sleeping is missed. */
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    int *word = (int *)condition, seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    pthread_mutex_unlock(mutex);
    futex_wait(word, seen, FUTEX_PRIVATE_FLAG);
    return pthread_mutex_lock(mutex);
}

int pthread_cond_broadcast(pthread_cond_t *condition) {
    __atomic_fetch_add((int *)condition, 1, __ATOMIC_RELEASE);
    futex_wake((int *)condition, INT_MAX);
    return 0;
}

int sched_yield(void) {
    return (int)CALL(SYS_sched_yield);
}

int __sched_cpucount(size_t bytes, const cpu_set_t *set) {
    int count = 0;
    for (size_t i = 0; i < bytes; i++)
        for (unsigned rest = ((const unsigned char *)set)[i]; rest; rest &= rest - 1)
            count++;
    return count;
}
