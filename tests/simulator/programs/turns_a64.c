// Threads that synchronize in every way: a lock, a sleeping barrier, spinning with yield, and
// taking work items from an atomic counter.
#include "threads.h"

enum { THREADS = 4, ROUNDS = 12, PIECES = 40 };
static thread members[THREADS];
static _Atomic int mutex, rounds;
static int there;
static long order;
static _Atomic int next[ROUNDS], over[ROUNDS];

static void work(long times) {
    long x = times;
    for (long i = 0; i < times; i++)
        __asm__ volatile("mul %0, %0, %0" : "+r"(x));
}

static void meet(void) {
    lock(&mutex);
    int round = rounds;
    if (++there == THREADS) {
        there = 0;
        rounds++;
        wake(&rounds, EVERYBODY);
    }
    unlock(&mutex);
    while (round == rounds)
        wait_while(&rounds, round);
}

static void member(long who) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int piece; (piece = atomic_fetch_add(&next[round], 1)) < PIECES;) {
            work(100 + (piece * 37 + who * 11) % 300);
            lock(&mutex);
            order = order * 31 + who;
            work((order & 63) + 1);
            unlock(&mutex);
        }
        atomic_fetch_add(&over[round], 1);
        while (round % 3 == 1 && atomic_load(&over[round]) < THREADS)
            call(124, 0);
        while (round % 3 == 2 && atomic_load(&over[round]) < THREADS)
            __asm__ volatile("yield");
        if (round % 3 == 0)
            meet();
    }
}

void _start(void) {
    mark(BEGIN);
    for (long i = 1; i < THREADS; i++)
        start_thread(&members[i], member, i);
    member(0);
    mark(LAP);
    for (int i = 1; i < THREADS; i++)
        join(&members[i]);
    mark(LAP);
    work(order & 0xffff); // another order takes another time
    mark(END);
    call(94, 0);
}
