// Reading uncached memory by one thread, then by two in parallel, each from its own buffer.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { BEGIN = 777001, END, LAP, BYTES = 2 << 20 };
static atomic_int started, done;
static volatile char memory[3][BYTES];

static void read_all(int which) {
    for (int i = 0; i < BYTES; i += 64)
        (void)memory[which][i];
}

static void *helper(void *nothing) {
    while (!atomic_load(&started))
        __asm__ volatile("yield");
    read_all(1);
    atomic_store(&done, 1);
    return nothing;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, helper, 0);
    close(BEGIN);
    read_all(0);
    close(LAP);
    atomic_store(&started, 1);
    read_all(2);
    while (!atomic_load(&done))
        __asm__ volatile("yield");
    close(LAP);
    close(END);
    pthread_join(thread, 0);
    return 0;
}
