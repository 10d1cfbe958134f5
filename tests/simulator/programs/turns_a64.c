// Threads that synchronize in every way: a lock, a sleeping barrier, spinning with yield, and
// taking work items from an atomic counter.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { BEGIN = 777001, END, LAP, THREADS = 4, ROUNDS = 12, PIECES = 40 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_there = PTHREAD_COND_INITIALIZER;
static int there, rounds;
static long order;
static atomic_int next[ROUNDS], over[ROUNDS];

static void work(long times) {
    long x = times;
    for (long i = 0; i < times; i++)
        __asm__ volatile("mul %0, %0, %0" : "+r"(x));
}

static void meet(void) {
    pthread_mutex_lock(&lock);
    int round = rounds;
    if (++there == THREADS) {
        there = 0;
        rounds++;
        pthread_cond_broadcast(&all_there);
    }
    while (round == rounds)
        pthread_cond_wait(&all_there, &lock);
    pthread_mutex_unlock(&lock);
}

static void *member(void *number) {
    long who = (long)number;
    for (int round = 0; round < ROUNDS; round++) {
        for (int piece; (piece = atomic_fetch_add(&next[round], 1)) < PIECES;) {
            work(100 + (piece * 37 + who * 11) % 300);
            pthread_mutex_lock(&lock);
            order = order * 31 + who;
            work((order & 63) + 1);
            pthread_mutex_unlock(&lock);
        }
        atomic_fetch_add(&over[round], 1);
        while (round % 3 == 1 && atomic_load(&over[round]) < THREADS)
            sched_yield();
        while (round % 3 == 2 && atomic_load(&over[round]) < THREADS)
            __asm__ volatile("yield");
        if (round % 3 == 0)
            meet();
    }
    return 0;
}

int main(void) {
    pthread_t thread[THREADS];
    close(BEGIN);
    for (long i = 1; i < THREADS; i++)
        pthread_create(&thread[i], 0, member, (void *)i);
    member(0);
    close(LAP);
    for (int i = 1; i < THREADS; i++)
        pthread_join(thread[i], 0);
    close(LAP);
    work(order & 0xffff); // another order takes another time
    close(END);
    return 0;
}
