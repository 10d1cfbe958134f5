/* Checks of matrices in a program's memory. */
#include "session.h"

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [EK_F32] = {"f32", 4}, [EK_F64] = {"f64", 8}, [EK_F16] = {"f16", 2},
    [EK_S8] = {"s8", 1},   [EK_U8] = {"u8", 1},   [EK_S32] = {"s32", 4},
};

static int is_known(int32_t type) {
    return type >= 0 && (size_t)type < sizeof types / sizeof *types;
}

size_t ek_type_bytes(int32_t type) {
    return is_known(type) ? types[type].bytes : 0;
}

const char *ek_type_name(int32_t type) {
    return is_known(type) ? types[type].name : "an unknown type";
}

/* Adds the first and last bytes of a dimension; returns 0 if they are beyond any memory. */
static int extend(int64_t extent, int64_t stride, size_t bytes, intptr_t *low, intptr_t *high) {
    intptr_t span;
    if (__builtin_mul_overflow(extent - 1, stride, &span) ||
        __builtin_mul_overflow(span, (intptr_t)bytes, &span))
        return 0;
    return !__builtin_add_overflow(span < 0 ? *low : *high, span, span < 0 ? low : high);
}

/* Finds the memory of a matrix, [low, high); returns 0 if there is none that large. */
static int find_memory(const ek_matrix *m, intptr_t *low, intptr_t *high) {
    const size_t bytes = ek_type_bytes(m->type);
    *low = *high = (intptr_t)m->data;
    if (!m->rows || !m->columns)
        return 1;
    return extend(m->rows, m->row_stride, bytes, low, high) &&
           extend(m->columns, m->column_stride, bytes, low, high) &&
           !__builtin_add_overflow(*high, (intptr_t)bytes, high);
}

int ek_session_check(ek_kernels *k, const char *what, const char *name, const ek_matrix *m) {
    intptr_t low, high;
    if (!ek_type_bytes(m->type))
        return ek_session_fail(k, EK_INPUT, "%s: expected the type of %s as an ek_type, found %d",
                               what, name, (int)m->type);
    if (m->rows < 0 || m->columns < 0 || m->rows > INT32_MAX || m->columns > INT32_MAX)
        return ek_session_fail(k, EK_INPUT,
                               "%s: expected sizes of 0 to %d, found %s of [%lld, %lld]", what,
                               INT32_MAX, name, (long long)m->rows, (long long)m->columns);
    if (!m->rows || !m->columns)
        return EK_DONE;
    if (!m->data)
        return ek_session_fail(k, EK_INPUT, "%s: expected data of %s, found NULL", what, name);
    if ((m->rows > 1 && !m->row_stride) || (m->columns > 1 && !m->column_stride))
        return ek_session_fail(k, EK_INPUT,
                               "%s: expected strides of %s other than 0, found [%lld, %lld]", what,
                               name, (long long)m->row_stride, (long long)m->column_stride);
    const size_t beyond = (uintptr_t)m->data % ek_type_bytes(m->type);
    if (beyond)
        return ek_session_fail(k, EK_INPUT,
                               "%s: expected %s aligned to %zu bytes, found it %zu bytes beyond",
                               what, name, ek_type_bytes(m->type), beyond);
    if (!find_memory(m, &low, &high))
        return ek_session_fail(k, EK_INPUT,
                               "%s: expected %s in memory, found strides of [%lld, %lld]", what,
                               name, (long long)m->row_stride, (long long)m->column_stride);
    return EK_DONE;
}

/* Whether rows or columns are contiguous and do not overlap. */
static int is_dense(const ek_result *m) {
    const int by_rows =
        (m->columns < 2 || m->column_stride == 1) && (m->rows < 2 || m->row_stride >= m->columns);
    const int by_columns =
        (m->rows < 2 || m->row_stride == 1) && (m->columns < 2 || m->column_stride >= m->rows);
    return by_rows || by_columns;
}

int ek_session_check_result(ek_kernels *k, const char *what, const char *name, const ek_result *m,
                            const ek_matrix *const *others, int count) {
    const ek_matrix read = {m->data, m->rows, m->columns, m->row_stride, m->column_stride, m->type};
    intptr_t low, high, first, end;
    int status = ek_session_check(k, what, name, &read);
    if (status)
        return status;
    if (m->rows && m->columns && !is_dense(m))
        return ek_session_fail(
            k, EK_INPUT,
            "%s: expected %s with adjacent elements in each row or column, found "
            "strides of [%lld, %lld]",
            what, name, (long long)m->row_stride, (long long)m->column_stride);
    find_memory(&read, &low, &high);
    for (int i = 0; i < count; i++) {
        find_memory(others[i], &first, &end);
        if (low < end && first < high)
            return ek_session_fail(k, EK_INPUT,
                                   "%s: expected %s apart from the operands, found shared memory",
                                   what, name);
    }
    return EK_DONE;
}
