/* Pictures that a model makes of pictures. */
#include "task_parts.h"

typedef struct {
    const ek_frame *frame;
    uint8_t *pixels;
    size_t bytes; /* room for pixels */
    ek_image *made;
} request;

/* How many times as many pixels the model made along an edge of the picture. */
static double times_of(int64_t pixels, int64_t fitted, int64_t side, int64_t made) {
    return (double)made * (double)fitted / (double)side / (double)pixels;
}

static int is_for(const ek_task *task, const void *context) {
    (void)context;
    return ek_task_is(task, "image");
}

static int take(ek_task *task, void *context, char *error) {
    return ek_task_take(task, ((const request *)context)->frame, error);
}

/* The part that is of the frame, in its proportions, and at least in its size. */
static int give(ek_task *task, void *context, char *error) {
    (void)error;
    const request *r = context;
    const ek_picture *p = &task->picture;
    const int64_t rows = task->out.shape[1], columns = task->out.shape[2];
    const double x = times_of(p->width, p->across, p->to_width, columns);
    const double y = times_of(p->height, p->down, p->to_height, rows);
    const double most = x > y ? x : y, times = most > 1 ? most : 1;
    const int64_t channels = task->out.shape[3];
    ek_image *made = r->made;
    made->width = ek_nearest((double)p->width * times);
    made->height = ek_nearest((double)p->height * times);
    made->channels = (int)channels;
    const size_t line = (size_t)(made->width * channels);
    const uint8_t *from = task->results[task->output];
    for (int64_t row = 0; row < made->height && (size_t)(row + 1) * line <= r->bytes; row++) {
        const uint8_t *own =
            from +
            columns * channels * ek_cell(row, made->height, p->down, p->top, p->to_height, rows);
        uint8_t *to = r->pixels + (size_t)row * line;
        for (int64_t column = 0; column < made->width; column++) {
            const int64_t at =
                ek_cell(column, made->width, p->across, p->left, p->to_width, columns);
            for (int64_t c = 0; c < channels; c++)
                *to++ = own[channels * at + c];
        }
    }
    return 0;
}

int64_t ek_app_image(ek_app *app, const ek_frame *frame, uint8_t *pixels, size_t bytes,
                     ek_image *made) {
    request asked = {frame, pixels, bytes, made};
    const ek_use use = {"image", &asked, is_for, take, give};
    if (ek_app_use(app, &use) != 0)
        return -1;
    return made->width * made->height * made->channels;
}
