// Stores: a buffer that gathers them by line, and complete lines that are written without a read.
#include "memory.h"

enum { MAX_WRITE_BACKLOG = 256 }; // cycles
static const uint64_t FULL_LINE = ~(uint64_t)0;

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// Writes a complete line below the first level; returns the cycle in which it left.
static uint64_t write_below(struct ek_memory *m, uint64_t line, uint64_t now, bool beyond) {
    now = ek_second_road(m, now);
    struct ek_line *below = ek_cache_find(m->l2, line);
    if (below)
        below->dirty = 1;
    else if (beyond)
        ek_write_out(m, now);
    else
        ek_put(m, m->l2, line, now, EK_BOUND_STORES)->dirty = 1;
    return later(now, m->written > MAX_WRITE_BACKLOG ? m->written - MAX_WRITE_BACKLOG : 0);
}

static uint64_t read_line(struct ek_memory *m, uint64_t line, uint64_t now) {
    uint8_t from;
    struct ek_pending *miss = ek_free_miss(m, &now);
    uint64_t ready = ek_from_below(m, line, now, &from);
    *miss = (struct ek_pending){line, ready};
    ek_put(m, &m->l1d, line, ready, from)->dirty = 1;
    if (m->core->prefetch.stores)
        ek_follow(m, line, now, true);
    return ready;
}

// Evicts an entry from the buffer; returns the cycle in which it is free.
static uint64_t leave(struct ek_memory *m, struct ek_writing *entry, uint64_t now) {
    const struct ek_core *core = m->core;
    uint64_t line = entry->line - 1, full = entry->bytes == FULL_LINE, free = entry->free;
    if (entry->missed)
        m->run = full ? m->run + 1 : 0;
    if (entry->open && full) {
        free = write_below(m, line, now, core->stores.beyond && m->run >= core->stores.beyond);
    } else if (entry->open)
        free = read_line(m, line, now);
    entry->line = 0;
    entry->open = false;
    return free;
}

uint64_t ek_settle_store(struct ek_memory *m, uint64_t line, uint64_t now) {
    for (uint32_t i = 0; i < m->core->stores.buffer && i < EK_MAX_BUFFER; i++)
        if (m->writing[i].line == line + 1 && m->writing[i].open) {
            m->run = 0;
            return later(now, leave(m, &m->writing[i], now));
        }
    return now;
}

// An open entry waits for the rest of its line only for a limited time.
static void close_expired(struct ek_memory *m, struct ek_writing *entry, uint64_t now) {
    uint64_t until = entry->last + m->stalled + m->core->stores.gather;
    if (!entry->open || entry->bytes == FULL_LINE || until >= now || m->shared->untimed)
        return;
    entry->free = later(read_line(m, entry->line - 1, until), m->last_drain);
    entry->open = false;
    m->run = 0;
    entry->missed = false;
}

// Starts a new entry at `now`; returns the cycle in which its data is in a cache, unless open.
static uint64_t enter(struct ek_memory *m, struct ek_writing *entry, uint64_t line, uint64_t now) {
    struct ek_line *found = ek_cache_find(&m->l1d, line);
    if (found && found->dirty)
        return later(now, found->ready);
    now = ek_ask_others(m, line, now, true);
    if (found) {
        found->dirty = 1;
        return later(now, found->ready);
    }
    entry->missed = true;
    entry->open = m->core->stores.stream && m->run >= m->core->stores.stream;
    return entry->open ? now : read_line(m, line, now);
}

static uint64_t bytes_of(unsigned within, unsigned count) {
    uint64_t all = count >= 64 ? FULL_LINE : ((uint64_t)1 << count) - 1;
    return all << within;
}

// Finds or creates the entry for a line; sets `go` to the cycle in which it was available.
static struct ek_writing *entry_of(struct ek_memory *m, uint64_t line, uint64_t now, uint32_t size,
                                   uint64_t *go) {
    for (uint32_t i = 0; i < size; i++) {
        struct ek_writing *own = &m->writing[i];
        if (own->line != line + 1)
            continue;
        close_expired(m, own, now);
        if (own->open || own->free > now || m->shared->untimed)
            return own;
    }
    struct ek_writing *entry = &m->writing[m->buffered++ % size];
    if (entry->line) {
        close_expired(m, entry, now);
        entry->free = leave(m, entry, now);
    }
    *go = later(*go, entry->free);
    *entry = (struct ek_writing){.line = line + 1};
    uint64_t there = enter(m, entry, line, *go);
    uint64_t busy = there > *go ? m->core->stores.miss : 0;
    m->last_drain = later(m->last_drain + m->core->stores.drain + busy, *go);
    entry->free = later(m->last_drain, there);
    return entry;
}

uint64_t ek_store(struct ek_memory *m, uint64_t address, unsigned bytes, uint64_t now,
                  uint8_t *bound) {
    *bound = EK_BOUND_STORES;
    uint64_t physical = ek_translate(m, address, &now), go = now, begin = now;
    uint32_t size = m->core->stores.buffer;
    if (size == 0 || size > EK_MAX_BUFFER)
        size = EK_MAX_BUFFER;
    for (unsigned done = 0; done < bytes;) {
        unsigned within = (address + done) & 63, part = 64 - within;
        part = part < bytes - done ? part : bytes - done;
        struct ek_writing *entry = entry_of(m, (physical + done) / 64, go, size, &go);
        entry->bytes |= bytes_of(within, part);
        m->stalled += go - begin;
        entry->last = go - m->stalled;
        begin = go;
        done += part;
    }
    return go;
}
