/* The functions of <math.h> that kernels call, accurate to about one unit in the last place of a
 * float. Sums of series are computed in double precision. */
#include <math.h>
#include <stdint.h>

/* Instructions: the runner is compiled without builtin functions, which these files define. */
#define fabs __builtin_fabs
#define fabsf __builtin_fabsf
#define copysign __builtin_copysign
#define copysignf __builtin_copysignf

static const double LN2_HIGH = 0x1.62e42fefa38p-1, LN2_LOW = 0x1.ef35793c7673p-45;
static const double HALF_PI = 0x1.921fb54442d18p+0;
static const double HALF_PI_HIGH = 0x1.921fb544p+0, HALF_PI_LOW = 0x1.0b4611a626331p-34;

typedef union {
    double value;
    uint64_t bits;
} parts;

/* The nearest integer; for magnitudes below 2^51. */
static double nearest(double x) {
    const double shift = 0x1.8p52;
    return x + shift - shift;
}

static double power_of_2(int exponent) {
    return (parts){.bits = (uint64_t)(exponent + 1023) << 52}.value;
}

static int exponent_of(double x) {
    return (int)((parts){x}.bits >> 52 & 2047) - 1023;
}

/* first + x (c[0] + x (c[1] + ...)) */
static double series(double first, double x, const double *c, int count) {
    double sum = 0;
    while (count--)
        sum = x * (c[count] + sum);
    return first + sum;
}

/* exp(n ln2 + r) = 2^n exp(r); results beyond the range of a float may be inexact. */
static double exponential(double x) {
    static const double c[] = {1,        1. / 2,    1. / 6,     1. / 24,     1. / 120,
                               1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800};
    if (x != x)
        return x;
    x = x > 200 ? 200 : x < -200 ? -200 : x;
    const double n = nearest(x / (LN2_HIGH + LN2_LOW)), r = x - n * LN2_HIGH - n * LN2_LOW;
    return series(1, r, c, 10) * power_of_2((int)n);
}

/* log(2^n m) = n ln2 + 2 artanh((m - 1) / (m + 1)), m between sqrt(1/2) and sqrt(2) */
static double logarithm(double x) {
    static const double c[] = {1. / 3,  1. / 5,  1. / 7,  1. / 9,  1. / 11,
                               1. / 13, 1. / 15, 1. / 17, 1. / 19, 1. / 21};
    if (!(x > 0) || x == INFINITY)
        return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    int n = exponent_of(x);
    double m = x * power_of_2(-n);
    if (m > M_SQRT2)
        m /= 2, n++;
    const double s = (m - 1) / (m + 1);
    return n * LN2_HIGH + (n * LN2_LOW + 2 * s * series(1, s * s, c, 10));
}

/* Sine of x + quarters pi/2; inexact beyond 2^20. */
static double sine(double x, int quarters) {
    static const double odd[] = {-1. / 6,     1. / 120,       -1. / 5040,
                                 1. / 362880, -1. / 39916800, 1. / 6227020800};
    static const double even[] = {-1. / 2,    1. / 24,       -1. / 720,
                                  1. / 40320, -1. / 3628800, 1. / 479001600};
    if (!(fabs(x) < 0x1p50))
        return fabs(x) < INFINITY ? 0 : NAN;
    const double n = nearest(x / HALF_PI), r = x - n * HALF_PI_HIGH - n * HALF_PI_LOW;
    quarters += (int)(n - 4 * nearest(n / 4));
    const double made = quarters & 1 ? series(1, r * r, even, 6) : r * series(1, r * r, odd, 6);
    return quarters & 2 ? -made : made;
}

/* For x from 0 to 1; above tan(pi/12) from the difference to pi/6. */
static double arc_tangent(double x) {
    static const double c[] = {-1. / 3, 1. / 5, -1. / 7, 1. / 9, -1. / 11, 1. / 13, -1. / 15};
    const double root = 1.7320508075688772, sixth = HALF_PI / 3;
    const int far = x > 0.2679491924311227;
    const double t = far ? (x * root - 1) / (x + root) : x;
    return (far ? sixth : 0) + t * series(1, t * t, c, 7);
}

