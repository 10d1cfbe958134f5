// A sequential stream of lines, with two scattered lines after each; every load depends on the
// previous one.
#include "marks.h"

enum { ROW = 1 << 20, ALL = 5 << 20 };
static volatile char buffer[ALL] __attribute__((aligned(4096)));

void _start(void) {
    mark(WARM);
    for (long i = 0; i < ALL; i += 4096)
        buffer[i] = 0;
    mark(WARM_END);
    mark(BEGIN);
    for (long i = 0, lone = 0, none = 0; i < ROW; i += 64) {
        none = buffer[i + none];
        for (int k = 0; k < 2; k++, lone = (lone + 17 * 128) % (ALL - ROW))
            none = buffer[ROW + lone + none];
    }
    mark(END);
    call(94, 0);
}
