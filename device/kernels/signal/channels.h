/* Functions of the channels of a microphone front end, by tables. */
#ifndef EK_SIGNAL_CHANNELS_H
#define EK_SIGNAL_CHANNELS_H
#include "../kernel.h"

typedef struct {
    long scale, shift;
    const void *x, *noise, *table;
    void *y;
} ek_channels_args;
#endif
