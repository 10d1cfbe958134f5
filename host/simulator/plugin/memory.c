// Loads, stores, prefetches and fetches through the memory hierarchy.
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

bool ek_shared_start(struct ek_shared *shared, const struct ek_core *core) {
    memset(shared, 0, sizeof *shared);
    shared->core = core;
    shared->dram.line = core->dram.line;
    shared->writes.line = core->dram.write_line;
    return (core->l2.per_core || ek_cache_start(&shared->l2, &core->l2)) &&
           ek_cache_start(&shared->l3, &core->l3);
}

bool ek_memory_start(struct ek_memory *m, struct ek_shared *shared) {
    const struct ek_core *core = shared->core;
    memset(m, 0, sizeof *m);
    m->core = core;
    m->shared = shared;
    m->l2 = core->l2.per_core ? &m->own_l2 : &shared->l2;
    m->road.line = core->dram.core_line;
    m->second_page = calloc(core->tlb.second, sizeof *m->second_page);
    if (shared->members == EK_MAX_CORES || !m->second_page)
        return false;
    shared->member[shared->members++] = m;
    return ek_cache_start(&m->l1d, &core->l1d) && ek_cache_start(&m->l1i, &core->l1i) &&
           (m->l2 == &shared->l2 || ek_cache_start(m->l2, &core->l2));
}

// Translates to a physical address; adds the cost of the translation to `now`.
uint64_t ek_translate(struct ek_memory *m, uint64_t address, uint64_t *now) {
    uint64_t page = address >> 12;
    uint32_t recent = page % EK_RECENT;
    if (m->recent[recent].page != page + 1) {
        m->recent[recent].page = page + 1;
        m->recent[recent].address = ek_physical(&m->shared->pages, address) & ~(uint64_t)4095;
    }
    uint64_t physical = m->recent[recent].address | (address & 4095);
    uint32_t slot = m->recent[recent].slot, entries = m->core->tlb.entries;
    if (m->first_page[slot] != page + 1)
        for (slot = 0; slot < entries && m->first_page[slot] != page + 1; slot++)
            ;
    if (slot == entries) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < entries; i++)
            if ((int32_t)(m->first_used[i] - m->first_used[oldest]) < 0)
                oldest = i;
        slot = oldest;
        m->first_page[slot] = page + 1;
        uint32_t ways = m->core->tlb.ways, way = 0, sets = m->core->tlb.second / ways;
        uint64_t *set = m->second_page + page % sets * ways;
        while (way < ways && set[way] != page + 1)
            way++;
        if (way == ways) {
            set[m->second_clock++ % ways] = page + 1;
            *now += m->core->tlb.walk;
        }
        *now += m->core->tlb.penalty;
    }
    m->recent[recent].slot = slot;
    m->first_used[slot] = ++m->clock;
    return physical;
}

// DRAM time lost on a line to contention from other cores. Assuming equal demand, the probability
// that the previous line was another core's, so that its row is not open.
static uint32_t turn(struct ek_memory *m, uint64_t now) {
    uint32_t others = 0;
    for (unsigned i = 0; i < m->shared->members; i++) {
        const struct ek_memory *other = m->shared->member[i];
        bool recent = other->asked + EK_RECENTLY > now && now + EK_RECENTLY > other->asked;
        others += other != m && other->asked && recent;
    }
    m->asked = now;
    return m->core->dram.turn * others / (others + 1);
}

void ek_write_out(struct ek_memory *m, uint64_t now) {
    m->written = now;
    if (m->shared->untimed)
        return;
    uint32_t more = turn(m, now);
    struct ek_road *dram = &m->shared->dram, *writes = &m->shared->writes;
    m->written = later(ek_road_take(dram, dram->line + more, now),
                       ek_road_take(writes, writes->line + more, now));
}

// A line's transfer from the second level to the first: the cycle in which it starts.
static uint64_t up(struct ek_memory *m, uint64_t now) {
    return m->shared->untimed ? now : ek_road_take(&m->second, m->core->l2.line * 256, now);
}

// Likewise, from the first level to the second.
uint64_t ek_second_road(struct ek_memory *m, uint64_t now) {
    return m->shared->untimed ? now : ek_road_take(&m->second, m->core->l2.out * 256, now);
}

// Evicts a modified line from a cache.
static void write_back(struct ek_memory *m, struct ek_cache *from, uint64_t line, uint64_t now) {
    struct ek_cache *next = from == &m->l1d ? m->l2 : &m->shared->l3;
    struct ek_line *found = from != &m->shared->l3 && next->sets ? ek_cache_find(next, line) : NULL;
    if (from == &m->l1d)
        ek_second_road(m, now);
    if (found)
        found->dirty = 1;
    else if (from == &m->l1d)
        write_back(m, m->l2, line, now);
    else
        ek_write_out(m, now);
}

