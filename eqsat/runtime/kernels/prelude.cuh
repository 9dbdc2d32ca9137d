// What every generated kernel may use. It is compiled before the kernel, by NVRTC for a GPU and by a C++ compiler, behind
// the shim, for the processor; it includes nothing, because NVRTC has no headers where the toolkit is not installed.

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

// ---- element types of one and two bytes ---------------------------------------------------------------------------

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
// Four bits of exponent, three of mantissa, up to 448; no infinity (E4M3 of P. Micikevicius et al., 2022).
struct f8 {
  u8 bits;
};

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(double x) { return (float)x; }
DEVICE float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
DEVICE float to_float(f16 x) {
#ifdef EMULATED
  return emulator::float_of_half(x.bits);
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#endif
}

DEVICE float to_float(f8 x) {
  u32 most = x.bits & 0x7fu;
  // Below 8 there is no exponent, and a step is 2^-9.
  float size = most < 8 ? (float)most * 0.001953125f : __uint_as_float((most << 20) + 0x3c000000u);
  if (most == 0x7f) size = NAN;
  return x.bits & 0x80u ? -size : size;
}

template <class T>
DEVICE T from_float(float x);
template <>
DEVICE float from_float<float>(float x) {
  return x;
}
template <>
DEVICE double from_float<double>(float x) {
  return x;
}
template <>
DEVICE f16 from_float<f16>(float x) {
  f16 narrow;
#ifdef EMULATED
  narrow.bits = emulator::half_of_float(x);
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#endif
  return narrow;
}
template <>
DEVICE bf16 from_float<bf16>(float x) {
  bf16 narrow;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#else
  u32 bits = __float_as_uint(x);
  // Half of what is cut off, less one where the last bit kept is even; a NaN must not be carried into an infinity.
  narrow.bits = x != x ? 0x7fff : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
  return narrow;
}

// To nearest, ties to even; what is beyond the largest number becomes that.
template <>
DEVICE f8 from_float<f8>(float x) {
  f8 narrow;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  narrow.bits = (u8)(pair & 0xffu);
#else
  u32 bits = __float_as_uint(x), sign = (bits >> 24) & 0x80u, most = bits & 0x7fffffffu, made;
  if (most > 0x7f800000u)
    made = 0x7fu;
  else if (most >= 0x43e00000u)
    made = 0x7eu;
  else if (most < 0x3c800000u)
    made = (u32)rintf(__uint_as_float(most) * 512.0f);  // whole steps of 2^-9
  else
    made = (most + 0x7ffffu + ((most >> 20) & 1u) - 0x3c000000u) >> 20;
  narrow.bits = (u8)(sign | made);
#endif
  return narrow;
}

// The type that is computed in: float for floats of up to 32 bits, double for double.
DEVICE float widen(f8 x) { return to_float(x); }
DEVICE float widen(f16 x) { return to_float(x); }
DEVICE float widen(bf16 x) { return to_float(x); }
DEVICE float widen(float x) { return x; }
DEVICE double widen(double x) { return x; }

// What is computed, as an element of type T.
template <class T>
struct Narrowed {
  static DEVICE T of(float x) { return from_float<T>(x); }
  static DEVICE T of(double x) { return from_float<T>((float)x); }
};
template <>
struct Narrowed<double> {
  static DEVICE double of(double x) { return x; }
};
template <class T, class W>
DEVICE T narrow(W x) {
  return Narrowed<T>::of(x);
}

// The largest numbers of types that a value of more bits may be held in.
template <class T>
struct Largest;
template <>
struct Largest<f16> {
  static constexpr float number = 65504.0f;
};
template <>
struct Largest<bf16> {
  static constexpr float number = 3.3895313892515355e38f;
};
// A value of more bits as it is held: numbers beyond the type are its largest, so that what is finite stays finite.
template <class T>
DEVICE T narrow_finite(float x) {
  const float most = Largest<T>::number;
  return narrow<T>(fabsf(x) < INFINITY ? fminf(fmaxf(x, -most), most) : x);
}
template <class T>
DEVICE T narrow_finite(double x) {
  const double most = Largest<T>::number;
  return narrow<T>(fabs(x) < INFINITY ? fmin(fmax(x, -most), most) : x);
}

// ---- several elements in one access -------------------------------------------------------------------------------

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <int BYTES>
struct Word;
template <>
struct Word<1> {
  typedef u8 type;
};
template <>
struct Word<2> {
  typedef u16 type;
};
template <>
struct Word<4> {
  typedef u32 type;
};
template <>
struct Word<8> {
  typedef uint2 type;
};
template <>
struct Word<16> {
  typedef uint4 type;
};

// N elements from an address that is a multiple of their bytes, in one access: as one word, since the compiler
// otherwise reads small elements four at a time.
template <int N, class T>
DEVICE Pack<T, N> load(const T* from) {
  union {
    typename Word<sizeof(T) * N>::type word;
    Pack<T, N> pack;
  } held;
#ifdef EMULATED
  emulator::move(&held, from, from, sizeof held);
#else
  held.word = *reinterpret_cast<const typename Word<sizeof(T) * N>::type*>(from);
#endif
  return held.pack;
}
template <int N, class T>
DEVICE void store(T* to, const Pack<T, N>& pack) {
  union {
    typename Word<sizeof(T) * N>::type word;
    Pack<T, N> pack;
  } held;
  held.pack = pack;
#ifdef EMULATED
  emulator::move(to, &held, to, sizeof held);
#else
  *reinterpret_cast<typename Word<sizeof(T) * N>::type*>(to) = held.word;
#endif
}

