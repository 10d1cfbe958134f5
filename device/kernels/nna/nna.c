/* Instruction streams of device/runtime/arrays/nna_program.py, in the same order.
 *
 * Compile-time parameter: EK_SIMD. Every function is inlined twice: with and without clocks. */
#include "machine.h"

#define BATCH 8

/* One MAC: the pixels of each FRAM row (NULL: padding), and the destinations of its sums. */
typedef struct {
    const int8_t *pixel[3][COLUMNS];
    int taps, rows, columns, outputs; /* taps: per patch */
    int point[POINTS];
    int32_t *sums[POINTS];
} tile_t;

/* One set of weights, [taps][32 out][32 in], and the number of tiles that use it. */
typedef struct {
    const int8_t *weights;
    int taps, first, stride;
    int64_t tiles;
} period_t;

/* An operation as a sequence of periods; exactly one of the three is set. */
typedef struct {
    const ek_nna_matmul_args *matmul;
    const ek_nna_conv_args *conv;
    const ek_nna_pointwise_args *pointwise;
    int points; /* per MAC of the chip */
    int64_t periods;
    int8_t diagonal[SETS][TAPS][CHANNELS][CHANNELS];
} job_t;

static int64_t parts(int64_t total, int64_t size) {
    return (total + size - 1) / size;
}

static period_t matmul_period(job_t *job, int64_t number) {
    const ek_nna_matmul_args *p = job->matmul;
    const int64_t steps = parts(p->k, TAPS), at = number % steps * TAPS;
    const int taps = (int)ek_min(p->k - at, TAPS);
    for (int tap = 0; tap < taps; tap++)
        for (int i = 0; i < CHANNELS; i++)
            job->diagonal[number % SETS][tap][i][i] = p->a[number / steps * p->k + at + tap];
    const int64_t tiles = parts(p->n / CHANNELS, job->points / 2);
    return (period_t){job->diagonal[number % SETS][0][0], taps, at == 0, 2, tiles};
}

/* Lays out `count` adjacent patches of `taps` pixels in rows of three, initially padding. */
static void begin_patches(tile_t *tile, int taps, int count, int pitch) {
    tile->taps = taps;
    tile->rows = (taps + 2) / 3;
    tile->columns = (count * pitch + 1) / 2 * 2;
    tile->outputs = count;
    for (int row = 0; row < tile->rows; row++)
        for (int column = 0; column < tile->columns; column++)
            tile->pixel[row][column] = NULL;
}

static void put_patch(tile_t *tile, int index, int pitch, const int8_t *pixel, int64_t apart) {
    for (int tap = 0; tap < tile->taps; tap++)
        tile->pixel[tap / 3][pitch * index + tap % 3] = pixel + tap * apart;
}

/* Rows of F as adjacent 3x3 patches, four columns apart. */
static void matmul_tile(const job_t *job, int64_t number, int64_t index, tile_t *tile) {
    const ek_nna_matmul_args *p = job->matmul;
    const int64_t steps = parts(p->k, TAPS), at = number % steps * TAPS, all = p->n / CHANNELS;
    const int64_t group = index * (job->points / 2);
    const int groups = (int)ek_min(all - group, job->points / 2);
    begin_patches(tile, (int)ek_min(p->k - at, TAPS), groups, 4);
    for (int g = 0; g < groups; g++) {
        put_patch(tile, g, 4, p->f + ((group + g) * p->k + at) * CHANNELS, CHANNELS);
        tile->point[g] = 2 * g;
        tile->sums[g] = p->sums + number / steps * p->n + (group + g) * CHANNELS;
    }
}

/* Columns per point's patch. With three or more taps, every second output point falls between two
 * patches. */
static int pointwise_pitch(int taps) {
    return taps > 2 ? 4 : taps;
}

static int pointwise_points(const job_t *job, int taps) {
    return taps > 2 ? job->points / 2 : job->points;
}

static int pointwise_taps(const job_t *job, int64_t number) {
    const int64_t all = job->pointwise->in_groups, steps = parts(all, TAPS);
    return (int)ek_min(all - number % steps * TAPS, TAPS);
}

