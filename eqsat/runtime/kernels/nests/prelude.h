/* What every kernel in C may use: element types, functions that C lacks or defines otherwise than NumPy does, and vectors.
   GNU C, as gcc, clang and zig compile it. */
#include <math.h>
#include <stdbool.h>

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { u16 bits; } f16;
typedef struct { u16 bits; } bf16;

/* The elements of an array of NumPy: the field behind the head of the object, which its interface keeps in place. */
#ifndef OBJECT_HEAD
#define OBJECT_HEAD 16
#endif
#define DATA(array) (*(void **)((char *)(array) + OBJECT_HEAD))

#define INLINE static inline __attribute__((always_inline, unused))

/* ---- floats of 16 bits ---- */
INLINE float float_of_bits(u32 bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
INLINE u32 bits_of_float(float x) { u32 bits; __builtin_memcpy(&bits, &x, 4); return bits; }
INLINE u64 bits_of_double(double x) { u64 bits; __builtin_memcpy(&bits, &x, 8); return bits; }
INLINE float widen_f16(f16 x) {
  u32 sign = (u32)(x.bits & 0x8000u) << 16, most = x.bits & 0x7fffu;
  float size = most >= 0x7c00u ? float_of_bits((most << 13) + 0x70000000u)
             : most < 0x400u ? (float)most * 5.9604644775390625e-8f : float_of_bits((most << 13) + 0x38000000u);
  return float_of_bits(bits_of_float(size) | sign);
}
INLINE float widen_bf16(bf16 x) { return float_of_bits((u32)x.bits << 16); }
#define widen(x) _Generic((x), f16: widen_f16, bf16: widen_bf16)(x)
/* To nearest, ties to even; too large becomes infinite. */
INLINE f16 narrow_f16(float x) {
  u32 bits = bits_of_float(x), sign = (bits >> 16) & 0x8000u, most = bits & 0x7fffffffu, made;
  if (most > 0x7f800000u) made = 0x7e00u;
  else if (most >= 0x477ff000u) made = 0x7c00u;
  else if (most < 0x38800000u) made = (u32)rintf(float_of_bits(most) * 16777216.0f);
  else made = (most + 0xfffu + ((most >> 13) & 1u) - 0x38000000u) >> 13;
  f16 narrow = {(u16)(sign | made)};
  return narrow;
}
INLINE bf16 narrow_bf16(float x) {
  u32 bits = bits_of_float(x);
  bf16 narrow = {x != x ? 0x7fc0 : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
  return narrow;
}

/* ---- integers that wrap around; compiled with -fwrapv ---- */
#define sum(a, b) ((__typeof__(a))((a) + (b)))
#define difference(a, b) ((__typeof__(a))((a) - (b)))
#define product(a, b) ((__typeof__(a))((u64)(a) * (u64)(b)))
#define magnitude(x) ({ const __typeof__(x) x_ = (x); (__typeof__(x))(x_ < 0 ? -x_ : x_); })
#define signum(x) ({ const __typeof__(x) x_ = (x); (__typeof__(x))(x_ > 0 ? 1 : x_ < 0 ? -1 : x_ == 0 ? 0 : x_); })
/* Cut toward zero; by 0 it is 0. The least integer has no opposite, and what divides it by -1 would trap. */
#define quotient(a, b) ({ const __typeof__(a) a_ = (a), b_ = (b); \
  (__typeof__(a))(b_ == 0 ? 0 : b_ == (__typeof__(a))-1 && (__typeof__(a))-1 < 0 ? -a_ : a_ / b_); })
/* A division that fails where the divisor is 0. */
#define CHECKED(divide, a, b) ({ const __typeof__(b) d_ = (b); failed |= d_ == 0; divide(a, d_); })
/* A subscript that fails where it passes the bounds. */
#define INSIDE(index, extent) ({ const i64 i_ = (index); const int out_ = i_ < 0 || i_ >= (extent); \
  failed |= out_; out_ ? 0 : i_; })

/* Of two numbers one of which is NaN, NaN is both the larger and the smaller. */
#define maximum(a, b) ({ const __typeof__(a) a_ = (a), b_ = (b); a_ > b_ || a_ != a_ ? a_ : b_; })
#define minimum(a, b) ({ const __typeof__(a) a_ = (a), b_ = (b); a_ < b_ || a_ != a_ ? a_ : b_; })

/* Floats as integers, cut toward zero. What does not fit, NaN included, becomes what x86 makes of it. */
INLINE i64 whole(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (i64)x : (i64)(1ull << 63); }
INLINE i32 whole32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (i32)x : (i32)(1u << 31); }
INLINE i8 truncated_i8(double x) { return (i8)whole32(x); }
INLINE i16 truncated_i16(double x) { return (i16)whole32(x); }
INLINE i32 truncated_i32(double x) { return whole32(x); }
INLINE i64 truncated_i64(double x) { return whole(x); }
INLINE u8 truncated_u8(double x) { return (u8)whole32(x); }
INLINE u16 truncated_u16(double x) { return (u16)whole32(x); }
INLINE u32 truncated_u32(double x) { return (u32)whole(x); }
INLINE u64 truncated_u64(double x) {
  return x >= 9223372036854775808.0 ? (1ull << 63) + (u64)whole(x - 9223372036854775808.0) : (u64)whole(x);
}

