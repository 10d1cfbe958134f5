// A QEMU plugin that estimates a program's run time on a core: docs/estimates.md.
//   qemu-ARCH -plugin plugin.so,core=FILE[,core=FILE…],out=FILE[,entire=1][,laps=counter] PROGRAM
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu.h"
#include "report.h"

EK_EXPORT int qemu_plugin_version = EK_PLUGIN_API;

// File descriptors that act as marks when closed.
enum { MARK_BEGIN = 777001, MARK_END, MARK_LAP, MARK_WARM, MARK_WARM_END, MARK_STAMPS };
enum { ARM, A64, RV64 };
enum { MAX_CODE = EK_MAX_BLOCK * 4, LOOKS = 64 };

static enum { OFF, WARM, ON } mode;
static int machine = A64;
static bool entire_program, counter_laps;
static struct ek_thread *owner; // of the region
static struct {
    uint64_t begin, end;
} stamps; // where the program stores the times of laps
static const char *out;

static void decode(struct ek_block *block, const uint8_t *code) {
    bool narrow = block->bytes != 4 * block->instructions; // some have 16 bits
    bool thumb = machine == ARM && (narrow || ek_is_t32(code, block->bytes));
    uint8_t it = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < block->instructions; i++) {
        struct ek_insn *insn = &block->insn[i];
        size_t left = block->bytes - at;
        uint64_t pc = block->pc + at;
        int length = machine == A64    ? ek_decode_a64(code + at, left, pc, insn)
                     : machine == RV64 ? ek_decode_rv64(code + at, left, pc, insn)
                     : thumb           ? ek_decode_t32(code + at, left, pc, &it, insn)
                                       : ek_decode_a32(code + at, left, pc, insn);
        at += (uint32_t)length;
    }
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)info;
    if (mode == OFF)
        return;
    struct ek_thread *thread = ek_thread_of(vcpu);
    uint64_t *first = thread && !thread->handling ? &thread->run.address[(uintptr_t)data] : NULL;
    if (first && (*first == 0 || address < *first))
        *first = address; // the emulator splits large accesses
}

// Scattered elements: one entry per line.
static void on_element(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)info;
    struct ek_thread *thread = mode == OFF ? NULL : ek_thread_of(vcpu);
    if (!thread || thread->handling)
        return;
    uintptr_t index = (uintptr_t)data;
    struct ek_run *run = &thread->run;
    uint64_t before = run->count[index] ? run->more[run->mores - 1] : run->address[index];
    if (run->address[index] == 0) {
        run->address[index] = address;
        run->first[index] = (uint16_t)run->mores;
    } else if (before / 64 != address / 64 && run->mores < 4 * EK_MAX_BLOCK) {
        run->more[run->mores++] = address;
        run->count[index]++;
    }
}

// Whether a thread is spinning on a location that another thread is to change.
static bool is_spinning(struct ek_thread *thread, const struct ek_block *block) {
    bool looked = false;
    if (!block->quiet)
        thread->same = 0;
    for (uint32_t i = 0; block->quiet && i < block->instructions; i++) {
        uint64_t place = thread->run.address[i];
        if (place && place != thread->place) {
            thread->place = place;
            thread->same = 0;
        } else if (place) {
            thread->same++;
            looked = true;
        }
    }
    return block->pauses || (looked && thread->same > LOOKS);
}

static void lap(struct ek_thread *thread) {
    ek_report_lap(thread, thread == owner);
    thread->due = true;
}

// A lap is identified by the first time stamp written after it. Returns the index, from `at` on,
// of the instruction that reads the counter.
static uint32_t find_stamp(struct ek_thread *thread, const struct ek_block *block, uint32_t at) {
    for (; at < block->instructions && !block->insn[at].reads_counter; at++) {
        uint64_t address = thread->run.address[at];
        bool stamp = address >= stamps.begin && address < stamps.end;
        if (thread->due && stamp && (block->insn[at].memory & EK_STORE)) {
            ek_report_stamp(thread, (int32_t)((address - stamps.begin) / sizeof(uint64_t)));
            thread->due = false;
        }
    }
    return at;
}

static void find_laps(struct ek_thread *thread, const struct ek_block *block) {
    bool reads = counter_laps && block->reads_counter;
    uint32_t at = thread->due ? find_stamp(thread, block, 0) : 0;
    if (!reads)
        return;
    while (at < block->instructions && !block->insn[at].reads_counter)
        at++;
    lap(thread);
    find_stamp(thread, block, at + 1);
}