static period_t pointwise_period(const job_t *job, int64_t number) {
    const ek_nna_pointwise_args *p = job->pointwise;
    const int64_t steps = parts(p->in_groups, TAPS), at = number % steps * TAPS;
    const int taps = pointwise_taps(job, number);
    const int8_t *w = p->w + (number / steps * p->in_groups + at) * CHANNELS * CHANNELS;
    const int64_t tiles = parts(p->points, pointwise_points(job, taps));
    return (period_t){w, taps, at == 0, taps > 1 ? 2 : 1, tiles};
}

/* The input channel groups of each point form a patch; the points' patches are adjacent. */
static void pointwise_tile(const job_t *job, int64_t number, int64_t index, tile_t *tile) {
    const ek_nna_pointwise_args *p = job->pointwise;
    const int taps = pointwise_taps(job, number), pitch = pointwise_pitch(taps);
    const int64_t steps = parts(p->in_groups, TAPS), per_tile = pointwise_points(job, taps);
    const int64_t left = index * per_tile, pixels = p->points * CHANNELS;
    const int count = (int)ek_min(p->points - left, per_tile);
    begin_patches(tile, taps, count, pitch);
    for (int i = 0; i < count; i++) {
        const int64_t at = (left + i) * CHANNELS;
        put_patch(tile, i, pitch, p->x + number % steps * TAPS * pixels + at, pixels);
        tile->point[i] = pitch == 4 ? 2 * i : i;
        tile->sums[i] = p->sums + number / steps * pixels + at;
    }
}

/* Number of input channel groups that contribute to a group of sums. */
static int64_t conv_steps(const ek_nna_conv_args *p) {
    return p->depthwise ? 1 : p->in_groups;
}

static period_t conv_period(const job_t *job, int64_t number) {
    const ek_nna_conv_args *p = job->conv;
    const int8_t *w = p->w + number * TAPS * CHANNELS * CHANNELS;
    const int64_t tiles = p->out_height * parts(p->out_width, job->points);
    const int first = number % conv_steps(p) == 0;
    return (period_t){w, TAPS, first, (int)p->stride, tiles};
}

static void conv_tile(const job_t *job, int64_t number, int64_t index, tile_t *tile) {
    const ek_nna_conv_args *p = job->conv;
    const int points = job->points;
    const int64_t strips = parts(p->out_width, points), steps = conv_steps(p);
    const int64_t y = index / strips, left = index % strips * points;
    const int8_t *image = p->x + number % p->in_groups * p->height * p->width * CHANNELS;
    int32_t *sums = p->sums + (number / steps * p->out_height + y) * p->out_width * CHANNELS;
    tile->rows = 3;
    tile->columns = (int)((points - 1) * p->stride + 4) / 2 * 2;
    tile->outputs = (int)ek_min(p->out_width - left, points);
    for (int row = 0; row < 3; row++)
        for (int column = 0; column < tile->columns; column++) {
            const int64_t x = left * p->stride + column;
            const int8_t *pixel = image + ((y * p->stride + row) * p->width + x) * CHANNELS;
            tile->pixel[row][column] = x < p->width ? pixel : NULL;
        }
    for (int i = 0; i < tile->outputs; i++) {
        tile->point[i] = i;
        tile->sums[i] = sums + (left + i) * CHANNELS;
    }
}

static period_t period_at(job_t *job, int64_t number) {
    if (job->matmul)
        return matmul_period(job, number);
    return job->conv ? conv_period(job, number) : pointwise_period(job, number);
}

static void tile_at(const job_t *job, int64_t number, int64_t index, tile_t *tile) {
    if (job->matmul)
        matmul_tile(job, number, index, tile);
    else if (job->conv)
        conv_tile(job, number, index, tile);
    else
        pointwise_tile(job, number, index, tile);
}

/* Pairs of rows of a weight set, and their destination set. */
typedef struct {
    const int8_t *rows;
    int64_t count;
    int set;
} pairs_t;

EK_INLINE void load_pairs(machine_t *m, const int timed, int reg, pairs_t pairs) {
    for (int64_t i = 0; i < pairs.count; i++) {
        la(m, timed, reg + (int)i, 0, pairs.rows + i * 2 * CHANNELS);
        la(m, timed, reg + (int)i, 1, pairs.rows + i * 2 * CHANNELS + CHANNELS);
    }
}

