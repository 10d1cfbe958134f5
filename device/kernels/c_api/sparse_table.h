/* On-board look-up of a matrix's storage: the rules of device/runtime/arrays/sparse_table.py and
 * sparse_blocks.py in C. */
#ifndef EK_SPARSE_TABLE_H
#define EK_SPARSE_TABLE_H
#include "../sparse/sparse.h"

enum { EK_SPARSE_NAME = 64 };

typedef struct {
    int32_t dtype, rows, mean, spread, band; /* the key: positions in sequences, and classes */
    int32_t by_rule;                         /* nothing beat the patent's rule */
    ek_sparse_settings how;
    char matrix[EK_SPARSE_NAME];
} ek_sparse_row;

typedef struct {
    char platform[EK_SPARSE_NAME];
    int64_t count;
    ek_sparse_row row[];
} ek_sparse_table;

typedef enum { EK_SPARSE_EXACT = 0, EK_SPARSE_NEAREST = 1, EK_SPARSE_PATENT = 2 } ek_sparse_rule;

typedef struct {
    ek_sparse_settings how;
    int rule; /* ek_sparse_rule */
    char why[240];
} ek_sparse_answer;

/* Reads the text of a table; NULL if it is damaged or of another schema, or without memory. */
ek_sparse_table *ek_sparse_table_open(const char *text);
void ek_sparse_table_close(ek_sparse_table *table);

/* The settings for a matrix that has passed ek_rows_check. */
ek_sparse_answer ek_sparse_table_find(const ek_sparse_table *table, const ek_rows *matrix);
#endif