struct ek_line *ek_put(struct ek_memory *m, struct ek_cache *cache, uint64_t line, uint64_t ready,
                       uint8_t from) {
    struct ek_line *victim = ek_cache_victim(cache, line);
    if (victim->tag && victim->dirty)
        write_back(m, cache, victim->tag - 1, ready);
    *victim = (struct ek_line){line + 1, ready, ++cache->clock, 0, from};
    return victim;
}

static uint64_t from_dram(struct ek_memory *m, uint64_t now) {
    if (m->shared->untimed)
        return now;
    struct ek_road *dram = &m->shared->dram;
    uint64_t begin = ek_road_take(dram, dram->line + turn(m, now), now);
    return later(begin, ek_road_book(&m->road, now)) + m->core->dram.latency;
}

// Brings a line from beyond L2 into the levels below L1; returns when, and from which level.
static uint64_t into_second(struct ek_memory *m, uint64_t line, uint64_t now, uint8_t *from) {
    struct ek_line *found;
    struct ek_cache *l3 = &m->shared->l3;
    uint64_t ready;
    if (l3->sets && (found = ek_cache_find(l3, line))) {
        bool waits = found->ready > now + l3->latency;
        *from = waits ? EK_BOUND_DRAM : EK_BOUND_L3;
        ready = later(now + l3->latency, found->ready);
    } else {
        *from = EK_BOUND_DRAM;
        ready = from_dram(m, now);
        if (l3->sets)
            ek_put(m, l3, line, ready, *from);
    }
    ek_put(m, m->l2, line, ready, *from);
    return ready;
}

// Brings a line from beyond L1 into the levels below it; returns when, and from which level.
uint64_t ek_from_below(struct ek_memory *m, uint64_t line, uint64_t now, uint8_t *from) {
    struct ek_line *found = ek_cache_find(m->l2, line);
    if (!found)
        return up(m, into_second(m, line, now, from));
    now = up(m, now);
    bool waits = found->ready > now + m->l2->latency;
    *from = waits ? found->from : EK_BOUND_L2;
    return later(now + m->l2->latency, found->ready);
}

// The miss slot that is free first, advancing `now` to that cycle.
struct ek_pending *ek_free_miss(struct ek_memory *m, uint64_t *now) {
    struct ek_pending *first = m->miss;
    for (uint32_t i = 0; i < m->core->misses && i < EK_MAX_MISSES; i++) {
        if (m->miss[i].ready <= *now)
            return &m->miss[i];
        if (m->miss[i].ready < first->ready)
            first = &m->miss[i];
    }
    *now = first->ready;
    return first;
}

static void fetch_line(struct ek_memory *m, uint64_t line, uint64_t now, bool to_l1) {
    uint8_t from;
    if (ek_cache_find(to_l1 ? &m->l1d : m->l2, line))
        return;
    if (!to_l1) {
        into_second(m, line, now, &from);
        return;
    }
    uint64_t ready = ek_from_below(m, line, now, &from);
    ek_put(m, &m->l1d, line, ready, from);
}

// Prefetches missing lines ahead of a stream, within its page.
static void prefetch_stream(struct ek_memory *m, const struct ek_stream *s, uint64_t now) {
    uint64_t lines = m->core->prefetch.page / 64, line = s->line;
    uint64_t near = m->core->prefetch.distance, far = near + m->core->prefetch.second;
    for (uint64_t k = s->run > far ? far : 1; k <= far && k <= s->run; k++) {
        uint64_t next = line + (uint64_t)(s->step * (int64_t)k);
        if (next / lines == line / lines)
            fetch_line(m, next, now, k <= near);
    }
    if (s->run > near && near && (line + near) / lines == line / lines && far > near)
        fetch_line(m, line + (uint64_t)(s->step * (int64_t)near), now, true);
}

static struct ek_stream *place_of(struct ek_stream *streams, uint32_t count, uint64_t line,
                                  bool *found) {
    struct ek_stream *oldest = streams;
    for (uint32_t i = 0; i < count; i++) {
        struct ek_stream *s = &streams[i];
        int64_t step = (int64_t)(line - s->line);
        *found = step == 0 || step == 1 || (step == -1 && (s->run == 0 || s->step == -1));
        if (*found)
            return s;
        if ((int32_t)(s->used - oldest->used) < 0)
            oldest = s;
    }
    *found = false;
    return oldest;
}

// Continues a stream with an adjacent line; false if it is the same line.
static bool continue_stream(struct ek_memory *m, struct ek_stream *s, uint64_t line) {
    int64_t step = (int64_t)(line - s->line);
    if (step == 0)
        return false;
    s->run = s->step == step ? s->run + 1 : 1;
    s->step = step;
    s->line = line;
    s->used = ++m->clock;
    return true;
}

