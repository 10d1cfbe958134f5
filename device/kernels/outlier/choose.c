/* Chooses the methods of the integer product from the knowledge base. */
#include <string.h>
#include "outlier.h"

enum { USUAL_ROWS = 128, AT_ONCE = 3 };
static const int KIND = EK_GEMM_S8 | EK_GEMM_B_PACKED;

/* The regular tiles of a list are all but its last two, which are for products with a vector. */
static const char *end_of_regular(const char *tiles) {
    const char *end = tiles + strlen(tiles);
    for (int commas = 0; commas < 2; commas += *end == ',')
        end--;
    return end;
}

/* Reads the digits at a place, and moves behind them and the character that follows. Not strtol,
 * which the runner of estimates lacks. */
static int read_number(const char **at) {
    int number = 0;
    while (**at >= '0' && **at <= '9')
        number = number * 10 + *(*at)++ - '0';
    ++*at;
    return number;
}

/* The widest regular tile that is at most `most` wide, else the narrowest. Regular ones serve every
 * number of rows. */
static ek_gemm_method tile_below(int most) {
    const char *at = ek_gemm_tiles(ek_outlier_dtype()), *const last = end_of_regular(at);
    ek_gemm_method best = {0};
    while (at < last) {
        const int mr = read_number(&at), nr = read_number(&at);
        const int wider = nr > best.nr && nr <= most, narrower = nr < best.nr && best.nr > most;
        if (!best.nr || wider || narrower)
            best.mr = mr, best.nr = nr;
    }
    return best;
}

ek_gemm_method ek_outlier_packing(ek_gemm_table *table, long n, long group) {
    ek_gemm_method how = ek_gemm_lookup(table, KIND, 1, USUAL_ROWS, n, group, NULL);
    const long narrowest = tile_below(0).nr;
    long wanted = how.nr;
    if (tile_below(how.nr).nr != how.nr) {
        const long whole = (n + narrowest - 1) / narrowest * narrowest;
        wanted = whole < AT_ONCE * narrowest ? whole : AT_ONCE * narrowest;
    }
    const ek_gemm_method tile = tile_below((int)wanted);
    how.mr = tile.mr, how.nr = tile.nr, how.pack_a = 0;
    return how;
}

ek_gemm_method ek_outlier_method(ek_gemm_table *table, const ek_outlier_weights *w, long m,
                                 int threads) {
    ek_gemm_method how = ek_gemm_lookup(table, KIND, threads, m, w->n, w->group, NULL);
    const ek_gemm_method tile = tile_below(w->how.nr);
    if (how.nr != tile.nr || how.mr > tile.mr)
        how.mr = tile.mr;
    how.nr = tile.nr, how.pack_a = 0;
    return how;
}
