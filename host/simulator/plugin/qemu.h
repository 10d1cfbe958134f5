// The parts we use of QEMU's TCG plugin interface (docs/devel/tcg-plugins in QEMU), whose header is
// not packaged. EK_PLUGIN_API is its version: 1 up to QEMU 8.2, 2 in 9.0, 3 in 9.1, 4 since 9.2. Of
// the changes, only qemu_plugin_insn_data (3) affects us.
#ifndef EK_QEMU_H
#define EK_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef EK_PLUGIN_API
#define EK_PLUGIN_API 1
#endif

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
} qemu_info_t;

enum { QEMU_PLUGIN_CB_NO_REGS = 0, QEMU_PLUGIN_MEM_RW = 3 };

typedef void (*qemu_plugin_on_vcpu)(qemu_plugin_id_t id, unsigned vcpu);
typedef void (*qemu_plugin_on_block)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*qemu_plugin_on_run)(unsigned vcpu, void *data);
typedef void (*qemu_plugin_on_access)(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address,
                                      void *data);
typedef void (*qemu_plugin_on_call)(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1,
                                    uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6,
                                    uint64_t a7, uint64_t a8);
typedef void (*qemu_plugin_on_return)(qemu_plugin_id_t id, unsigned vcpu, int64_t number,
                                      int64_t result);
typedef void (*qemu_plugin_on_exit)(qemu_plugin_id_t id, void *data);

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, qemu_plugin_on_vcpu call);
void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t id, qemu_plugin_on_vcpu call);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_on_block call);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, qemu_plugin_on_run call,
                                          int flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_on_run call,
                                            int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_on_access call,
                                      int flags, int kinds, void *data);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id, qemu_plugin_on_call call);
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t id, qemu_plugin_on_return call);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_on_exit call, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
#if EK_PLUGIN_API >= 3
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t bytes);
#else
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
#endif

#define EK_EXPORT __attribute__((visibility("default")))

#endif