// Notifies the prefetcher of a line that was missed or accessed for the first time.
void ek_follow(struct ek_memory *m, uint64_t line, uint64_t now, bool missed) {
    uint32_t streams = m->core->prefetch.streams, apart = m->core->prefetch.apart;
    bool found;
    if (streams == 0)
        return;
    struct ek_stream *s = place_of(m->stream, streams, line, &found);
    if (found) {
        if (continue_stream(m, s, line) && s->run >= m->core->prefetch.confirm)
            prefetch_stream(m, s, now);
    } else if (apart == 0) {
        *s = (struct ek_stream){line, 0, ++m->clock, 0};
    } else if (missed) {
        struct ek_stream *c = place_of(m->candidate, apart, line, &found);
        if (!found) {
            *c = (struct ek_stream){line, 0, ++m->clock, 0};
        } else if (continue_stream(m, c, line) && c->run >= m->core->prefetch.confirm) {
            *s = *c;
            *c = (struct ek_stream){0};
            prefetch_stream(m, s, now);
        }
    }
}

// Coherence between threads: other cores' L1 forward a modified line, and invalidate it on writes.
uint64_t ek_ask_others(struct ek_memory *m, uint64_t line, uint64_t now, bool write) {
    if (m->shared->members == 1)
        return now;
    for (unsigned i = 0; i < m->shared->members; i++) {
        struct ek_memory *other = m->shared->member[i];
        struct ek_line *found = other == m ? NULL : ek_cache_find(&other->l1d, line);
        if (!found)
            continue;
        if (found->dirty) {
            now = later(now, found->ready) + m->core->l2.latency;
            write_back(other, &other->l1d, line, now);
            found->dirty = 0;
        }
        if (write)
            found->tag = 0;
    }
    return now;
}

static uint64_t load_line(struct ek_memory *m, uint64_t line, bool first, uint64_t now,
                          uint8_t *from, uint64_t *go) {
    struct ek_line *found = ek_cache_find(&m->l1d, line);
    if (found) {
        if (first)
            ek_follow(m, line, now, false);
        *from = found->ready > now ? found->from : EK_BOUND_L1;
        return later(now, found->ready);
    }
    now = ek_ask_others(m, line, now, false);
    now = ek_settle_store(m, line, now);
    struct ek_pending *miss = ek_free_miss(m, &now);
    uint64_t ready = ek_from_below(m, line, now, from);
    *miss = (struct ek_pending){line, ready};
    ek_put(m, &m->l1d, line, ready, *from);
    ek_follow(m, line, now, true);
    *go = now;
    return ready;
}

uint64_t ek_load(struct ek_memory *m, uint64_t address, unsigned bytes, uint64_t now,
                 unsigned latency, uint8_t *bound, uint64_t *go) {
    uint64_t begin = now;
    *go = now;
    *bound = EK_BOUND_L1;
    unsigned within = address & 63;
    uint64_t physical = ek_translate(m, address, &now), ready = now;
    if (now > begin)
        *bound = EK_BOUND_TLB;
    for (unsigned done = 0; done < bytes; done += 64 - within, within = 0) {
        if (done && ((address + done) & 4095) == 0)
            physical = ek_translate(m, address + done, &now) - done;
        uint8_t from;
        uint64_t there = load_line(m, (physical + done) / 64, within == 0, now, &from, go);
        if (there > ready) {
            ready = there;
            *bound = from;
        }
    }
    return ready + latency;
}

uint64_t ek_prefetch(struct ek_memory *m, uint64_t address, uint64_t now) {
    uint64_t line = ek_translate(m, address, &now) / 64;
    if (ek_cache_find(&m->l1d, line))
        return now;
    struct ek_pending *miss = ek_free_miss(m, &now);
    uint8_t from;
    uint64_t ready = ek_from_below(m, line, now, &from);
    *miss = (struct ek_pending){line, ready};
    ek_put(m, &m->l1d, line, ready, from);
    return now;
}

uint64_t ek_fetch(struct ek_memory *m, uint64_t address, unsigned bytes, uint64_t now,
                  uint8_t *bound) {
    uint64_t first = address / 64, last = (address + bytes - 1) / 64;
    *bound = EK_BOUND_FETCH;
    for (uint64_t line = first; line <= last; line++) {
        if (line + 1 == m->code_line)
            continue;
        m->code_line = line + 1;
        uint64_t begin = now;
        uint64_t physical = ek_physical(&m->shared->pages, line * 64) / 64;
        if (ek_cache_find(&m->l1i, physical))
            continue;
        uint8_t from;
        uint64_t ready = ek_from_below(m, physical, begin, &from);
        ek_put(m, &m->l1i, physical, ready, from);
        // the next line is fetched as well
        if (!ek_cache_find(&m->l1i, physical + 1) && (physical + 1) % 64)
            ek_put(m, &m->l1i, physical + 1, ek_from_below(m, physical + 1, begin, &from), from);
        now = later(now, ready);
    }
    return now;
}
