/* A C program on a board. argv: the board's folder, then the steps: `run` prints the release and
 * the outputs for x = 1 2 3 4; `refresh`, `fail` and `alive` call the API; `wait` reads a line;
 * `again` opens the model once more, for a moment; it prints the threads before, during and after.
 * The environment variable THREADS sets the number of threads per inference. */
#include "ek_app.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count_threads(void) {
    DIR *all = opendir("/proc/self/task");
    int found = -2; /* . and .. */
    while (all && readdir(all))
        ++found;
    closedir(all);
    return found;
}

int main(int count, char **argument) {
    char error[512] = "", release[EK_APP_RELEASE_BYTES];
    const char *threads = getenv("THREADS");
    ek_app *app = ek_app_open(argument[1], NULL, threads ? atoi(threads) : 2, error, sizeof error);
    if (!app) {
        printf("%s\n", error);
        return 1;
    }
    const float x[4] = {1, 2, 3, 4};
    float y[4];
    for (int i = 2; i < count; ++i) {
        if (!strcmp(argument[i], "wait"))
            getchar();
        else if (!strcmp(argument[i], "refresh"))
            printf("%d %s\n", ek_app_refresh(app), ek_app_error(app));
        else if (!strcmp(argument[i], "fail"))
            printf("%d\n", ek_app_report_failure(app, "no faces"));
        else if (!strcmp(argument[i], "again")) {
            int before = count_threads();
            ek_app *other = ek_app_open(argument[1], NULL, atoi(threads), error, sizeof error);
            int during = count_threads();
            ek_app_close(app);
            app = other;
            printf("%d %d %d\n", before, during, count_threads());
        } else if (!strcmp(argument[i], "alive"))
            ek_app_alive("looks\nfor faces"), puts("");
        else if (!ek_app_run(app, (const void *const[]){x}, (void *const[]){y}, release))
            printf("%s %g %g %g %g\n", release, y[0], y[1], y[2], y[3]);
        fflush(stdout);
    }
    ek_app_close(app);
    return 0;
}
