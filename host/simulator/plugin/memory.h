// Memory as seen by cores: caches, TLBs, prefetchers, store buffers and DRAM. Each line records
// the cycle from which its data is available, so an access is a single lookup.
#ifndef EK_MEMORY_H
#define EK_MEMORY_H

#include "core.h"

struct ek_line {
    uint64_t tag;   // line number + 1; 0: empty
    uint64_t ready; // cycle
    uint32_t used;  // for LRU
    uint8_t dirty, from;
};

struct ek_cache {
    uint32_t sets, ways, latency;
    bool random;
    uint32_t clock, seed;
    struct ek_line *lines;
};

enum { EK_RECENTLY = 2000 }; // cycles: twice the maximum skew between threads
enum { EK_BUCKETS = 4096, EK_BUCKET = 64, EK_MAX_CORES = 64 };

// Usage of a link to memory per 64 cycles, because threads book out of order.
struct ek_road {
    uint32_t line; // 1/256 cycles
    uint64_t at[EK_BUCKETS];
    uint32_t taken[EK_BUCKETS];
};

struct ek_pages { // physical pages are assigned on first touch, so every run has the same layout
    uint64_t *page;
    uint32_t *frame;
    uint32_t size, count;
};

// State shared by all cores of a model.
struct ek_shared {
    const struct ek_core *core;
    struct ek_cache l2, l3;
    struct ek_road dram, writes;
    struct ek_pages pages;
    struct ek_memory *member[EK_MAX_CORES];
    unsigned members;
    bool untimed; // warming up: contents change without taking time
};

struct ek_stream {
    uint64_t line; // last one seen
    int64_t step;
    uint32_t used, run;
};

struct ek_pending { // lines in transit
    uint64_t line, ready;
};

// A store buffer entry: stores to one line.
struct ek_writing {
    uint64_t line;  // + 1; 0: none
    uint64_t bytes; // bit set of bytes written before the line arrived
    uint64_t free;  // cycle from which the entry can take another line
    uint64_t last;  // time of the last store, not counting cycles stalled by a full buffer
    bool missed;    // its line was not in the cache
    bool open;      // its line is not read, and written when the entry is needed
};

enum { EK_MAX_MISSES = 64, EK_MAX_STREAMS = 32, EK_MAX_BUFFER = 64, EK_RECENT = 256 };

struct ek_memory {
    const struct ek_core *core;
    struct ek_shared *shared;
    struct ek_cache l1d, l1i, own_l2, *l2;
    struct ek_road road, second; // links to DRAM, and between first and second level
    struct ek_pending miss[EK_MAX_MISSES];
    struct ek_stream stream[EK_MAX_STREAMS], candidate[EK_MAX_STREAMS];
    struct ek_writing writing[EK_MAX_BUFFER];
    uint64_t buffered;   // number of lines that entered the store buffer
    uint64_t last_drain; // when the last one left it
    uint64_t stalled;    // cycles for which stores waited for it
    uint64_t written;    // when the last write-back is on the link
    uint32_t run;        // consecutive lines that were completely written before being read
    uint64_t first_page[EK_MAX_MISSES]; // first-level TLB
    uint32_t first_used[EK_MAX_MISSES];
    uint64_t *second_page;
    uint32_t clock, second_clock;
    struct {
        uint64_t page, address;
        uint32_t slot;
    } recent[EK_RECENT];
    uint64_t code_line, code_ready;
    uint64_t asked; // when it last accessed DRAM
};

bool ek_shared_start(struct ek_shared *shared, const struct ek_core *core);
bool ek_memory_start(struct ek_memory *memory, struct ek_shared *shared);

// A load at cycle `now`: returns the cycle in which its data is usable; `latency` is a hit's. Sets
// `bound` to the cause of the delay, and `go` to the cycle in which the next load can be issued.
uint64_t ek_load(struct ek_memory *memory, uint64_t address, unsigned bytes, uint64_t now,
                 unsigned latency, uint8_t *bound, uint64_t *go);
// A store: returns the cycle in which the pipeline continues, after `now` if the buffer is full.
uint64_t ek_store(struct ek_memory *memory, uint64_t address, unsigned bytes, uint64_t now,
                  uint8_t *bound);
// A software prefetch: returns the cycle in which the pipeline continues.
uint64_t ek_prefetch(struct ek_memory *memory, uint64_t address, uint64_t now);
// Instructions in [address, address + bytes): returns the cycle from which they are available.
uint64_t ek_fetch(struct ek_memory *memory, uint64_t address, unsigned bytes, uint64_t now,
                  uint8_t *bound);

// Shared by loads and stores.
uint64_t ek_translate(struct ek_memory *memory, uint64_t address, uint64_t *now);
struct ek_line *ek_put(struct ek_memory *memory, struct ek_cache *cache, uint64_t line,
                       uint64_t ready, uint8_t from);
uint64_t ek_from_below(struct ek_memory *memory, uint64_t line, uint64_t now, uint8_t *from);
struct ek_pending *ek_free_miss(struct ek_memory *memory, uint64_t *now);
void ek_follow(struct ek_memory *memory, uint64_t line, uint64_t now, bool missed);
uint64_t ek_ask_others(struct ek_memory *memory, uint64_t line, uint64_t now, bool write);
uint64_t ek_second_road(struct ek_memory *memory, uint64_t now);
// Writes a line to DRAM.
void ek_write_out(struct ek_memory *memory, uint64_t now);
// Called when a load misses a line: an open store buffer entry for it must leave first.
uint64_t ek_settle_store(struct ek_memory *memory, uint64_t line, uint64_t now);

// cache.c
bool ek_cache_start(struct ek_cache *cache, const struct ek_shape *shape);
struct ek_line *ek_cache_find(struct ek_cache *cache, uint64_t line);
struct ek_line *ek_cache_victim(struct ek_cache *cache, uint64_t line);
uint64_t ek_road_book(struct ek_road *road, uint64_t now);
uint64_t ek_road_take(struct ek_road *road, uint32_t amount, uint64_t now);
uint64_t ek_physical(struct ek_pages *pages, uint64_t address);

#endif