/* `reg`: the first register that holds them. */
EK_INLINE void write_pairs(machine_t *m, const int timed, int reg, pairs_t pairs) {
    for (int64_t i = 0; i < pairs.count; i++)
        nndww(m, timed, pairs.set, reg + (int)i);
}

static pairs_t pairs_of(const period_t *period, int set) {
    return (pairs_t){period->weights, (int64_t)period->taps * CHANNELS / 2, set};
}

static pairs_t pairs_from(pairs_t pairs, int64_t start, int64_t most) {
    return (pairs_t){pairs.rows + start * 2 * CHANNELS, ek_min(pairs.count - start, most),
                     pairs.set};
}

EK_INLINE void load_weights(machine_t *m, const int timed, pairs_t pairs) {
    for (int64_t start = 0; start < pairs.count; start += BATCH) {
        const pairs_t batch = pairs_from(pairs, start, BATCH);
        load_pairs(m, timed, 0, batch);
        write_pairs(m, timed, 0, batch);
    }
}

EK_INLINE void fill(machine_t *m, const int timed, int fram, const tile_t *tile, pairs_t ahead) {
    nncfg(m, timed, &m->jump, tile->columns);
    int i = 0;
    for (int row = 0; row < tile->rows; row++)
        for (int column = 0; column < tile->columns; column++, i++)
            if (tile->pixel[row][column])
                la(m, timed, i / 2, i % 2, tile->pixel[row][column]);
    const int count = i / 2;
    const pairs_t fitting = pairs_from(ahead, 0, REGISTERS - count);
    load_pairs(m, timed, count, fitting);
    for (int reg = 0; reg < count; reg++)
        nndwf(m, timed, fram, reg);
    write_pairs(m, timed, count, fitting);
    load_weights(m, timed, pairs_from(ahead, fitting.count, ahead.count));
}

static int64_t fill_cost(const tile_t *tile) {
    int64_t cost = tile->rows * tile->columns / 2;
    for (int row = 0; row < tile->rows; row++)
        for (int column = 0; column < tile->columns; column++)
            cost += tile->pixel[row][column] != NULL;
    return cost;
}

static int64_t read_cost(const tile_t *tile, int first) {
    return tile->outputs * (first ? 6 : 12);
}

/* Distributes a period's instructions evenly over its MACs. */
typedef struct {
    int64_t total, sum, fill, read; /* of the period; so far; of the first tile; of the last tile */
    int64_t done, pairs, tiles;
} shares_t;

static shares_t begin_shares(const job_t *job, const period_t *period, int64_t number,
                             int64_t pairs) {
    shares_t s = {.total = 3 * pairs, .pairs = pairs, .tiles = period->tiles};
    for (int64_t i = 0; i < s.tiles; i++) {
        tile_t tile;
        tile_at(job, number, i, &tile);
        s.read = read_cost(&tile, period->first);
        s.total += s.read + fill_cost(&tile);
        if (i == 0)
            s.fill = fill_cost(&tile);
    }
    return s;
}

/* Number of pairs of the next weights to write until the end of tile `index`. */
static int64_t next_share(shares_t *s, const job_t *job, int64_t number, int64_t index,
                          int64_t read) {
    int64_t filled = s->fill;
    if (index + 1 < s->tiles) {
        tile_t next;
        tile_at(job, number, index + 1, &next);
        filled = fill_cost(&next);
    }
    s->sum += s->read + filled;
    s->read = read;
    const int64_t level = s->total * (index + 1) / s->tiles - s->sum;
    const int64_t wanted = level < 0 ? 0 : level / 3;
    s->done = ek_min(ek_max(wanted, s->done), s->pairs);
    return s->done;
}

EK_INLINE void read_back(machine_t *m, const int timed, int fram, const tile_t *tile, int first) {
    const int count = 2 * tile->outputs;
    for (int i = 0; !first && i < count; i++) {
        const int32_t *sums = tile->sums[i / 2] + i % 2 * 16;
        la(m, timed, count + i, 0, sums);
        la(m, timed, count + i, 1, sums + 8);
    }
    for (int i = 0; i < count; i++)
        nndrdocb(m, timed, i, fram, tile->point[i / 2], i % 2);
    for (int i = 0; !first && i < count; i++)
        add(m, timed, i, i, count + i);
    for (int i = 0; i < count; i++) {
        int32_t *sums = tile->sums[i / 2] + i % 2 * 16;
        sa(m, timed, i, 0, sums);
        sa(m, timed, i, 1, sums + 8);
    }
}

