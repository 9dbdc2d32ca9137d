// Functions that CUDA has without a header, for a processor: with no header of the C++ library, which takes long.

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

#define UNARY(name)                \
  extern "C" double name(double);   \
  extern "C" float name##f(float);  \
  inline float name(float x) { return name##f(x); }
UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log10) UNARY(log1p) UNARY(sqrt) UNARY(cbrt)
UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos) UNARY(atan)
UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh) UNARY(acosh) UNARY(atanh)
UNARY(erf) UNARY(erfc) UNARY(lgamma) UNARY(tgamma)
UNARY(floor) UNARY(ceil) UNARY(round) UNARY(trunc) UNARY(rint) UNARY(nearbyint) UNARY(fabs) UNARY(logb)
UNARY(j0) UNARY(j1) UNARY(y0) UNARY(y1)
#undef UNARY
#define BINARY(name)                       \
  extern "C" double name(double, double);   \
  extern "C" float name##f(float, float);   \
  inline float name(float x, float y) { return name##f(x, y); }
BINARY(pow) BINARY(fmod) BINARY(atan2) BINARY(fmin) BINARY(fmax) BINARY(copysign) BINARY(remainder) BINARY(hypot)
BINARY(fdim) BINARY(nextafter)
#undef BINARY
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
// Functions of CUDA that no library of C has.
inline double sinpi(double x) {
  const double rest = fmod(x, 2), halves = rint(2 * rest), angle = 3.14159265358979323846 * (rest - halves / 2);
  const int turn = ((int)halves % 4 + 4) % 4;
  const double made = turn % 2 ? cos(angle) : sin(angle);
  return x - x != 0 ? x - x : turn > 1 ? -made : made;
}
inline double cospi(double x) { return sinpi(fabs(fmod(x, 2)) + 0.5); }
inline float sinpif(float x) { return (float)sinpi(x); }
inline float cospif(float x) { return (float)cospi(x); }
inline double exp10(double x) { return pow(10.0, x); }
inline float exp10f(float x) { return (float)exp10((double)x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
inline double norm3d(double a, double b, double c) { return hypot(hypot(a, b), c); }
inline double norm4d(double a, double b, double c, double d) { return hypot(norm3d(a, b, c), d); }
inline double rhypot(double a, double b) { return 1.0 / hypot(a, b); }
inline double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
inline double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
inline float rcbrtf(float x) { return (float)rcbrt(x); }
inline float normcdff(float x) { return (float)normcdf(x); }
inline float norm3df(float a, float b, float c) { return (float)norm3d(a, b, c); }
inline float norm4df(float a, float b, float c, float d) { return (float)norm4d(a, b, c, d); }
inline float rhypotf(float a, float b) { return (float)rhypot(a, b); }
inline float rnorm3df(float a, float b, float c) { return (float)rnorm3d(a, b, c); }
inline float rnorm4df(float a, float b, float c, float d) { return (float)rnorm4d(a, b, c, d); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

#define CLASSIFIED(T)                                       \
  inline bool isnan(T x) { return __builtin_isnan(x); }      \
  inline bool isinf(T x) { return __builtin_isinf(x) != 0; } \
  inline bool isfinite(T x) { return __builtin_isfinite(x); } \
  inline bool signbit(T x) { return __builtin_signbit(x) != 0; }
CLASSIFIED(float) CLASSIFIED(double)
#undef CLASSIFIED

#define ORDERED(T)                                  \
  inline T min(T x, T y) { return y < x ? y : x; }  \
  inline T max(T x, T y) { return x < y ? y : x; }
ORDERED(int) ORDERED(unsigned) ORDERED(long) ORDERED(unsigned long) ORDERED(long long) ORDERED(unsigned long long)
#undef ORDERED
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
extern "C" int abs(int);
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline long long abs(long long x) { return x < 0 ? -x : x; }

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bytes");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int x) { return same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
inline int __float_as_int(float x) { return same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }

template <class T>
inline T __ldg(const T* from) {
  return *from;
}
template <class T>
inline T exchanged(T* at, T now) {
  T was = *at;
  *at = now;
  return was;
}
#define ATOMIC(T)                                                                        \
  inline T atomicAdd(T* at, T by) { return exchanged(at, (T)(*at + by)); }                \
  inline T atomicMax(T* at, T other) { return exchanged(at, *at < other ? other : *at); } \
  inline T atomicMin(T* at, T other) { return exchanged(at, other < *at ? other : *at); } \
  inline T atomicExch(T* at, T now) { return exchanged(at, now); }                        \
  inline T atomicCAS(T* at, T if_it_is, T now) { return exchanged(at, *at == if_it_is ? now : *at); }
ATOMIC(int) ATOMIC(unsigned) ATOMIC(unsigned long long)
#undef ATOMIC
inline float atomicAdd(float* at, float by) { return exchanged(at, *at + by); }
inline double atomicAdd(double* at, double by) { return exchanged(at, *at + by); }
inline float atomicExch(float* at, float now) { return exchanged(at, now); }

// ---- conversions of 16-bit floats, as the instructions of a GPU do them ---------------------------------------------

namespace emulator {

static inline float float_of_half(unsigned short half) {
  unsigned sign = (unsigned)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff, bits;
  if (exponent == 31)
    bits = fraction ? 0x7fffffff : sign | 0x7f800000;
  else if (exponent)
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  else {
    float magnitude = (float)fraction * 0x1p-24f;  // exact
    memcpy(&bits, &magnitude, 4);
    bits |= sign;
  }
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static inline unsigned short half_of_float(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  unsigned sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000) return (unsigned short)(sign | 0x7c00);  // 65520 and more round to infinity
  if (magnitude < 0x38800000) {                                         // below 2^-14 in steps of 2^-24
    float scaled;
    memcpy(&scaled, &magnitude, 4);
    scaled += 0.5f;  // whose last place is 2^-24: the addition rounds to nearest, ties to even
    memcpy(&bits, &scaled, 4);
    return (unsigned short)(sign | (bits - 0x3f000000));
  }
  return (unsigned short)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

// What one access moves; a GPU stops where its address is no multiple of its bytes.
static inline void move(void* to, const void* from, const void* address, size_t bytes) {
  if ((size_t)address % bytes) stop("several elements at an address that is no multiple of their bytes");
  memcpy(to, from, bytes);
}

// ---- calling a kernel by the addresses of its arguments ------------------------------------------------------------

template <class T>
struct Same {
  typedef T type;
  static const bool is_int = false;
};
template <>
struct Same<const int> {
  typedef const int type;
  static const bool is_int = true;
};
template <>
struct Same<int> {
  typedef int type;
  static const bool is_int = true;
};
template <class T>
struct IsPointer {
  static const bool value = false;
};
template <class T>
struct IsPointer<T*> {
  static const bool value = true;
};
struct Call {  // arguments in braces are evaluated in their order
  template <class... P>
  Call(void (*kernel)(P...), typename Same<P>::type... arguments) {
    kernel(arguments...);
  }
};
template <class T>
struct Value {
  static_assert(Same<T>::is_int, "a kernel's parameters are pointers, and ints behind them");
  static T of(void* address) { return (T)(size_t)address; }
};
template <class T>
struct Value<T*> {
  static T* of(void* address) { return (T*)address; }
};
template <int COUNT, class... P>
constexpr bool pointers_first() {
  const bool are[] = {IsPointer<P>::value..., true};
  for (int i = 0; i < int(sizeof...(P)); i++)
    if (are[i] != (i < COUNT)) return false;
  return true;
}
template <int COUNT, int NUMBERS, class... P>
void call(void (*kernel)(P...), void** addresses) {
  static_assert(sizeof...(P) == COUNT + NUMBERS, "a kernel takes one pointer for each of the source's arguments");
  static_assert(pointers_first<COUNT, P...>(), "a kernel takes pointers, and an int for each of the source's numbers");
  int i = 0;
  (void)i;
  Call{kernel, Value<P>::of(addresses[i++])...};
}

}  // namespace emulator
