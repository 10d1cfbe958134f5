/* Threads that ask and answer at once: an answer that is found is the whole answer of its own
 * question, and the newest of a thread that is alone is always found.
 * Arguments: threads, questions of each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "gemm/kept.h"

#define QUESTIONS 3000 /* more than are kept */

static ek_gemm_kept kept;
static long questions;

static uint64_t hash_of(int i) {
    return (uint64_t)i * 0x9e3779b97f4a7c15u;
}

static ek_gemm_answer answer_of(int i) {
    ek_gemm_answer a = {.asked = {i, 2 * i, 3 * i, i % 12, i % 5}};
    a.how = (ek_gemm_method){i, -i, i + 1, i + 2, i + 3, i % 2, i % 3, i % 7};
    return a;
}

/* Whether it was found; ends the program if it is not the answer of that question. */
static int find(int i) {
    const ek_gemm_answer wanted = answer_of(i);
    ek_gemm_method how;
    int rule;
    if (!ek_gemm_kept_find(&kept, hash_of(i), &wanted.asked, &how, &rule))
        return 0;
    const ek_gemm_method *w = &wanted.how;
    if (rule == i % 6 && how.mc == w->mc && how.kc == w->kc && how.nc == w->nc && how.mr == w->mr &&
        how.nr == w->nr && how.pack_a == w->pack_a && how.pack_b == w->pack_b &&
        how.split == w->split)
        return 1;
    fprintf(stderr, "question %d has the answer of another\n", i);
    exit(1);
}

static void add(int i) {
    const ek_gemm_answer answer = answer_of(i);
    ek_gemm_kept_add(&kept, hash_of(i), &answer, i % 6);
}

static void *ask(void *seed) {
    unsigned random = *(unsigned *)seed;
    for (long n = 0; n < questions; n++) {
        const int i = rand_r(&random) % QUESTIONS;
        if (!find(i))
            add(i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    const int count = atoi(argv[1]);
    questions = atol(argv[2]);
    for (int i = 0; i < QUESTIONS; i++) {
        add(i);
        if (!find(i)) {
            fprintf(stderr, "question %d was just answered and is not found\n", i);
            return 1;
        }
    }
    pthread_t threads[16];
    unsigned seeds[16];
    for (int t = 0; t < count; t++) {
        seeds[t] = (unsigned)t;
        pthread_create(&threads[t], NULL, ask, &seeds[t]);
    }
    for (int t = 0; t < count; t++)
        pthread_join(threads[t], NULL);
    return 0;
}