static double angle(double y, double x) {
    const double a = fabs(y), b = fabs(x), low = a < b ? a : b, high = a < b ? b : a;
    if (x != x || y != y)
        return NAN;
    double found = low == high ? (high == 0 ? 0 : HALF_PI / 2) : arc_tangent(low / high);
    found = a > b ? HALF_PI - found : found;
    return copysign(signbit(x) ? 2 * HALF_PI - found : found, y);
}

float sinf(float x) {
    return (float)sine(x, 0);
}

float cosf(float x) {
    return (float)sine(x, 1);
}

float tanf(float x) {
    return (float)(sine(x, 0) / sine(x, 1));
}

float atan2f(float y, float x) {
    return (float)angle(y, x);
}

float atanf(float x) {
    return (float)angle(x, 1);
}

float asinf(float x) {
    return (float)angle(x, sqrt((1 - (double)x) * (1 + (double)x)));
}

float acosf(float x) {
    return (float)angle(sqrt((1 - (double)x) * (1 + (double)x)), x);
}

/* Below this magnitude, the odd functions of the following ones are their argument. */
static const float TINY = 1e-4f;

float sinhf(float x) {
    return fabsf(x) < TINY ? x : (float)((exponential(x) - exponential(-(double)x)) / 2);
}

float coshf(float x) {
    return (float)((exponential(x) + exponential(-(double)x)) / 2);
}

float asinhf(float x) {
    const double a = fabsf(x);
    return fabsf(x) < TINY ? x : (float)copysign(logarithm(a + sqrt(a * a + 1)), x);
}

float acoshf(float x) {
    return x < 1 ? NAN : (float)logarithm(x + sqrt((double)x * x - 1));
}

float atanhf(float x) {
    return fabsf(x) < TINY ? x : (float)(logarithm((1 + (double)x) / (1 - (double)x)) / 2);
}

/* For arguments that are not near 0. */
double log1p(double x) {
    return logarithm(1 + x);
}

float powf(float x, float y) {
    const double l = logarithm(fabsf(x));
    if (y == 0 || x == 1)
        return 1;
    if (x < 0 && x > -INFINITY && y != rintf(y))
        return NAN;
    const double made = l == 0 ? 1 : exponential(y * l);
    const int odd = fabsf(fmodf(y, 2)) == 1;
    return (float)(odd && signbit(x) ? -made : made);
}

/* Each step subtracts the divisor times a power of two, which is exact. */
float fmodf(float x, float y) {
    double rest = fabsf(x);
    const double divisor = fabsf(y);
    if (!(rest < INFINITY) || !(divisor > 0))
        return NAN;
    while (divisor < INFINITY && rest >= divisor) {
        const double step = divisor * power_of_2(exponent_of(rest) - exponent_of(divisor));
        rest -= step > rest ? step / 2 : step;
    }
    return copysignf((float)rest, x);
}

float rintf(float x) {
    const float shift = 0x1p23f, a = fabsf(x);
    return a < shift ? copysignf(a + shift - shift, x) : x;
}

float floorf(float x) {
    const float near = rintf(x);
    return near > x ? near - 1 : near;
}

float ceilf(float x) {
    const float near = rintf(x);
    return copysignf(near < x ? near + 1 : near, x);
}

float roundf(float x) {
    const float below = floorf(fabsf(x));
    return copysignf(fabsf(x) - below >= 0.5f ? below + 1 : below, x);
}

float fmaxf(float x, float y) {
    return x > y || y != y ? x : y;
}

float fminf(float x, float y) {
    return x < y || y != y ? x : y;
}

double sqrt(double x) {
    return __builtin_sqrt(x);
}

float sqrtf(float x) {
    return __builtin_sqrtf(x);
}
