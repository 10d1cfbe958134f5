// The same work by one thread, then split between two that synchronize by flags and a futex.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { BEGIN = 777001, END, LAP };
static atomic_int started, done;
static volatile long kept[2];

static void work(long times, int who) {
    long x = who + 1;
    for (long i = 0; i < times; i++)
        __asm__ volatile("mul %0, %0, %0" : "+r"(x));
    kept[who] = x;
}

static void *helper(void *times) {
    while (!atomic_load(&started))
        __asm__ volatile("yield");
    work((long)times, 1);
    atomic_store(&done, 1);
    return 0;
}

int main(void) {
    enum { TIMES = 200000 };
    pthread_t thread;
    pthread_create(&thread, 0, helper, (void *)(long)(TIMES / 2));
    close(BEGIN);
    work(TIMES, 0);
    close(LAP);
    atomic_store(&started, 1);
    work(TIMES / 2, 0);
    while (!atomic_load(&done))
        __asm__ volatile("yield");
    close(LAP);
    close(END);
    pthread_join(thread, 0);
    return 0;
}
