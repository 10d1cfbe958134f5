/* Tables of what two weights of a column can make of two values of a row, for grouped_row.c. */
#ifndef EK_OUTLIER_ROW_TABLES_H
#define EK_OUTLIER_ROW_TABLES_H
#include "grouped_row.h"

typedef struct {
    long group;     /* values of x that share a scale of tables; a multiple of 8, at most 256 */
    const float *x; /* [groups * group] */
    const int32_t *channel, *count; /* outliers, in ascending order: they count as 0 */
    int8_t *to;                     /* [groups * group / 2][EK_ROW_TABLE] */
    float *scale;                   /* [groups] of sums, */
    int32_t *sum;                   /* [groups] which this is added to */
} ek_row_tables_args;
#endif
