/* Threads that read from memory one at a time: lines that several cores ask for in alternation cost
 * a turn of the memory each. The others multiply what they have read. */
#ifndef EK_OUTLIER_IN_TURN_H
#define EK_OUTLIER_IN_TURN_H
#include <stdatomic.h>
#include "../kernel.h"
#include "../runtime/relax.h"

#define TURN_POLLS 16000 /* then the thread that reads may have been preempted */
#define TURN_AHEAD 1280  /* bytes of loads that nothing waits for */
#define TURN_STEP 256

static atomic_int in_turn; /* whether a thread reads */

/* Loads the lines of [from, end) into the caches. The turn ends once all loads have begun. */
static void read_in_turn(const uint8_t *from, const uint8_t *end) {
    for (long polls = 0; atomic_exchange_explicit(&in_turn, 1, memory_order_relaxed); polls++) {
        if (polls == TURN_POLLS)
            return;
        ek_relax();
    }
    for (const uint8_t *ahead = from; end - ahead >= TURN_STEP; ahead += TURN_STEP) {
        __asm__ volatile("ldrb wzr, [%0]\nldrb wzr, [%0, 64]\n"
                         "ldrb wzr, [%0, 128]\nldrb wzr, [%0, 192]"
                         :
                         : "r"(ahead));
        if (ahead - from >= TURN_AHEAD) {
            const uint8_t arrived = *(volatile const uint8_t *)from;
            __asm__ volatile("" : : "r"(arrived + 1)); /* waits for it */
            from += TURN_STEP;
        }
    }
    atomic_store_explicit(&in_turn, 0, memory_order_relaxed);
}
#endif
