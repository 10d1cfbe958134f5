// Building blocks of the memory model: caches, bandwidth-limited links, physical pages.
#include <stdlib.h>
#include <string.h>

#include "memory.h"

bool ek_cache_start(struct ek_cache *cache, const struct ek_shape *shape) {
    cache->ways = shape->ways;
    cache->sets = shape->ways ? shape->bytes / 64 / shape->ways : 0;
    cache->latency = shape->latency;
    cache->random = shape->random != 0;
    cache->seed = 1;
    if (cache->sets == 0)
        return true; // this level does not exist
    cache->lines = calloc((size_t)cache->sets * cache->ways, sizeof *cache->lines);
    return cache->lines != NULL;
}

static struct ek_line *set_of(struct ek_cache *cache, uint64_t line) {
    return cache->lines + line % cache->sets * cache->ways;
}

struct ek_line *ek_cache_find(struct ek_cache *cache, uint64_t line) {
    struct ek_line *set = set_of(cache, line);
    for (uint32_t way = 0; way < cache->ways; way++)
        if (set[way].tag == line + 1) {
            set[way].used = ++cache->clock;
            return &set[way];
        }
    return NULL;
}

struct ek_line *ek_cache_victim(struct ek_cache *cache, uint64_t line) {
    struct ek_line *set = set_of(cache, line), *oldest = set;
    for (uint32_t way = 0; way < cache->ways; way++) {
        if (set[way].tag == 0)
            return &set[way];
        if ((int32_t)(set[way].used - oldest->used) < 0)
            oldest = &set[way];
    }
    if (!cache->random)
        return oldest;
    cache->seed = cache->seed * 1664525u + 1013904223u;
    return &set[(cache->seed >> 16) % cache->ways];
}

uint64_t ek_road_book(struct ek_road *road, uint64_t now) {
    return ek_road_take(road, road->line, now);
}

// Likewise, for `amount` 1/256 cycles.
uint64_t ek_road_take(struct ek_road *road, uint32_t amount, uint64_t now) {
    for (uint64_t bucket = now / EK_BUCKET;; bucket++) {
        uint32_t slot = bucket % EK_BUCKETS;
        if (road->at[slot] < bucket) {
            // the previous bucket's excess carries over into this one
            uint32_t before = (slot + EK_BUCKETS - 1) % EK_BUCKETS, rest = 0;
            if (bucket && road->at[before] == bucket - 1 && road->taken[before] > EK_BUCKET * 256)
                rest = road->taken[before] - EK_BUCKET * 256;
            road->at[slot] = bucket;
            road->taken[slot] = rest;
        }
        if (road->taken[slot] >= EK_BUCKET * 256)
            continue;
        uint64_t start = bucket * EK_BUCKET + road->taken[slot] / 256;
        road->taken[slot] += amount;
        return start > now ? start : now;
    }
}

static bool grow(struct ek_pages *pages) {
    struct ek_pages old = *pages;
    pages->size = old.size ? 2 * old.size : 1 << 14;
    pages->page = calloc(pages->size, sizeof *pages->page);
    pages->frame = calloc(pages->size, sizeof *pages->frame);
    if (!pages->page || !pages->frame)
        abort(); // like the emulator when out of memory
    for (uint32_t i = 0; i < old.size; i++) {
        if (old.page[i] == 0)
            continue;
        uint32_t slot = (uint32_t)(old.page[i] * 0x9E3779B97F4A7C15u >> 40) % pages->size;
        while (pages->page[slot])
            slot = (slot + 1) % pages->size;
        pages->page[slot] = old.page[i];
        pages->frame[slot] = old.frame[i];
    }
    free(old.page);
    free(old.frame);
    return true;
}

uint64_t ek_physical(struct ek_pages *pages, uint64_t address) {
    if (2 * pages->count >= pages->size)
        grow(pages);
    uint64_t page = (address >> 12) + 1;
    uint32_t slot = (uint32_t)(page * 0x9E3779B97F4A7C15u >> 40) % pages->size;
    while (pages->page[slot] && pages->page[slot] != page)
        slot = (slot + 1) % pages->size;
    if (pages->page[slot] == 0) {
        pages->page[slot] = page;
        pages->frame[slot] = ++pages->count;
    }
    return (uint64_t)pages->frame[slot] << 12 | (address & 4095);
}
