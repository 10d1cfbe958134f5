#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_CODE = 8 };

struct laps {
    struct ek_tally *lap;
    int32_t *stamp; // per lap, -1: none
    uint32_t count, capacity;
};

struct region {
    struct ek_tally total, thread[EK_MAX_THREADS];
    struct laps own, others; // of the region's own thread, and of the others
    uint32_t threads;
};

struct lacking {
    uint64_t count, address;
    uint8_t code[MAX_CODE], length;
    const char *feature;
};

static struct region *regions[EK_MAX_MODELS];
static struct lacking lacking[EK_MAX_MODELS];
static uint32_t count;
static struct ek_tally begin[EK_MAX_MODELS][EK_MAX_THREADS];
static struct lap_end {
    struct ek_tally end; // of the last lap, or the beginning of the region
    bool known, own;     // known: `end` is set
    uint32_t number;
} last[EK_MAX_MODELS][EK_MAX_THREADS];
static const char *const bounds[EK_BOUND_UNIT] = {
    "issue", "latency", "l1", "l2", "l3", "dram", "tlb", "stores", "branch", "fetch", "wait"};

static struct ek_tally tally_of(const struct ek_cpu *cpu) {
    struct ek_tally tally = {cpu->now, cpu->instructions, {0}};
    for (int i = 0; i < EK_BOUNDS; i++)
        tally.bound[i] = cpu->bound[i];
    return tally;
}

static struct ek_tally less(struct ek_tally a, const struct ek_tally *b) {
    a.cycles -= b->cycles;
    a.instructions -= b->instructions;
    for (int i = 0; i < EK_BOUNDS; i++)
        a.bound[i] -= b->bound[i];
    return a;
}

static void *grown(void *old, size_t bytes) {
    void *new = realloc(old, bytes);
    if (!new)
        abort();
    return new;
}

void ek_report_begin(const struct ek_thread *thread) {
    for (unsigned model = 0; model < ek_machine.models; model++) {
        for (unsigned i = 0; i < ek_machine.threads; i++) {
            const struct ek_thread *other = ek_machine.thread[i];
            begin[model][i] = (struct ek_tally){0};
            last[model][i].known = false;
            if (other && other->cpu[model])
                begin[model][i] = tally_of(other->cpu[model]);
        }
        last[model][thread->number].end = tally_of(thread->cpu[model]);
        last[model][thread->number].known = true;
        regions[model] = grown(regions[model], (count + 1) * sizeof **regions);
        regions[model][count] = (struct region){.threads = 0};
    }
    count++;
}

static uint32_t add_lap(struct laps *laps, struct ek_tally lap) {
    if (laps->count == laps->capacity) {
        laps->capacity = laps->capacity ? 2 * laps->capacity : 64;
        laps->lap = grown(laps->lap, laps->capacity * sizeof *laps->lap);
        laps->stamp = grown(laps->stamp, laps->capacity * sizeof *laps->stamp);
    }
    laps->stamp[laps->count] = -1;
    laps->lap[laps->count] = lap;
    return laps->count++;
}

void ek_report_lap(const struct ek_thread *thread, bool own) {
    for (unsigned model = 0; model < ek_machine.models && count; model++) {
        struct region *region = &regions[model][count - 1];
        struct lap_end *lap = &last[model][thread->number];
        struct ek_tally now = tally_of(thread->cpu[model]), none = {0};
        lap->number =
            add_lap(own ? &region->own : &region->others, lap->known ? less(now, &lap->end) : none);
        lap->own = own;
        lap->known = true;
        lap->end = now;
    }
}

void ek_report_stamp(const struct ek_thread *thread, int32_t index) {
    for (unsigned model = 0; model < ek_machine.models && count; model++) {
        struct region *region = &regions[model][count - 1];
        struct laps *laps = last[model][thread->number].own ? &region->own : &region->others;
        if (laps->count)
            laps->stamp[last[model][thread->number].number] = index;
    }
}

void ek_report_end(const struct ek_thread *thread) {
    for (unsigned model = 0; model < ek_machine.models && count; model++) {
        struct region *region = &regions[model][count - 1];
        for (unsigned i = 0; i < ek_machine.threads; i++) {
            const struct ek_thread *other = ek_machine.thread[i];
            if (!other || !other->cpu[model])
                continue;
            struct ek_tally now = tally_of(other->cpu[model]);
            struct ek_tally part = less(now, &begin[model][i]);
            part.cycles = 0; // its clock may have started within the region
            for (int b = 0; b < EK_BOUNDS; b++)
                part.cycles += part.bound[b];
            if (other == thread)
                region->total = part;
            if (part.instructions)
                region->thread[region->threads++] = part;
        }
    }
}

