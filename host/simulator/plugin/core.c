// Reads a core's description: one `key values` per line, ending with `end`.
#include "memory.h"

#include <stdio.h>
#include <string.h>

enum { MAX_VALUES = 11 };

struct line {
    char key[40], name[40];
    int values;
    uint32_t value[MAX_VALUES];
    bool named;
};

struct field {
    const char *key;
    size_t offset;
};

#define FIELD(name) {#name, offsetof(struct ek_core, name)}
static const struct field fields[] = {
    FIELD(vector_bits),       FIELD(datapath_bits),     FIELD(misses),
    FIELD(issue.width),       FIELD(issue.fetch),       FIELD(issue.taken),
    FIELD(issue.mispredict),  FIELD(issue.address),     FIELD(issue.store_data),
    FIELD(issue.window),      FIELD(issue.retire),      FIELD(issue.depth),
    FIELD(issue.loads),       FIELD(issue.stores),      FIELD(ports.load_bytes),
    FIELD(ports.store_bytes), FIELD(tlb.entries),       FIELD(tlb.second),
    FIELD(tlb.ways),          FIELD(tlb.penalty),       FIELD(tlb.walk),
    FIELD(prefetch.streams),  FIELD(prefetch.distance), FIELD(prefetch.second),
    FIELD(prefetch.confirm),  FIELD(prefetch.page),     FIELD(stores.buffer),
    FIELD(stores.drain),      FIELD(stores.stream),     FIELD(stores.miss),
    FIELD(issue.branch_data), FIELD(issue.write_back),  FIELD(dram.latency),
    FIELD(dram.core_line),    FIELD(dram.line),         FIELD(dram.write_line),
    FIELD(stores.beyond),     FIELD(stores.gather),     FIELD(prefetch.stores),
    FIELD(prefetch.apart),    FIELD(dram.turn),
};

static const struct field shapes[] = {FIELD(l1i), FIELD(l1d), FIELD(l2), FIELD(l3)};

static bool split(char *text, struct line *line) {
    memset(line, 0, sizeof *line);
    char *save = NULL;
    for (char *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        unsigned value;
        if (line->key[0] == 0)
            snprintf(line->key, sizeof line->key, "%s", word);
        else if (line->values < MAX_VALUES && sscanf(word, "%u", &value) == 1)
            line->value[line->values++] = value;
        else if (!line->named && line->values == 0) {
            snprintf(line->name, sizeof line->name, "%s", word);
            line->named = true;
        } else
            return false;
    }
    return true;
}

static int class_of(const char *name) {
    for (int class = 0; class < EK_CLASS_COUNT; class++)
        if (strcmp(ek_class_name(class), name) == 0)
            return class;
    return -1;
}

static bool read_op(struct ek_core *core, const struct line *line) {
    const uint32_t *v = line->value;
    int class = class_of(line->name);
    if (class < 0 || line->values != 9 || v[0] >= EK_WIDTHS || v[1] >= EK_ELEMENTS ||
        v[2] >= core->units || v[8] > EK_ISSUE_ALONE || v[6] > 255 || v[7] > EK_MAX_PORTS)
        return false;
    struct ek_op *op = &core->op[class][v[0]][v[1]];
    op->unit = (uint8_t)v[2];
    op->latency = (uint16_t)v[3];
    op->forward = (uint16_t)v[4];
    op->cycles = (uint16_t)v[5];
    op->uops = (uint8_t)v[6];
    op->takes = (uint8_t)v[7];
    op->issue = (uint8_t)v[8];
    return true;
}

static bool read_apart(struct ek_core *core, const struct line *line) {
    int class = class_of(line->name);
    const uint32_t *v = line->value;
    if (class < 0 || line->values != 3 || v[0] >= core->rules || v[1] > 1 || v[2] >= EK_WIDTHS)
        return false;
    for (int element = 0; element < EK_ELEMENTS; element++) {
        struct ek_op *op = &core->op[class][v[2]][element];
        *(v[1] ? &op->after : &op->on) |= (uint16_t)(1u << v[0]);
    }
    return true;
}

static bool read_unit(struct ek_core *core, const struct line *line) {
    if (line->values != 2 || core->units == EK_MAX_UNITS || line->value[0] == 0)
        return false;
    struct ek_unit *unit = &core->unit[core->units++];
    snprintf(unit->name, sizeof unit->name, "%.23s", line->name);
    unit->ports = line->value[0];
    unit->queue = line->value[1];
    return true;
}

