#include "sd_notify.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "ek_app.h"

enum { SHARE = 4 }; /* keep-alives per watchdog period */
static const uint64_t microsecond = 1000, unwatched = 60000000;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next;

static void notify(const char *text) {
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = name ? strlen(name) : 0;
    if (!size || size >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, name, size);
    if (*name == '@')
        address.sun_path[0] = 0;
    int to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (to < 0)
        return;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    sendto(to, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address, bytes);
    close(to);
}

void ek_send_heartbeat(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    pthread_mutex_lock(&lock);
    int due = now >= next;
    if (due) {
        const char *period = getenv("WATCHDOG_USEC");
        uint64_t every = period ? strtoull(period, NULL, 10) : 0;
        next = now + (every ? every : unwatched) / SHARE * microsecond;
    }
    pthread_mutex_unlock(&lock);
    if (due)
        notify("WATCHDOG=1");
}

void ek_app_alive(const char *status) {
    char text[512];
    if (!status || !*status) {
        ek_send_heartbeat();
        return;
    }
    snprintf(text, sizeof text, "STATUS=%.400s", status);
    for (char *c = text; *c; ++c)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    strcat(text, "\nWATCHDOG=1");
    notify(text);
}
