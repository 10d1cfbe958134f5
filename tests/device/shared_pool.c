/* How many threads a program has that opens kernels twice, and a model if one is deployed, for
 * three threads each. argv: the board's folder. */
#include "ek_app.h"
#include "ek_gemm.h"

#include <dirent.h>
#include <stdio.h>

static int threads(void) {
    int count = -2; /* . and .. */
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count;
}

static int multiply(ek_kernels *kernels) {
    static const float a[64 * 64], b[64 * 64];
    static float c[64 * 64];
    const ek_matrix left = {a, 64, 64, 64, 1, EK_F32}, right = {b, 64, 64, 64, 1, EK_F32};
    const ek_result product = {c, 64, 64, 64, 1, EK_F32};
    return ek_gemm(kernels, &left, &right, NULL, &product, 3);
}

int main(int argc, char **argv) {
    char error[512] = "";
    ek_kernels *one, *two;
    ek_app *app = argc > 1 ? ek_app_open(argv[1], NULL, 3, error, sizeof error) : NULL;
    if (!app || ek_kernels_open(argv[1], "kernels", &one, error, sizeof error) ||
        ek_kernels_open(argv[1], "kernels", &two, error, sizeof error))
        return fprintf(stderr, "%s\n", error), 1;
    const int alone = threads();
    if (multiply(one) || multiply(two))
        return fprintf(stderr, "%s%s\n", ek_kernels_error(one), ek_kernels_error(two)), 1;
    printf("%d %d", alone, threads());
    ek_app_close(app);
    printf(" %d", threads());
    ek_kernels_close(one);
    printf(" %d", multiply(two));
    ek_kernels_close(two);
    printf(" %d\n", threads());
    return 0;
}
