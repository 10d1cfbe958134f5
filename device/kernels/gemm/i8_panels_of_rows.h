/* The function of i8_panels_at_once.h, AT_ONCE, for tiles of ROWS rows; included for each number.
 */
#if ROWS > 2
#define PO_OF_2(text) text
#else
#define PO_OF_2(text)
#endif
#if ROWS > 3
#define PO_OF_3(text) text
#else
#define PO_OF_3(text)
#endif

/* Stores ROWS rows, packed in steps of four, times `panels` panels, `apart` bytes from one to the
 * next. Before the first tile is multiplied, the zeros that are no sums are stored in its place. */
static void AT_ONCE(const i8_row *rows, long steps, const i8_value *w, long apart, long panels,
                    int32_t *const c[4]) {
    vi s[4][4] = {{{0}}}, x[4], y[4], p[4] = {{0}}, b = i8_vector(w), c_ = {0};
    const i8_row *a = rows;
    long n = steps, gap = apart - steps * 4 * I8_STEP, at = 0, onward = 0, t;
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        x[i] = i8_vector(a + i * I8_STEP);
    __asm__ volatile(
        "1:\n" PO_FIRST(x, y) "b.ne 4f\n"
                              "2:\n" PO_FIRST(y, x) "b.eq 1b\n"
                                                    "3:\n" PO_STEP(x, y) "b.eq 2b\n"
                                                                         "4:\n" PO_STEP(
                                                                             y, x) "b.ne 3b\n"
                                                                                   "b 1b\n"
                                                                                   "9:\n" PO_ADD(3,
                                                                                                 3)
        : PO_SUMS(0), PO_SUMS(1), PO_SUMS(2), PO_SUMS(3), [x0] "+w"(x[0]), [x1] "+w"(x[1]),
          [x2] "+w"(x[2]), [x3] "+w"(x[3]), [y0] "=&w"(y[0]), [y1] "=&w"(y[1]), [y2] "=&w"(y[2]),
          [y3] "=&w"(y[3]), [b] "+w"(b), [c] "+w"(c_), [p0] "+w"(p[0]), [p1] "+w"(p[1]),
          [p2] "+w"(p[2]), [p3] "+w"(p[3]), [a] "+&r"(a), [w] "+&r"(w), [n] "+&r"(n), [t] "=&r"(t),
          [panels] "+&r"(panels), [gap] "+&r"(gap), [at] "+&r"(at), [onward] "+&r"(onward)
        : [first] "r"(rows), [steps] "r"(steps), [last] "r"(-4L * I8_STEP), [c0] "r"(c[0]),
          [c1] "r"(c[1]), [c2] "r"(c[2]), [c3] "r"(c[3])
        : "cc", "memory");
    EK_UNROLL
    for (int i = 0; i < ROWS; i++)
        vi_store((int32_t *)((char *)c[i] + at), vi_sum4(s[i][0], s[i][1], s[i][2], s[i][3]));
}

#undef PO_OF_2
#undef PO_OF_3
#undef AT_ONCE
#undef ROWS
