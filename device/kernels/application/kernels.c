/* ek_kernels.h: finds, verifies and loads the release's library of products, and hands calls on
 * to it. */
#define _GNU_SOURCE
#include "ek_kernels.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../c_api/interface.h"
#include "ek.h"
#include "follow.h"
#include "integrity.h"
#include "pools.h"
#include "release_files.h"

enum { PATH = 4096, TEXT = 512 };
static const char LIBRARY[] = "kernels.so";
static const char NONE[] = "expected a value of ek_kernels.h, found NULL";

typedef struct {
    char *text;
    size_t bytes;
} message;

static int fail(const message *to, int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (to->text)
        vsnprintf(to->text, to->bytes, format, arguments);
    va_end(arguments);
    return status;
}

static const ek_kernels_interface *call_of(const void *object) {
    return ((const ek_kernels_head *)object)->call;
}

/* The interface of a loaded library, after checking that this CPU has what it needs. */
static int find_interface(void *library, const ek_kernels_interface **call, const message *to) {
    int (*abi)(void) = (int (*)(void))dlsym(library, "ek_abi");
    const char *(*missing)(void) = (const char *(*)(void))dlsym(library, "ek_missing_feature");
    const ek_kernels_interface *(*interface)(void) =
        (const ek_kernels_interface *(*)(void))dlsym(library, EK_KERNELS_INTERFACE);
    if (!abi || abi() != EK_ABI || !missing || !interface)
        return fail(to, EK_INCOMPATIBLE,
                    "%s: expected kernels of this program's version, found others; deploy them "
                    "again, or take the libedgekit-app.so of their release",
                    LIBRARY);
    const char *feature = missing();
    if (feature)
        return fail(to, EK_INCOMPATIBLE,
                    "%s: expected a CPU with %s, found one without; deploy the kernels for this "
                    "board's profile",
                    LIBRARY, feature);
    *call = interface();
    return EK_DONE;
}

static void *take(void *library, int threads, ek_pool **pool) {
    ek_shared_pool *found = ek_pool_share_any(library, threads);
    *pool = found ? ek_pool_of(found) : NULL;
    return found;
}

static void leave(void *taken) {
    ek_pool_leave(taken);
}

/* Products use the threads of the program's models. */
static void lend(void *library, ek_kernels *kernels) {
    static const ek_lender lender = {take, leave};
    void (*borrow)(ek_kernels *, const ek_lender *) =
        (void (*)(ek_kernels *, const ek_lender *))dlsym(library, EK_KERNELS_BORROW);
    if (borrow)
        borrow(kernels, &lender);
}

static int open_verified(const ek_release_files *files, ek_kernels **kernels, const message *to) {
    const ek_kernels_interface *call;
    ek_kernels_tables tables = {0};
    char why[TEXT] = "";
    void *library = ek_files_load(files, LIBRARY);
    if (!library)
        return fail(to, EK_INCOMPATIBLE, "%s: expected a library for this board, found %s", LIBRARY,
                    dlerror());
    int status = find_interface(library, &call, to);
    if (!status) {
        char *products =
            ek_read_open(ek_files_find(files, "kernels.so.table"), &tables.products_bytes);
        char *sparse = ek_read_open(ek_files_find(files, "kernels.so.spmv"), NULL);
        tables.products = products, tables.sparse = sparse ? sparse : "";
        status = call->open(&tables, kernels, why, sizeof why);
        if (status)
            fail(to, status, "%s", why);
        free(products);
        free(sparse);
    }
    if (status) {
        dlclose(library);
        return status;
    }
    ((ek_kernels_head *)*kernels)->library = library;
    lend(library, *kernels);
    return status;
}

int ek_kernels_open(const char *root, const char *name, ek_kernels **kernels, char *error,
                    size_t bytes) {
    const message to = {error, bytes};
    char folder[2 * PATH], where[PATH], id[EK_APP_RELEASE_BYTES], why[TEXT];
    if (!kernels)
        return fail(&to, EK_INPUT, "ek_kernels_open: expected kernels, found NULL");
    *kernels = NULL;
    ek_root_of(where, sizeof where, root, name);
    if (!ek_committed(where, id))
        return fail(&to, EK_DAMAGED,
                    "expected deployed kernels in %.300s, found none; deploy them: edgekit deploy "
                    "--kernels",
                    where);
    snprintf(folder, sizeof folder, "%s/releases/%s", where, id);
    ek_release_files *files = ek_files_open(folder, why, sizeof why);
    if (!files)
        return fail(&to, EK_DAMAGED, "release %s is damaged: %.300s; deploy it again", id, why);
    int status = EK_DAMAGED;
    if (ek_files_find(files, LIBRARY) < 0)
        fail(&to, status,
             "release %s: expected kernels, found a model; deploy them: edgekit deploy --kernels",
             id);
    else
        status = open_verified(files, kernels, &to);
    ek_files_close(files);
    return status;
}

const char *ek_kernels_error(const ek_kernels *kernels) {
    return kernels ? call_of(kernels)->error(kernels) : NONE;
}

void ek_kernels_close(ek_kernels *kernels) {
    if (!kernels)
        return;
    void *library = ((ek_kernels_head *)kernels)->library;
    call_of(kernels)->close(kernels);
    ek_pool_unload(library);
}

int ek_gemm(ek_kernels *kernels, const ek_matrix *a, const ek_matrix *b, const void *bias,
            const ek_result *c, int threads) {
    return kernels ? call_of(kernels)->gemm(kernels, a, b, bias, c, threads) : EK_INPUT;
}

int ek_gemm_explain(ek_kernels *kernels, const ek_matrix *a, const ek_matrix *b, const ek_result *c,
                    int threads, ek_gemm_choice *choice) {
    return kernels ? call_of(kernels)->gemm_explain(kernels, a, b, c, threads, choice) : EK_INPUT;
}

int ek_spmv_open(ek_kernels *kernels, const ek_csr *a, ek_spmv_matrix **matrix) {
    return kernels ? call_of(kernels)->spmv_open(kernels, a, matrix) : EK_INPUT;
}

int ek_spmv_multiply(ek_spmv_matrix *matrix, const void *x, int64_t columns, void *y, int64_t rows,
                     int threads) {
    return matrix ? call_of(matrix)->spmv_multiply(matrix, x, columns, y, rows, threads) : EK_INPUT;
}

int ek_spmv_explain(ek_spmv_matrix *matrix, ek_spmv_choice *choice) {
    return matrix ? call_of(matrix)->spmv_explain(matrix, choice) : EK_INPUT;
}

void ek_spmv_close(ek_spmv_matrix *matrix) {
    if (matrix)
        call_of(matrix)->spmv_close(matrix);
}

int ek_outlier_open(ek_kernels *kernels, const ek_matrix *w, const float *scales, int64_t columns,
                    ek_outlier_matrix **weights) {
    return kernels ? call_of(kernels)->outlier_open(kernels, w, scales, columns, weights)
                   : EK_INPUT;
}

int ek_outlier_multiply(ek_outlier_matrix *weights, const ek_matrix *x, float threshold,
                        const ek_result *y, int threads, ek_outlier_choice *choice) {
    return weights ? call_of(weights)->outlier_multiply(weights, x, threshold, y, threads, choice)
                   : EK_INPUT;
}

void ek_outlier_close(ek_outlier_matrix *weights) {
    if (weights)
        call_of(weights)->outlier_close(weights);
}