static bool read_limit(struct ek_core *core, const struct line *line) {
    if (line->values != 2 || core->limits == EK_MAX_LIMITS || line->value[1] == 0)
        return false;
    core->limit[core->limits++] = (struct ek_limit){line->value[0], line->value[1]};
    return true;
}

static bool read_branch(struct ek_core *core, const struct line *line) {
    const uint32_t *v = line->value;
    if (line->values != 4)
        return false;
    core->branch.entries = v[0];
    core->branch.targets = v[1];
    core->branch.indirect = v[2];
    core->branch.returns = v[3];
    return true;
}

static bool read_feature(struct ek_core *core, const struct line *line) {
    for (int feature = 0; feature < EK_FEATURE_COUNT; feature++)
        if (strcmp(ek_feature_name(feature), line->name) == 0)
            return core->feature[feature] = true;
    return true; // for an instruction set that this QEMU does not run
}

static bool read_line(struct ek_core *core, const struct line *line) {
    const char *key = line->key;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].key, key) == 0) {
            memcpy((char *)core + fields[i].offset, &line->value[0], sizeof(uint32_t));
            return line->values == 1;
        }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].key, key) == 0) {
            memcpy((char *)core + shapes[i].offset, line->value, sizeof(struct ek_shape));
            return line->values == 7 && line->value[1] > 0;
        }
    if (strcmp(key, "core") == 0)
        return snprintf(core->name, sizeof core->name, "%.31s", line->name) > 0;
    if (strcmp(key, "order") == 0) {
        core->out_of_order = strcmp(line->name, "out") == 0;
        return true;
    }
    if (strcmp(key, "history") == 0 && core->branch.tables < EK_MAX_TABLES && line->values == 1) {
        core->branch.history[core->branch.tables++] = line->value[0];
        return true;
    }
    if (strcmp(key, "rule") == 0 && core->rules < EK_MAX_RULES && line->values == 1) {
        core->rule_distance[core->rules++] = line->value[0];
        return line->value[0] < 64;
    }
    if (strcmp(key, "op") == 0)
        return read_op(core, line);
    if (strcmp(key, "unit") == 0)
        return read_unit(core, line);
    if (strcmp(key, "limit") == 0)
        return read_limit(core, line);
    if (strcmp(key, "branch") == 0)
        return read_branch(core, line);
    if (strcmp(key, "feature") == 0)
        return read_feature(core, line);
    return strcmp(key, "apart") == 0 && read_apart(core, line);
}

static bool complete(const struct ek_core *core) {
    return core->issue.width && core->units && core->misses && core->l1i.ways && core->l1d.ways &&
           core->l2.ways && core->ports.load_bytes && core->ports.store_bytes &&
           core->datapath_bits && core->tlb.entries && core->tlb.second && core->tlb.ways &&
           core->branch.entries && core->branch.targets && core->prefetch.page >= 64 &&
           core->prefetch.streams <= EK_MAX_STREAMS && core->prefetch.apart <= EK_MAX_STREAMS &&
           (!core->out_of_order || (core->issue.window && core->issue.retire));
}

bool ek_core_read(const char *path, struct ek_core *core, char *error, size_t size) {
    memset(core, 0, sizeof *core);
    FILE *file = fopen(path, "r");
    if (!file) {
        snprintf(error, size, "%s cannot be read", path);
        return false;
    }
    char text[256];
    bool ended = false;
    struct line line;
    for (int number = 1; !ended && fgets(text, sizeof text, file); number++) {
        if (!split(text, &line) ||
            (!(ended = strcmp(line.key, "end") == 0) && line.key[0] && !read_line(core, &line))) {
            snprintf(error, size, "%s:%d: '%s %s' is not understood", path, number, line.key,
                     line.name);
            fclose(file);
            return false;
        }
    }
    fclose(file);
    if (!ended || !complete(core)) {
        snprintf(error, size, "%s is incomplete", path);
        return false;
    }
    return true;
}

const struct ek_op *ek_core_op(const struct ek_core *core, int class, unsigned width,
                               unsigned element) {
    int e = element <= 8 ? 0 : element <= 16 ? 1 : element <= 32 ? 2 : 3;
    return &core->op[class][width > 64][e];
}
