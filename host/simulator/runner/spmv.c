/* Multiplies a sparse matrix by a vector in several storage formats, each once to warm up and once
 * timed:
 *
 *   runner spmv LIBRARY DTYPE ROWS COLS THREADS Y-BYTES FORM...
 *
 * LIBRARY: a board's kernels; DTYPE: ek_sparse_dtype; FORM: width,window,wide_from,diagonal,
 * windows,index_bytes,columns. The files start, index, values and x contain the arrays of ek_rows
 * and the vector. Each format is a region between marks; `forms` receives its height, slots and
 * bytes of indices, as int64. */
#include <stdint.h>
#include <stdlib.h>

#include "ek.h"
#include "runner.h"
#include "sparse/sparse.h"

enum { FIRST_FORM = 7, FIELDS = 7, FACTS = 3 };
/* A warm-up lap takes the same path as the timed one, including call and marks, so that the first
 * format's code and branches are as warm as those of the following ones. */
enum { WARM_LAPS = 2 };

typedef struct {
    int (*build)(const ek_rows *, const ek_sparse_settings *, ek_sparse *);
    void (*release)(ek_sparse *);
    size_t (*scratch_bytes)(const ek_sparse *, int);
    int (*run)(const ek_sparse *, const void *, void *, int, void *, ek_pool *);
} functions;

static functions functions_of(const library *lib) {
    functions f;
    *(void **)&f.build = required_symbol(lib, "ek_sparse_build");
    *(void **)&f.release = required_symbol(lib, "ek_sparse_free");
    *(void **)&f.scratch_bytes = required_symbol(lib, "ek_spmv_scratch_bytes");
    *(void **)&f.run = required_symbol(lib, "ek_spmv");
    return f;
}

static ek_sparse_settings settings_of(const char *text) {
    int32_t field[FIELDS] = {0};
    const char *end = text;
    for (int i = 0; i < FIELDS; i++, end += *end == ',')
        field[i] = (int32_t)number_at(end, &end);
    if (*end)
        fail("expected width,window,wide_from,diagonal,windows,index_bytes,columns, found", text);
    return (ek_sparse_settings){field[0], field[1], field[2], field[3],
                                field[4], field[5], field[6]};
}

int time_spmv(int argc, char **argv) {
    if (argc <= FIRST_FORM)
        fail("expected a form, found", "none");
    const library *lib = usable_library(argv[1]);
    const functions f = functions_of(lib);
    size_t bytes;
    ek_rows rows = {.rows = number_at(argv[3], NULL), .cols = number_at(argv[4], NULL)};
    rows.dtype = (int)number_at(argv[2], NULL);
    rows.start = read_file("start", &bytes);
    rows.index = read_file("index", &bytes);
    rows.values = read_file("values", &bytes);
    const void *x = read_file("x", &bytes);
    int threads = (int)number_at(argv[5], NULL);
    void *y = block((size_t)number_at(argv[6], NULL));
    ek_pool *pool = pool_of(lib, threads);
    const size_t forms = (size_t)(argc - FIRST_FORM) * FACTS;
    int64_t *facts = block(forms * sizeof *facts), *fact = facts;
    for (int i = FIRST_FORM; i < argc; i++) {
        ek_sparse_settings how = settings_of(argv[i]);
        ek_sparse form;
        if (f.build(&rows, &how, &form))
            fail("expected memory for a matrix in blocks, found", "none");
        *fact++ = form.height, *fact++ = form.slots, *fact++ = form.index_bytes;
        void *scratch = block(f.scratch_bytes(&form, threads));
#pragma clang loop unroll(disable)
        for (int lap = 0; lap <= WARM_LAPS; lap++) {
            const int timed = lap == WARM_LAPS;
            mark(timed ? MARK_BEGIN : MARK_WARM_BEGIN);
            f.run(&form, x, y, threads, scratch, pool);
            mark(timed ? MARK_END : MARK_WARM_END);
        }
        free(scratch);
        f.release(&form);
    }
    write_file("forms", facts, forms * sizeof *facts);
    return 0;
}
