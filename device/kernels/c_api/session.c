#include "session.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

int ek_session_fail(ek_kernels *k, int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(k->error, sizeof k->error, format, arguments);
    va_end(arguments);
    return status;
}

void *ek_session_allocate(size_t bytes) {
    void *found = NULL;
    return posix_memalign(&found, ALIGNMENT, bytes ? bytes : 1) ? NULL : found;
}

int ek_session_reserve(ek_kernels *k, size_t bytes) {
    if (bytes <= k->scratch_bytes)
        return EK_DONE;
    free(k->scratch); /* both at once would need twice the memory */
    k->scratch = ek_session_allocate(bytes);
    k->scratch_bytes = k->scratch ? bytes : 0;
    return k->scratch ? EK_DONE
                      : ek_session_fail(k, EK_MEMORY,
                                        "expected %zu bytes of memory, found that the system "
                                        "refused; free some or multiply in parts",
                                        bytes);
}

int ek_session_pool(ek_kernels *k, const char *what, int threads, ek_pool **pool) {
    *pool = NULL;
    if (threads < 1 || threads > EK_MOST_THREADS)
        return ek_session_fail(k, EK_INPUT, "%s: expected 1 to %d threads, found %d", what,
                               EK_MOST_THREADS, threads);
    if (threads > 1 && !k->pool[threads]) {
        if (k->lender)
            k->taken[threads] = k->lender->take(k->head.library, threads, &k->pool[threads]);
        else
            k->pool[threads] = ek_pool_create(threads);
    }
    *pool = k->pool[threads];
    return threads == 1 || *pool
               ? EK_DONE
               : ek_session_fail(k, EK_MEMORY,
                                 "%s: expected to start %d threads, found that the system refused; "
                                 "use fewer",
                                 what, threads);
}

static int open_tables(ek_kernels *k, const ek_kernels_tables *tables) {
    static const char name[] = "kernels.so.table", again[] = "deploy the kernels again";
    k->products = ek_gemm_table_open(tables->products, tables->products_bytes);
    if (!k->products)
        return ek_session_fail(k, EK_DAMAGED,
                               "%s: expected the GEMM table of this edgekit, found %zu bytes of "
                               "another format; %s",
                               name, tables->products_bytes, again);
    const char *core = ek_kernels_platform(), *found = ek_gemm_table_platform(k->products);
    if (strcmp(core, found))
        return ek_session_fail(k, EK_INCOMPATIBLE,
                               "%s: expected a table of %s, found one of %s; %s", name, core, found,
                               again);
    k->sparse = ek_sparse_table_open(tables->sparse);
    if (!k->sparse)
        return ek_session_fail(k, EK_DAMAGED,
                               "kernels.so.spmv: expected a table of SpMV of this edgekit, found "
                               "another text; %s",
                               again);
    if (strcmp(core, k->sparse->platform))
        return ek_session_fail(k, EK_INCOMPATIBLE,
                               "kernels.so.spmv: expected a table of %s, found one of %s; %s", core,
                               k->sparse->platform, again);
    return EK_DONE;
}

static void close_kernels(ek_kernels *k) {
    for (int i = 2; i <= EK_MOST_THREADS; i++)
        if (k->taken[i])
            k->lender->leave(k->taken[i]);
        else if (k->pool[i])
            ek_pool_destroy(k->pool[i]);
    ek_gemm_table_close(k->products);
    ek_sparse_table_close(k->sparse);
    free(k->scratch);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static int open_kernels(const ek_kernels_tables *tables, ek_kernels **kernels, char *error,
                        size_t bytes) {
    ek_kernels *k = *kernels = calloc(1, sizeof *k);
    if (!k) {
        snprintf(error, bytes, "expected %zu bytes of memory, found none; free some", sizeof *k);
        return EK_MEMORY;
    }
    k->head.call = ek_kernels_interface_2();
    pthread_mutex_init(&k->lock, NULL);
    int status = open_tables(k, tables);
    if (status) {
        snprintf(error, bytes, "%s", k->error);
        close_kernels(k);
        *kernels = NULL;
    }
    return status;
}

void ek_kernels_borrow(ek_kernels *kernels, const ek_lender *lender) {
    kernels->lender = lender;
}

static const char *error_of(const ek_kernels *k) {
    return k->error;
}

const ek_kernels_interface *ek_kernels_interface_2(void) {
    static const ek_kernels_interface calls = {
        open_kernels,        error_of,
        close_kernels,       ek_api_gemm,
        ek_api_gemm_explain, ek_api_spmv_open,
        ek_api_spmv,         ek_api_spmv_explain,
        ek_api_spmv_close,   ek_api_outlier_open,
        ek_api_outlier,      ek_api_outlier_close,
    };
    return &calls;
}
