#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

/// Elementary functions of additions, multiplications, divisions and roots alone, so that they give the same bits on
/// every machine: C libraries choose theirs by the processor. Errors are below one unit in the last place; of `Asinh`,
/// and of `Pow` far from 1, below two (tests/unit/test_elementary.py).
///
/// `bbrgym export` copies the functions that it needs into C headers, so they must be C99, too.
namespace bbrgym {

/* hi + lo, where hi is the nearest double. */
typedef struct {
  double hi;
  double lo;
} Twofold;

static inline double FromBits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint64_t ToBits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The first 26 bits of x: the product of two such numbers is exact. */
static inline double Head(double x) {
  return FromBits(ToBits(x) & ~(uint64_t)0x7FFFFFF);
}

/* a + b without an error, for |a| >= |b| or a = 0 (Dekker, "A floating-point technique for extending the available
   precision", 1971). */
static inline Twofold Sum(double a, double b) {
  const double hi = a + b;
  const Twofold sum = {hi, (a - hi) + b};
  return sum;
}

/* a (b_hi + b_lo), where b_hi has at most 26 bits. */
static inline Twofold Product(Twofold a, double b_hi, double b_lo) {
  const double head = Head(a.hi);
  return Sum(head * b_hi, ((a.hi - head) + a.lo) * b_hi + a.hi * b_lo);
}

/* log2(x) for finite x > 0, to 2^-59 of it: x = 2^exponent m, with m from sqrt(1/2) to sqrt(2), and
   log2(m) = 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1). */
static inline Twofold Log2Parts(double x) {
  const uint64_t root = 0x3FE6A09E00000000; /* of 1/2 */
  const int is_subnormal = x < 2.2250738585072014e-308;
  const uint64_t bits = ToBits(is_subnormal ? x * 18014398509481984.0 : x) + (0x3FF0000000000000 - root);
  const double exponent = (double)((int)(bits >> 52) - (is_subnormal ? 1023 + 54 : 1023));
  const double m = FromBits((bits & 0xFFFFFFFFFFFFF) + root);
  const double f = m - 1.0;
  const double g = m + 1.0;
  const double g_head = Head(g);
  const double inverse = 1.0 / g;
  const double s = f * inverse;
  const double s_head = Head(s);
  const double s_rest = ((f - s_head * g_head) - s_head * ((1.0 - g_head) + m)) * inverse;
  const double z = s * s;
  const double w = z * z;
  const double odd = 1.0 / 3.0 + w * (1.0 / 7.0 + w * (1.0 / 11.0 + w * (1.0 / 15.0 + w * (1.0 / 19.0 + w / 23.0))));
  const double even = 1.0 / 5.0 + w * (1.0 / 9.0 + w * (1.0 / 13.0 + w * (1.0 / 17.0 + w / 21.0)));
  const double rest = s_rest + s * (z * (odd + z * even));
  const Twofold sum = Sum(exponent, 2.885390043258667 * s_head);
  return Sum(sum.hi, sum.lo + (2.8853900817779268 * rest + 3.851925982253235e-08 * s_head));
}

/* 2^x, 0 if it is below the smallest double and infinity above the largest: x = quarters / 4 + r. */
static inline Twofold Exp2Parts(Twofold x) {
  static const Twofold roots[4] = {{1.0, 0.0},
                                   {1.189207115002721, 3.982015231465646e-17},
                                   {1.4142135623730951, -9.667293313452913e-17},
                                   {1.681792830507429, 8.199010020581497e-17}};
  const double to_integer = 6755399441055744.0; /* 1.5 x 2^52: its last bit is 1 */
  const double rounded = (4.0 * x.hi + to_integer) - to_integer;
  const double r = ((x.hi - 0.25 * rounded) + x.lo) * 0.6931471805599453;
  const double w = r * r;
  const double odd = 1.0 / 6.0 + w * (1.0 / 120.0 + w * (1.0 / 5040.0 + w / 362880.0));
  const double even = 1.0 / 2.0 + w * (1.0 / 24.0 + w * (1.0 / 720.0 + w * (1.0 / 40320.0 + w / 3628800.0)));
  if (!(x.hi < 1024.0 && x.hi > -1100.0)) {
    const Twofold limit = {x.hi >= 1024.0 ? INFINITY : x.hi <= -1100.0 ? 0.0 : x.hi, 0.0};
    return limit;
  }
  const int quarters = (int)rounded;
  const Twofold root = roots[quarters & 3];
  const int exponent = (quarters - (quarters & 3)) / 4;
  /* In two steps: a power of 2 is larger than the largest double, or smaller than the smallest normal one. */
  const double scale = FromBits((uint64_t)(exponent / 2 + 1023) << 52);
  const double rest_scale = FromBits((uint64_t)(exponent - exponent / 2 + 1023) << 52);
  const Twofold value = Sum(root.hi, root.lo + root.hi * (r + w * (even + r * odd)));
  const Twofold scaled = {value.hi * scale * rest_scale, value.lo * scale * rest_scale};
  return scaled;
}

static inline int HasLog(double x) {
  return x > 0.0 && x < INFINITY;
}

/* The logarithm of all other numbers. */
static inline double NoLog(double x) {
  return x == 0.0 ? -INFINITY : x > 0.0 ? x : NAN;
}

static inline double Log2(double x) {
  return HasLog(x) ? Log2Parts(x).hi : NoLog(x);
}

static inline double Log(double x) {
  return HasLog(x) ? Product(Log2Parts(x), 0.6931471675634384, 1.2996506893889889e-08).hi : NoLog(x);
}

static inline double Log10(double x) {
  return HasLog(x) ? Product(Log2Parts(x), 0.3010299950838089, 5.801722962879576e-10).hi : NoLog(x);
}

static inline double Exp2(double x) {
  const Twofold parts = {x, 0.0};
  return Exp2Parts(parts).hi;
}

/* e^x for |x| < 1e300. */
static inline Twofold ExpParts(double x) {
  const Twofold parts = {x, 0.0};
  return Exp2Parts(Product(parts, 1.4426950216293335, 1.9259629911266175e-08));
}

static inline double Exp(double x) {
  return ExpParts(x).hi;
}

/* tanh with an error of at most 1e-8: the Pade approximant of order [7/6] at x / 4, then twice
   tanh 2x = 2 tanh x / (1 + tanh^2 x), on numerator and denominator. Beyond 9.2 it is 1 in single precision. */
static inline float Tanh(float x) {
  const double y = (x < -9.2 ? -9.2 : x > 9.2 ? 9.2 : (double)x) / 4.0;
  const double s = y * y;
  double p = y * (135135.0 + s * (17325.0 + s * (378.0 + s)));
  double q = 135135.0 + s * (62370.0 + s * (3150.0 + s * 28.0));
  for (int i = 0; i < 2; ++i) {
    const double numerator = 2.0 * p * q;
    q = p * p + q * q;
    p = numerator;
  }
  return (float)(p / q);
}

/* x^y for finite x > 0, and 0 for x = 0. */
static inline double Pow(double x, double y) {
  if (!HasLog(x)) return x == 0.0 ? 0.0 : NAN;
  return Exp2Parts(Product(Log2Parts(x), Head(y), y - Head(y))).hi;
}

static inline double Cube(double x) {
  return x * x * x;
}

/* The cube root of a finite x >= 0. */
static inline double Cbrt(double x) {
  return x == 0.0 ? 0.0 : Exp2Parts(Product(Log2Parts(x), 0.3333333283662796, 4.967053731282552e-09)).hi;
}

/* For |x| < 700. */
static inline double Sinh(double x) {
  if (fabs(x) <= 1.0) {
    const double z = x * x;
    const double w = z * z;
    const double odd =
        1.0 / 6.0 +
        w * (1.0 / 5040.0 + w * (1.0 / 39916800.0 + w * (1.0 / 1307674368000.0 + w / 121645100408832000.0)));
    const double even = 1.0 / 120.0 + w * (1.0 / 362880.0 + w * (1.0 / 6227020800.0 + w / 355687428096000.0));
    return x + x * (z * (odd + z * even));
  }
  const Twofold e = ExpParts(fabs(x));
  const double twice = e.hi + (e.lo - 1.0 / e.hi);
  return x < 0.0 ? -0.5 * twice : 0.5 * twice;
}

/* For |x| < 1e150: a logarithm, and a step of Newton's method, since it cancels for small x. */
static inline double Asinh(double x) {
  const double root = sqrt(x * x + 1.0);
  const double y = Log(fabs(x) + root);
  const double better = y - (Sinh(y) - fabs(x)) / root;
  return x < 0.0 ? -better : better;
}

}  // namespace bbrgym