static void drop_accesses(struct ek_run *run, uint32_t instructions) {
    for (uint32_t i = 0; i < instructions; i++)
        run->address[i] = run->count[i] = 0;
    run->mores = 0;
}

// Attributes everything that a spinning thread did to waiting.
static void attribute_to_waiting(struct ek_cpu *cpu, const uint64_t before[EK_BOUNDS]) {
    uint64_t waited = 0;
    for (int i = 0; i < EK_BOUNDS; i++)
        waited += cpu->bound[i] - before[i];
    memcpy(cpu->bound, before, sizeof cpu->bound);
    cpu->bound[EK_BOUND_WAIT] += waited;
}

static void finish(struct ek_thread *thread, uint64_t next) {
    struct ek_block *block = thread->last;
    thread->last = NULL;
    if (!block)
        return;
    bool waits = is_spinning(thread, block) && ek_thread_has_others(thread);
    uint64_t before[EK_BOUNDS];
    for (unsigned model = 0; model < ek_machine.models; model++) {
        struct ek_cpu *cpu = thread->cpu[model];
        if (mode == WARM) {
            ek_cpu_warm(cpu, block, &thread->run, next);
            continue;
        }
        if (waits)
            memcpy(before, cpu->bound, sizeof before);
        const struct ek_variant *variant = ek_cpu_run(cpu, block, &thread->run, next);
        if (waits)
            attribute_to_waiting(cpu, before);
        if (variant->unknown)
            ek_report_unknown(model, block, variant);
    }
    if (mode == ON)
        find_laps(thread, block);
    drop_accesses(&thread->run, block->instructions);
}

// Whether a block belongs to the program's handler of an instruction that the emulator refused.
static bool is_handling(struct ek_thread *thread, const struct ek_block *block) {
    thread->handling = thread->refused && block->pc != thread->refused;
    if (!thread->handling)
        thread->refused = block->refused ? block->pc + block->bytes : 0;
    return thread->handling;
}

static void on_block(unsigned vcpu, void *data) {
    struct ek_thread *thread = ek_thread_of(vcpu);
    struct ek_block *block = data;
    if (!thread || is_handling(thread, block) || (mode == OFF && !ek_machine.scheduled))
        return;
    ek_thread_arrive(thread, true);
    if (mode == OFF)
        thread->outside += block->instructions;
    else if (ek_thread_begin(thread))
        finish(thread, block->pc);
    else
        return;
    ek_thread_turn(thread);
    thread->last = mode == OFF ? NULL : block;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    uint32_t count = (uint32_t)qemu_plugin_tb_n_insns(tb);
    if (count == 0 || count > EK_MAX_BLOCK)
        return;
    struct ek_block *block = ek_block_new(qemu_plugin_tb_vaddr(tb), count);
    uint8_t code[MAX_CODE];
    for (uint32_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        size_t size = qemu_plugin_insn_size(insn);
        if (block->bytes + size > sizeof code)
            return;
#if EK_PLUGIN_API >= 3
        qemu_plugin_insn_data(insn, code + block->bytes, size);
#else
        memcpy(code + block->bytes, qemu_plugin_insn_data(insn), size);
#endif
        block->bytes += (uint32_t)size;
    }
    decode(block, code);
    ek_block_finish(block, code);
    for (uint32_t i = 0; i < count; i++) {
        const struct ek_insn *insn = &block->insn[i];
        bool apart =
            insn->class == EK_CLASS_v_load_indexed || insn->class == EK_CLASS_v_store_indexed ||
            insn->class == EK_CLASS_v_load_strided || insn->class == EK_CLASS_v_store_strided;
        if (insn->memory & (EK_LOAD | EK_STORE))
            qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i),
                                             apart ? on_element : on_access, QEMU_PLUGIN_CB_NO_REGS,
                                             QEMU_PLUGIN_MEM_RW, (void *)(uintptr_t)i);
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void begin(struct ek_thread *thread, bool warm) {
    if (!ek_thread_begin(thread))
        return;
    ek_threads_start(thread);
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        struct ek_thread *other = ek_machine.thread[i];
        if (!other)
            continue;
        drop_accesses(&other->run, EK_MAX_BLOCK); // accesses from outside the region
        other->due = false;
    }
    if (!warm) {
        owner = thread;
        ek_report_begin(thread);
    }
    mode = warm ? WARM : ON;
    for (unsigned model = 0; model < ek_machine.models; model++)
        ek_machine.model[model]->shared.untimed = warm;
}