// ---- reductions over threads: every thread gets the result, the same in every run ---------------------------------

// Integers wrap around, without the overflow of signed ones, which C leaves undefined.
struct Sum {
  template <class T>
  static DEVICE T join(T a, T b) {
    return (T)(a + b);
  }
  static DEVICE i32 join(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
  static DEVICE i64 join(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
};
struct Product {
  template <class T>
  static DEVICE T join(T a, T b) {
    return (T)(a * b);
  }
  static DEVICE u16 join(u16 a, u16 b) { return (u16)((u32)a * b); }
  static DEVICE i32 join(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
  static DEVICE i64 join(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
};
// Of two elements one of which is NaN, NaN is both the least and the greatest.
struct Greatest {
  template <class T>
  static DEVICE T join(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Least {
  template <class T>
  static DEVICE T join(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

// A value and its place in a row; -1 where there is none.
template <class T>
struct Place {
  T value;
  i32 index;
};
// The place of the greatest value, or the LEAST; of equal ones the first, or the LAST; NaN counts as the extreme.
template <bool LEAST, bool LAST>
struct Extreme {
  template <class T>
  static DEVICE Place<T> join(Place<T> a, Place<T> b) {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    bool none = a.value != a.value, other = b.value != b.value;
    if (none != other) return none ? a : b;
    if (!none && a.value != b.value) return (a.value < b.value) == LEAST ? a : b;
    return (a.index < b.index) != LAST ? a : b;
  }
};

// The value of another lane of the warp.
template <class T>
DEVICE T exchange(T value, int lanes) {
  if constexpr (sizeof(T) < 4)
    return (T)__shfl_xor_sync(0xffffffffu, (int)value, lanes);
  else
    return __shfl_xor_sync(0xffffffffu, value, lanes);
}
template <class T>
DEVICE Place<T> exchange(Place<T> place, int lanes) {
  place.value = exchange(place.value, lanes);
  place.index = exchange(place.index, lanes);
  return place;
}

// The reduction over WIDTH neighbouring lanes, a power of two; all lanes of the warp take part.
template <class Op, int WIDTH = 32, class T>
DEVICE T warp_reduce(T value) {
#pragma unroll
  for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2) value = Op::join(value, exchange(value, lanes));
  return value;
}

// The reduction over a block of THREADS threads in one dimension, a power of two and at least a warp.
template <class Op, int THREADS, class T>
DEVICE T block_reduce(T value) {
  static_assert(THREADS >= 32 && THREADS <= 1024 && (THREADS & (THREADS - 1)) == 0, "whole warps, a power of two");
  value = warp_reduce<Op>(value);
  if constexpr (THREADS == 32) {
    return value;
  } else {
    __shared__ T parts[THREADS / 32];
    __syncthreads();  // all have read what the last reduction left here
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_reduce<Op, THREADS / 32>(parts[threadIdx.x % (THREADS / 32)]);
  }
}

// The reduction over threadIdx.y, of ROWS threads, a power of two; threadIdx.x, of 32, tells one from the other.
template <class Op, int ROWS, class T>
DEVICE T column_reduce(T value) {
  __shared__ T parts[ROWS][32];
  __syncthreads();  // all have read what the last reduction left here
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
#pragma unroll
  for (int half = ROWS / 2; half > 0; half /= 2) {
    if (threadIdx.y < half)
      parts[threadIdx.y][threadIdx.x] = Op::join(parts[threadIdx.y][threadIdx.x], parts[threadIdx.y + half][threadIdx.x]);
    __syncthreads();
  }
  return parts[0][threadIdx.x];
}

// What the lane so many before this one has, or the last of the warp; all lanes of the warp take part.
template <class T>
DEVICE T from_before(T value, int lanes) {
  if constexpr (sizeof(T) < 4)
    return (T)__shfl_up_sync(0xffffffffu, (int)value, lanes);
  else
    return __shfl_up_sync(0xffffffffu, value, lanes);
}
template <class T>
DEVICE T last_of_warp(T value) {
  if constexpr (sizeof(T) < 4)
    return (T)__shfl_sync(0xffffffffu, (int)value, 31);
  else
    return __shfl_sync(0xffffffffu, value, 31);
}

// The sum of the values of this lane and those before it in the warp.
template <class T>
DEVICE T warp_scan(T value) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    T before = from_before(value, lanes);
    if (threadIdx.x % 32 >= lanes) value = Sum::join(before, value);
  }
  return value;
}
// Of running sums, the one before this lane's: the first lane has what came before the warp's.
template <class T>
DEVICE T exclusive_of(T running, T carry) {
  T before = from_before(running, 1);
  return threadIdx.x % 32 ? before : carry;
}