/* ---- remainders, powers and shifts, one function for each type ---- */
#define OF_INTEGERS(T) \
  INLINE T cut_remainder_##T(T a, T b) { return b == 0 || (b == (T)-1 && (T)-1 < 0) ? 0 : (T)(a % b); } \
  INLINE T remainder_of_##T(T a, T b) { \
    const T rest = cut_remainder_##T(a, b); \
    return rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest; \
  } \
  /* To a negative power, what is left of the fraction. */ \
  INLINE T power_##T(T base, i64 exponent) { \
    if (exponent < 0) return truncated_##T(pow((double)base, (double)exponent)); \
    T made = 1; \
    for (u64 left = (u64)exponent; left; left >>= 1) { \
      if (left & 1) made = product(made, base); \
      base = product(base, base); \
    } \
    return made; \
  } \
  /* By as many bits as there are, or more, or less than none, nothing but the sign is left. */ \
  INLINE T left_shift_##T(T a, T b) { return b >= 0 && (u64)b < sizeof(T) * 8 ? (T)((u64)a << (u64)b) : (T)0; } \
  INLINE T right_shift_##T(T a, T b) { \
    return b >= 0 && (u64)b < sizeof(T) * 8 ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0; \
  }
OF_INTEGERS(i8) OF_INTEGERS(i16) OF_INTEGERS(i32) OF_INTEGERS(i64)
OF_INTEGERS(u8) OF_INTEGERS(u16) OF_INTEGERS(u32) OF_INTEGERS(u64)
/* The remainder that has the sign of the divisor. */
INLINE double remainder_of_double(double a, double b) {
  const double rest = fmod(a, b);
  return rest == 0 ? copysign(0.0, b) : (rest < 0) != (b < 0) && rest == rest ? rest + b : rest;
}
INLINE float remainder_of_float(float a, float b) {
  const float rest = fmodf(a, b);
  return rest == 0 ? copysignf(0.0f, b) : (rest < 0) != (b < 0) && rest == rest ? rest + b : rest;
}
#define INTEGER_TYPES(name) \
  i8: name##_i8, i16: name##_i16, i32: name##_i32, i64: name##_i64, u8: name##_u8, u16: name##_u16, \
  u32: name##_u32, u64: name##_u64
#define cut_remainder(a, b) _Generic((a), float: fmodf, double: fmod, INTEGER_TYPES(cut_remainder))(a, b)
#define remainder_of(a, b) \
  _Generic((a), float: remainder_of_float, double: remainder_of_double, INTEGER_TYPES(remainder_of))(a, b)
#define power(a, b) _Generic((a), INTEGER_TYPES(power))(a, b)
#define left_shift(a, b) _Generic((a), INTEGER_TYPES(left_shift))(a, b)
#define right_shift(a, b) _Generic((a), INTEGER_TYPES(right_shift))(a, b)

/* ---- activations ---- */
INLINE float sigmoid_float(float x) { return 1.0f / (1.0f + expf(-x)); }
INLINE double sigmoid_double(double x) { return 1.0 / (1.0 + exp(-x)); }
#define sigmoid(x) _Generic((x), float: sigmoid_float, double: sigmoid_double)(x)
/* log(1 + exp(x)) without overflow. */
INLINE float softplus_float(float x) { return maximum(x, 0.0f) + log1pf(expf(-fabsf(x))); }
INLINE double softplus_double(double x) { return maximum(x, 0.0) + log1p(exp(-fabs(x))); }
#define softplus(x) _Generic((x), float: softplus_float, double: softplus_double)(x)

/* ---- functions that C's library lacks ---- */
INLINE double sinpi(double x) {
  const double rest = fmod(x, 2), halves = rint(2 * rest), angle = 3.14159265358979323846 * (rest - halves / 2);
  const int turn = ((int)halves % 4 + 4) % 4;
  const double made = turn % 2 ? cos(angle) : sin(angle);
  return x - x != 0 ? NAN : turn > 1 ? -made : made;
}
INLINE double cospi(double x) { return sinpi(fabs(fmod(x, 2)) + 0.5); }
INLINE float sinpif(float x) { return (float)sinpi(x); }
INLINE float cospif(float x) { return (float)cospi(x); }
INLINE double exp10_(double x) { return pow(10.0, x); }
#define exp10(x) exp10_(x)
#define exp10f(x) ((float)exp10_(x))
INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
INLINE double rcbrt(double x) { return 1.0 / cbrt(x); }
INLINE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
INLINE double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
INLINE float normcdff(float x) { return (float)normcdf(x); }
INLINE double norm3d(double a, double b, double c) { return hypot(hypot(a, b), c); }
INLINE double norm4d(double a, double b, double c, double d) { return hypot(norm3d(a, b, c), d); }
INLINE double rhypot(double a, double b) { return 1.0 / hypot(a, b); }
INLINE double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
INLINE double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
#define norm3df(a, b, c) ((float)norm3d(a, b, c))
#define norm4df(a, b, c, d) ((float)norm4d(a, b, c, d))
#define rhypotf(a, b) ((float)rhypot(a, b))
#define rnorm3df(a, b, c) ((float)rnorm3d(a, b, c))
#define rnorm4df(a, b, c, d) ((float)rnorm4d(a, b, c, d))
#define j0f(x) ((float)j0(x))
#define j1f(x) ((float)j1(x))
#define y0f(x) ((float)y0(x))
#define y1f(x) ((float)y1(x))