static void end(struct ek_thread *thread) {
    finish(thread, 0);
    if (mode == ON && owner)
        ek_report_end(owner);
    owner = NULL;
    mode = OFF;
    ek_threads_stop();
}

static void mark(struct ek_thread *thread, uint64_t which) {
    if (entire_program && which != MARK_LAP)
        return;
    if (which == MARK_BEGIN || which == MARK_WARM) {
        if (mode != OFF)
            end(thread);
        begin(thread, which == MARK_WARM);
    } else if (which == MARK_END && mode == ON) {
        end(thread);
        if (!ek_report_write(out))
            fprintf(stderr, "edgekit: %s cannot be written\n", out);
    } else if (which == MARK_WARM_END && mode == WARM)
        end(thread);
    else if (which == MARK_LAP && mode == ON && thread == owner) {
        finish(thread, 0);
        lap(thread);
    }
}

static void on_call(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2,
                    uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    struct ek_thread *thread = ek_thread_of(vcpu);
    bool arm = machine == ARM, closes = number == (arm ? 6 : 57);
    bool marks = closes && a1 >= MARK_BEGIN && a1 <= MARK_WARM_END;
    if (!thread)
        return;
    if (marks) { // whoever sets marks is not in a handler, or left it by siglongjmp
        thread->handling = false;
        thread->refused = 0;
    }
    if (thread->handling)
        return;
    ek_thread_arrive(thread, false);
    if (marks) {
        mark(thread, a1);
        return;
    }
    if (closes && a1 == MARK_STAMPS) {
        stamps.begin = arm ? (uint32_t)a2 : a2;
        stamps.end = stamps.begin + a3 * sizeof(uint64_t);
        return;
    }
    enum ek_call call = ek_call_of(arm, number, a1, a2);
    if (call == EK_CALL_EXITS && ek_machine.scheduled && mode == ON && owner)
        end(owner); // threads are no longer scheduled
    ek_thread_call(thread, call);
}

static void on_return(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result) {
    (void)id, (void)number;
    struct ek_thread *thread = ek_thread_of(vcpu);
    if (thread && !thread->handling)
        ek_thread_return(thread, result);
}

static void on_start(qemu_plugin_id_t id, unsigned vcpu) {
    (void)id;
    struct ek_thread *thread = ek_thread_of(vcpu);
    if (!thread)
        return;
    ek_thread_start(thread);
    if (entire_program && mode == OFF && !owner)
        begin(thread, false);
}

static void on_stop(qemu_plugin_id_t id, unsigned vcpu) {
    (void)id;
    struct ek_thread *thread = ek_thread_of(vcpu);
    if (thread)
        ek_thread_end(thread);
}

static void on_end(qemu_plugin_id_t id, void *data) {
    (void)id, (void)data;
    if (mode == ON && owner)
        end(owner);
    if (!ek_report_write(out))
        fprintf(stderr, "edgekit: %s cannot be written\n", out);
}

static bool add_core(const char *path) {
    char error[512];
    struct ek_model *model = calloc(1, sizeof *model);
    if (!model || ek_machine.models == EK_MAX_MODELS)
        return false;
    if (!ek_core_read(path, &model->core, error, sizeof error)) {
        fprintf(stderr, "edgekit: core: %s\n", error);
        return false;
    }
    ek_machine.model[ek_machine.models++] = model;
    return ek_shared_start(&model->shared, &model->core);
}

EK_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
                                  char **argv) {
    machine = strcmp(info->target_name, "arm") == 0       ? ARM
              : strcmp(info->target_name, "riscv64") == 0 ? RV64
                                                          : A64;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "core=", 5) == 0) {
            if (!add_core(argv[i] + 5))
                return 1;
        } else if (strncmp(argv[i], "out=", 4) == 0)
            out = strdup(argv[i] + 4);
        else if (strcmp(argv[i], "entire=1") == 0)
            entire_program = true;
        else if (strcmp(argv[i], "laps=counter") == 0)
            counter_laps = true;
        else {
            fprintf(stderr, "edgekit: expected core=, out=, entire=1 or laps=counter, found %s\n",
                    argv[i]);
            return 1;
        }
    }
    if (!out || ek_machine.models == 0) {
        fprintf(stderr, "edgekit: expected core=FILE and out=FILE\n");
        return 1;
    }
    qemu_plugin_register_vcpu_init_cb(id, on_start);
    qemu_plugin_register_vcpu_exit_cb(id, on_stop);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
    qemu_plugin_register_atexit_cb(id, on_end, NULL);
    return 0;
}