void ek_report_unknown(unsigned model, const struct ek_block *block,
                       const struct ek_variant *variant) {
    struct lacking *l = &lacking[model];
    const struct ek_insn *insn = &block->insn[variant->first_unknown];
    l->count += variant->unknown;
    if (l->length)
        return;
    uint32_t offset = 0;
    for (unsigned i = 0; i < variant->first_unknown; i++)
        offset += block->insn[i].length;
    l->address = block->pc + offset;
    l->length = insn->length < MAX_CODE ? insn->length : MAX_CODE;
    for (unsigned i = 0; i < l->length; i++)
        l->code[i] = block->code[offset + i];
    l->feature = insn->class == EK_CLASS_unknown ? "" : ek_feature_name(insn->feature);
}

static void write_tally(FILE *file, const struct ek_core *core, const struct ek_tally *tally) {
    fprintf(file, "\"cycles\": %" PRIu64 ", \"instructions\": %" PRIu64 ", \"bound\": {",
            tally->cycles, tally->instructions);
    const char *comma = "";
    for (unsigned i = 0; i < EK_BOUND_UNIT + core->units; i++) {
        if (tally->bound[i] == 0)
            continue;
        bool unit = i >= EK_BOUND_UNIT;
        fprintf(file, "%s\"%s%s\": %" PRIu64, comma, unit ? "unit:" : "",
                unit ? core->unit[i - EK_BOUND_UNIT].name : bounds[i], tally->bound[i]);
        comma = ", ";
    }
    fputc('}', file);
}

static void write_list(FILE *file, const struct ek_core *core, const char *name,
                       const struct ek_tally *list, uint32_t length) {
    fprintf(file, ", \"%s\": [", name);
    for (uint32_t i = 0; i < length; i++) {
        fputs(i ? ",\n  {" : "\n  {", file);
        write_tally(file, core, &list[i]);
        fputc('}', file);
    }
    fputc(']', file);
}

static void write_laps(FILE *file, const struct ek_core *core, const char *before,
                       const struct laps *laps) {
    char name[32];
    snprintf(name, sizeof name, "%slaps", before);
    write_list(file, core, name, laps->lap, laps->count);
    fprintf(file, ", \"%sstamps\": [", before);
    for (uint32_t i = 0; i < laps->count; i++)
        fprintf(file, "%s%d", i ? ", " : "", (int)laps->stamp[i]);
    fputc(']', file);
}

static void write_unknown(FILE *file, const struct lacking *l) {
    fprintf(file, "{\"count\": %" PRIu64, l->count);
    if (l->length) {
        fprintf(file, ", \"first\": {\"address\": \"0x%" PRIx64 "\", \"bytes\": \"", l->address);
        for (unsigned i = 0; i < l->length; i++)
            fprintf(file, "%02x", l->code[i]);
        fprintf(file, "\", \"feature\": \"%s\"}", l->feature);
    }
    fputc('}', file);
}

bool ek_report_write(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    uint64_t instructions = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t t = 0; t < regions[0][i].threads; t++)
            instructions += regions[0][i].thread[t].instructions;
    fprintf(file,
            "{\"schema\": \"edgekit.boardtime.run/1\", \"instructions\": %" PRIu64
            ", \"regions_seen\": %u, \"unknown\": ",
            instructions, count);
    write_unknown(file, &lacking[0]);
    fputs(", \"cores\": [", file);
    for (unsigned model = 0; model < ek_machine.models; model++) {
        const struct ek_core *core = &ek_machine.model[model]->core;
        fprintf(file, "%s\n{\"name\": \"%s\", \"unknown\": ", model ? "," : "", core->name);
        write_unknown(file, &lacking[model]);
        fputs(", \"regions\": [", file);
        for (uint32_t i = 0; i < count; i++) {
            const struct region *region = &regions[model][i];
            fputs(i ? ",\n {" : "\n {", file);
            write_tally(file, core, &region->total);
            write_laps(file, core, "", &region->own);
            write_laps(file, core, "other_", &region->others);
            write_list(file, core, "threads", region->thread, region->threads);
            fputc('}', file);
        }
        fputs("]}", file);
    }
    fputs("]}\n", file);
    return fclose(file) == 0;
}
