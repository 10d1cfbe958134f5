/* The C library functions used by compiled models and kernels, which the runner provides. */
#ifndef EK_SYMBOLS_H
#define EK_SYMBOLS_H

#define EK_SYMBOLS(X)                                                                              \
    X(__sched_cpucount)                                                                            \
    X(abort)                                                                                       \
    X(acosf)                                                                                       \
    X(acoshf)                                                                                      \
    X(aligned_alloc)                                                                               \
    X(asinf)                                                                                       \
    X(asinhf)                                                                                      \
    X(atan2f)                                                                                      \
    X(atanf)                                                                                       \
    X(atanhf)                                                                                      \
    X(bcmp)                                                                                        \
    X(calloc)                                                                                      \
    X(ceilf)                                                                                       \
    X(cosf)                                                                                        \
    X(coshf)                                                                                       \
    X(floorf)                                                                                      \
    X(fmaxf)                                                                                       \
    X(fminf)                                                                                       \
    X(fmodf)                                                                                       \
    X(free)                                                                                        \
    X(getauxval)                                                                                   \
    X(log1p)                                                                                       \
    X(madvise)                                                                                     \
    X(malloc)                                                                                      \
    X(memcmp)                                                                                      \
    X(memcpy)                                                                                      \
    X(memmove)                                                                                     \
    X(memset)                                                                                      \
    X(posix_memalign)                                                                              \
    X(powf)                                                                                        \
    X(pthread_attr_destroy)                                                                        \
    X(pthread_attr_init)                                                                           \
    X(pthread_attr_setstacksize)                                                                   \
    X(pthread_cond_broadcast)                                                                      \
    X(pthread_cond_destroy)                                                                        \
    X(pthread_cond_init)                                                                           \
    X(pthread_cond_wait)                                                                           \
    X(pthread_create)                                                                              \
    X(pthread_equal)                                                                               \
    X(pthread_join)                                                                                \
    X(pthread_mutex_destroy)                                                                       \
    X(pthread_mutex_init)                                                                          \
    X(pthread_mutex_lock)                                                                          \
    X(pthread_mutex_unlock)                                                                        \
    X(pthread_self)                                                                                \
    X(realloc)                                                                                     \
    X(rintf)                                                                                       \
    X(roundf)                                                                                      \
    X(sched_yield)                                                                                 \
    X(sinf)                                                                                        \
    X(sinhf)                                                                                       \
    X(sqrt)                                                                                        \
    X(sqrtf)                                                                                       \
    X(strchr)                                                                                      \
    X(strcmp)                                                                                      \
    X(strcspn)                                                                                     \
    X(strlen)                                                                                      \
    X(strncmp)                                                                                     \
    X(strstr)                                                                                      \
    X(tanf)

#endif