EK_INLINE void run(machine_t *m, const int timed, job_t *job) {
    const int sets = m->chip.weight_sets;
    tile_t tiles[FRAMS];
    int fram = 0, used = 0, pending = 0, first = 0;
    period_t period = period_at(job, 0), following = period;
    nncfg(m, timed, &m->stride, period.stride);
    load_weights(m, timed, pairs_of(&period, used));
    pairs_t ahead = {period.weights, 0, 0};
    for (int64_t number = 0; number < job->periods; number++) {
        pairs_t coming = {period.weights, 0, 0};
        const int more = number + 1 < job->periods;
        if (more) {
            following = period_at(job, number + 1);
            if (sets == 2)
                coming = pairs_of(&following, 1 - used);
        }
        nncfg(m, timed, &m->stride, period.stride);
        shares_t shares = begin_shares(job, &period, number, coming.count);
        for (int64_t i = 0, begin = 0; i < period.tiles; i++, begin = shares.done) {
            tile_t *tile = &tiles[fram];
            tile_at(job, number, i, tile);
            fill(m, timed, fram, tile, ahead);
            nncfg(m, timed, &m->mask, (1 << period.taps) - 1);
            nnmacg(m, timed, fram, used, tile->point, tile->outputs);
            if (pending)
                read_back(m, timed, 1 - fram, &tiles[1 - fram], first);
            pending = 1;
            first = period.first;
            const int64_t end = next_share(&shares, job, number, i, read_cost(tile, first));
            ahead = pairs_from(coming, begin, end - begin);
            fram = 1 - fram;
        }
        if (more && sets == 1)
            load_weights(m, timed, pairs_of(&following, used));
        used = (used + 1) % sets;
        period = following;
    }
    read_back(m, timed, 1 - fram, &tiles[1 - fram], first);
}

static void start(const ek_nna_chip *chip, job_t *job, ek_nna_report *report) {
    machine_t machine = {.chip = *chip, .report = report, .stride = 1};
    if (!report->counters) {
        run(&machine, 0, job);
        return;
    }
    run(&machine, 1, job);
    report->counters->overlapped = machine.now[OVERLAPPED];
    report->counters->serial = machine.now[SERIAL];
    report->counters->load = machine.now[LOAD];
}

/* Channels beyond the last multiple of 32, computed without the NNA. */
static void multiply_tail(const ek_nna_matmul_args *p) {
    const int64_t rest = p->n % CHANNELS;
    for (int64_t i = 0; rest && i < p->m; i++) {
        uint32_t sums[CHANNELS] = {0}; /* unsigned: sums wrap around */
        for (int64_t j = 0; j < p->k; j++)
            for (int64_t c = 0; c < rest; c++)
                sums[c] += (uint32_t)(p->a[i * p->k + j] * p->tail[j * rest + c]);
        memcpy(p->sums + i * p->n + p->n - rest, sums, (size_t)rest * sizeof *sums);
    }
}

void ek_nna_matmul(const ek_nna_chip *chip, const ek_nna_matmul_args *args, ek_nna_report *report) {
    const int64_t groups = args->n / CHANNELS;
    job_t job = {
        .matmul = args, .points = chip->output_points, .periods = args->m * parts(args->k, TAPS)};
    if (groups)
        start(chip, &job, report);
    multiply_tail(args);
}

void ek_nna_conv(const ek_nna_chip *chip, const ek_nna_conv_args *args, ek_nna_report *report) {
    job_t job = {.conv = args,
                 .points = chip->output_points,
                 .periods = args->out_groups * conv_steps(args)};
    start(chip, &job, report);
}

void ek_nna_pointwise(const ek_nna_chip *chip, const ek_nna_pointwise_args *args,
                      ek_nna_report *report) {
    job_t job = {.pointwise = args,
                 .points = chip->output_points,
                 .periods = args->out_groups * parts(args->in_groups, TAPS)};
    start(chip, &job, report);
}
