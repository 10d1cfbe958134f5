/* Makes a model's input of a picture of any size. */
#ifndef EK_PICTURE_H
#define EK_PICTURE_H
#include <stdint.h>

typedef struct {
    const uint8_t *pixels; /* red, green, blue; rows are `stride` bytes apart */
    int64_t width, height, stride;
    int64_t left, top;           /* of the resized picture in the input; may be negative */
    int64_t across, down;        /* its size */
    int64_t to_width, to_height; /* of the input */
    int64_t channels;            /* of the input: 3, or 1 for brightness */
    int64_t planes;              /* channels are the input's first axis, not its last */
    int64_t reversed;            /* blue, green, red */
    int64_t fill;                /* the byte of what the picture does not cover */
    const uint8_t *table;        /* for each channel, the elements of the bytes 0 to 255; or NULL */
    float factor[3], shift[3];   /* without a table: a float, byte * factor + shift */
} ek_picture;

/* Resizes with two taps in each direction, like OpenCV's bilinear interpolation. Returns 0, or -1
 * if a size is not positive. */
int ek_fit_picture(const ek_picture *p, void *input);

typedef enum { EK_LINEAR = 1, EK_CUBIC = 2 } ek_filter;

/* Resizes with as many taps as the smaller picture needs of the larger one, like Pillow, first
 * across. Returns 0, or -1 if a size is not positive, or memory is short. */
int ek_filter_picture(const ek_picture *p, ek_filter filter, void *input);
#endif
