// Memory as cores see it: caches, translations, prefetchers, store buffers and DRAM.
// A line carries the cycle from which its data is there, so an access is one look-up.
#ifndef EK_MEMORY_H
#define EK_MEMORY_H

#include "core.h"

struct ek_line {
    uint64_t tag;   // line number + 1; 0: empty
    uint64_t ready; // cycle
    uint32_t used;  // order of use
    uint8_t dirty, from;
};

struct ek_cache {
    uint32_t sets, ways, latency;
    bool random;
    uint32_t clock, seed;
    struct ek_line *lines;
};

enum { EK_RECENTLY = 2000 }; // cycles: twice what threads run ahead of each other
enum { EK_BUCKETS = 4096, EK_BUCKET = 64, EK_MAX_CORES = 64 };

// How much of every 64 cycles is taken on a road to memory: threads book out of order.
struct ek_road {
    uint32_t line; // 1/256 cycles
    uint64_t at[EK_BUCKETS];
    uint32_t taken[EK_BUCKETS];
};

struct ek_pages { // a page gets the next physical one when it is first touched: the same every run
    uint64_t *page;
    uint32_t *frame;
    uint32_t size, count;
};

// What all cores of a model share.
struct ek_shared {
    const struct ek_core *core;
    struct ek_cache l2, l3;
    struct ek_road dram, writes;
    struct ek_pages pages;
    struct ek_memory *member[EK_MAX_CORES];
    unsigned members;
    bool untimed; // warming up: contents change, at no time
};

struct ek_stream {
    uint64_t line; // last one seen
    int64_t step;
    uint32_t used, run;
};

struct ek_pending { // lines that are on their way
    uint64_t line, ready;
};

// An entry of the store buffer: stores to one line.
struct ek_writing {
    uint64_t line;  // + 1; 0: none
    uint64_t bytes; // a set: those written before the line was there
    uint64_t free;  // cycle from which the entry takes another line
    uint64_t last;  // when the last of them came, but for cycles in which the buffer was full
    bool missed;    // its line is or was on its way
    bool open;      // its line is not read: it leaves when the entry is needed
};

enum { EK_MAX_MISSES = 64, EK_MAX_STREAMS = 32, EK_MAX_BUFFER = 64, EK_RECENT = 256 };

struct ek_memory {
    const struct ek_core *core;
    struct ek_shared *shared;
    struct ek_cache l1d, l1i, own_l2, *l2;
    struct ek_road road, second; // to DRAM, and between the first and the second level
    struct ek_pending miss[EK_MAX_MISSES];
    struct ek_stream stream[EK_MAX_STREAMS], candidate[EK_MAX_STREAMS];
    struct ek_writing writing[EK_MAX_BUFFER];
    uint64_t buffered;   // how many lines went through the store buffer
    uint64_t last_drain; // when the last one left it
    uint64_t stalled;    // cycles for which stores waited for it
    uint64_t written;    // when the last line that was written back is on the road
    uint32_t run;        // lines in a row that were written whole before they were there
    uint64_t first_page[EK_MAX_MISSES]; // first level of translations
    uint32_t first_used[EK_MAX_MISSES];
    uint64_t *second_page;
    uint32_t clock, second_clock;
    struct {
        uint64_t page, address;
        uint32_t slot;
    } recent[EK_RECENT];
    uint64_t code_line, code_ready;
    uint64_t asked; // when it wanted something of DRAM last
};

bool ek_shared_start(struct ek_shared *shared, const struct ek_core *core);
bool ek_memory_start(struct ek_memory *memory, struct ek_shared *shared);

// A load at cycle `now`: the cycle from which its data can be used; `latency` is that of a hit.
// `bound` becomes what it waited for, `go` the cycle in which the next load can be asked for.
uint64_t ek_load(struct ek_memory *memory, uint64_t address, unsigned bytes, uint64_t now,
                 unsigned latency, uint8_t *bound, uint64_t *go);
// A store: the cycle in which the pipeline can go on, later than `now` if the buffer is full.
uint64_t ek_store(struct ek_memory *memory, uint64_t address, unsigned bytes, uint64_t now,
                  uint8_t *bound);
// A hint of the program; the cycle in which the pipeline can go on.
uint64_t ek_prefetch(struct ek_memory *memory, uint64_t address, uint64_t now);
// Instructions at [address, address + bytes): the cycle from which they are there.
uint64_t ek_fetch(struct ek_memory *memory, uint64_t address, unsigned bytes, uint64_t now,
                  uint8_t *bound);

// What loads and stores share.
uint64_t ek_translate(struct ek_memory *memory, uint64_t address, uint64_t *now);
struct ek_line *ek_put(struct ek_memory *memory, struct ek_cache *cache, uint64_t line,
                       uint64_t ready, uint8_t from);
uint64_t ek_from_below(struct ek_memory *memory, uint64_t line, uint64_t now, uint8_t *from);
struct ek_pending *ek_free_miss(struct ek_memory *memory, uint64_t *now);
void ek_follow(struct ek_memory *memory, uint64_t line, uint64_t now, bool missed);
uint64_t ek_ask_others(struct ek_memory *memory, uint64_t line, uint64_t now, bool write);
uint64_t ek_second_road(struct ek_memory *memory, uint64_t now);
// A line goes to DRAM.
void ek_write_out(struct ek_memory *memory, uint64_t now);
// A load misses a line: what the store buffer holds of it leaves first.
uint64_t ek_settle_store(struct ek_memory *memory, uint64_t line, uint64_t now);

// cache.c
bool ek_cache_start(struct ek_cache *cache, const struct ek_shape *shape);
struct ek_line *ek_cache_find(struct ek_cache *cache, uint64_t line);
struct ek_line *ek_cache_victim(struct ek_cache *cache, uint64_t line);
uint64_t ek_road_book(struct ek_road *road, uint64_t now);
uint64_t ek_road_take(struct ek_road *road, uint32_t amount, uint64_t now);
uint64_t ek_physical(struct ek_pages *pages, uint64_t address);

#endif
