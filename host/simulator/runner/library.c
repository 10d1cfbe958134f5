/* Loads a model's library into a static program, so that a board's C library is not required and
 * the code that is timed is, byte for byte, the code that ships. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "runner.h"
#include "symbols.h"
#include "system.h"

#if defined __aarch64__
enum { WORD = R_AARCH64_ABS64, GLOBAL = R_AARCH64_GLOB_DAT };
enum { JUMP = R_AARCH64_JUMP_SLOT, RELATIVE = R_AARCH64_RELATIVE };
#elif defined __arm__
enum { WORD = R_ARM_ABS32, GLOBAL = R_ARM_GLOB_DAT };
enum { JUMP = R_ARM_JUMP_SLOT, RELATIVE = R_ARM_RELATIVE };
#elif defined __riscv
enum { WORD = 2, GLOBAL = 2, JUMP = 5, RELATIVE = 3 }; /* R_RISCV_64, _JUMP_SLOT, _RELATIVE */
#endif

#if UINTPTR_MAX > UINT32_MAX
#define SYMBOL(info) ELF64_R_SYM(info)
#define TYPE(info) (int)ELF64_R_TYPE(info)
#else
#define SYMBOL(info) ELF32_R_SYM(info)
#define TYPE(info) (int)ELF32_R_TYPE(info)
#endif
enum { PAGE = 65536 };

struct library {
    char *base;
    const ElfW(Sym) * symbols;
    const char *names;
    size_t count;
};

typedef struct {
    const char *name;
    void *address;
} known;

#define ROW(name) {#name, (void *)name},
/* Pretend that each thread has its own core: this machine's scheduling must not matter. */
static const known known_symbols[] = {EK_SYMBOLS(ROW){"clock_gettime", (void *)runner_clock},
#ifdef __riscv
                                      {"sigaction", (void *)sigaction},
#endif
                                      {"sched_getcpu", (void *)runner_core},
                                      {"sched_getaffinity", (void *)runner_cores},
                                      {"sched_setaffinity", (void *)runner_set_cores},
                                      {"pthread_setaffinity_np", (void *)runner_set_affinity}};

static void *known_symbol(const char *name) {
    for (size_t i = 0; i < sizeof known_symbols / sizeof *known_symbols; i++)
        if (strcmp(known_symbols[i].name, name) == 0)
            return known_symbols[i].address;
    return NULL;
}

void *library_symbol(const library *lib, const char *name) {
    for (size_t i = 1; i < lib->count; i++) {
        const ElfW(Sym) *s = &lib->symbols[i];
        if (s->st_shndx != SHN_UNDEF && strcmp(lib->names + s->st_name, name) == 0)
            return lib->base + s->st_value;
    }
    return NULL;
}

static void *resolve(const library *lib, size_t index) {
    const ElfW(Sym) *s = &lib->symbols[index];
    const char *name = lib->names + s->st_name;
    if (s->st_shndx != SHN_UNDEF)
        return lib->base + s->st_value;
    void *found = known_symbol(name);
    if (!found && ELF32_ST_BIND(s->st_info) != STB_WEAK)
        fail("the runner has no function", name);
    return found;
}

/* `addends`: whether addends are in the entries (RELA) or at the relocated places (REL). */
static void relocate(const library *lib, const char *entries, size_t bytes, int addends) {
    size_t each = addends ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));
    for (size_t at = 0; at < bytes; at += each) {
        const ElfW(Rela) *r = (const ElfW(Rela) *)(entries + at);
        uintptr_t *place = (uintptr_t *)(lib->base + r->r_offset);
        int type = TYPE(r->r_info);
        uintptr_t addend = addends                          ? (uintptr_t)r->r_addend
                           : type == JUMP || type == GLOBAL ? 0
                                                            : *place;
        if (type == RELATIVE)
            *place = (uintptr_t)lib->base + addend;
        else if (type == WORD || type == GLOBAL || type == JUMP)
            *place = (uintptr_t)resolve(lib, SYMBOL(r->r_info)) + addend;
        else
            fail("expected another kind of relocation in", "the library");
    }
}

static char *map_segments(const char *file, size_t bytes) {
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)file;
    if (bytes < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        fail("expected a library, found", "another file");
    const ElfW(Phdr) *parts = (const ElfW(Phdr) *)(file + header->e_phoff);
    size_t size = 0;
    for (int i = 0; i < header->e_phnum; i++)
        if (parts[i].p_type == PT_LOAD && parts[i].p_vaddr + parts[i].p_memsz > size)
            size = parts[i].p_vaddr + parts[i].p_memsz;
    size = (size + 2 * PAGE - 1) / PAGE * PAGE;
    char *mapping = map_memory(size);
    if (!mapping)
        fail("expected memory for the library, found", "none");
    char *base = (char *)(((uintptr_t)mapping + PAGE - 1) / PAGE * PAGE);
    for (int i = 0; i < header->e_phnum; i++)
        if (parts[i].p_type == PT_LOAD)
            memcpy(base + parts[i].p_vaddr, file + parts[i].p_offset, parts[i].p_filesz);
    return base;
}

static void protect(const char *file, char *base) {
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)file;
    const ElfW(Phdr) *parts = (const ElfW(Phdr) *)(file + header->e_phoff);
    uintptr_t page = getauxval(AT_PAGESZ);
    for (int i = 0; i < header->e_phnum; i++) {
        if (parts[i].p_type != PT_LOAD || !(parts[i].p_flags & PF_X))
            continue;
        uintptr_t first = ((uintptr_t)base + parts[i].p_vaddr) / page * page;
        uintptr_t end = (uintptr_t)base + parts[i].p_vaddr + parts[i].p_memsz;
        if (CALL(SYS_mprotect, (long)first, (long)(end - first), PROT_READ | PROT_EXEC) != 0)
            fail("expected memory that may be executed, found", "none");
    }
}

library *library_open(const char *path) {
    size_t bytes;
    char *file = read_file(path, &bytes);
    library *lib = calloc(1, sizeof *lib);
    lib->base = map_segments(file, bytes);
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)file;
    const ElfW(Phdr) *parts = (const ElfW(Phdr) *)(file + header->e_phoff);
    uintptr_t value[DT_NUM] = {0};
    for (int i = 0; i < header->e_phnum; i++)
        if (parts[i].p_type == PT_DYNAMIC)
            for (const ElfW(Dyn) *d = (const ElfW(Dyn) *)(lib->base + parts[i].p_vaddr);
                 d->d_tag != DT_NULL; d++)
                if (d->d_tag > 0 && d->d_tag < DT_NUM)
                    value[d->d_tag] = d->d_un.d_val;
    if (!value[DT_SYMTAB] || !value[DT_HASH] || value[DT_INIT_ARRAY])
        fail("expected a library with a hash table and no constructors in", path);
    lib->symbols = (const ElfW(Sym) *)(lib->base + value[DT_SYMTAB]);
    lib->names = lib->base + value[DT_STRTAB];
    lib->count = ((const uint32_t *)(lib->base + value[DT_HASH]))[1];
    relocate(lib, lib->base + value[DT_RELA], value[DT_RELASZ], 1);
    relocate(lib, lib->base + value[DT_REL], value[DT_RELSZ], 0);
    relocate(lib, lib->base + value[DT_JMPREL], value[DT_PLTRELSZ], value[DT_PLTREL] == DT_RELA);
    protect(file, lib->base);
    free(file);
    return lib;
}
