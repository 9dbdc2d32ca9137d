// Functions of elements that C++ lacks, or defines otherwise than NumPy and ONNX do; compiled after the prelude.

// Integers that wrap around: worked out in 64 bits without a sign, which overflow nothing.
template <class T>
DEVICE T sum(T a, T b) {
  return (T)((u64)a + (u64)b);
}
template <class T>
DEVICE T difference(T a, T b) {
  return (T)((u64)a - (u64)b);
}
template <class T>
DEVICE T product(T a, T b) {
  return (T)((u64)a * (u64)b);
}

// Of two numbers one of which is NaN, NaN is both the larger and the smaller.
template <class T>
DEVICE T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
DEVICE T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}

// Rounded toward zero; by 0 it is 0, as NumPy has it.
template <class T>
DEVICE T quotient(T a, T b) {
  if (b == 0) return 0;
  // The least integer has no opposite, and what divides it by -1 would trap.
  return (T)-1 < 0 && b == (T)-1 ? difference((T)0, a) : (T)(a / b);
}

// The remainder that has the sign of the dividend.
template <class T>
DEVICE T cut_remainder(T a, T b) {
  return b == 0 || (b == (T)-1 && (T)-1 < 0) ? 0 : a % b;
}
DEVICE float cut_remainder(float a, float b) { return fmodf(a, b); }
DEVICE double cut_remainder(double a, double b) { return fmod(a, b); }

// The remainder that has the sign of the divisor.
template <class T>
DEVICE T remainder_of(T a, T b) {
  T rest = cut_remainder(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
DEVICE float remainder_of(float a, float b) {
  float rest = fmodf(a, b);
  if (rest == 0) return copysignf(0.0f, b);
  return (rest < 0) != (b < 0) && rest == rest ? rest + b : rest;
}
DEVICE double remainder_of(double a, double b) {
  double rest = fmod(a, b);
  if (rest == 0) return copysign(0.0, b);
  return (rest < 0) != (b < 0) && rest == rest ? rest + b : rest;
}

// Floats as integers, cut toward zero. What does not fit, NaN included, becomes what x86 makes of it.
template <class W>
DEVICE i64 whole(W x) {
  return x >= (W)-9223372036854775808.0 && x < (W)9223372036854775808.0 ? (i64)x : (i64)(1ull << 63);
}
template <class T, class W>
DEVICE T truncated(W x) {
  if (sizeof(T) == 8 && (T)-1 > 0 && x >= (W)9223372036854775808.0)
    return (T)((1ull << 63) + (u64)whole(x - (W)9223372036854775808.0));
  if (sizeof(T) == 8 || (sizeof(T) == 4 && (T)-1 > 0)) return (T)whole(x);
  return (T)(x > (W)-2147483649.0 && x < (W)2147483648.0 ? (i32)x : (i32)(1u << 31));
}

// Powers of integers, which wrap around; to a negative power, what is left of the fraction.
template <class T, class E>
DEVICE T power(T base, E exponent) {
  if (exponent < 0) return truncated<T>(pow((double)base, (double)exponent));
  T result = 1;
  for (u64 left = (u64)exponent; left; left >>= 1) {
    if (left & 1) result = product(result, base);
    base = product(base, base);
  }
  return result;
}

// Shifts by as many bits as there are, or more, or less than none, leave nothing but the sign.
template <class T>
DEVICE T left_shift(T a, T b) {
  return b >= 0 && (u64)b < sizeof(T) * 8 ? (T)((u64)a << (u64)b) : (T)0;
}
template <class T>
DEVICE T right_shift(T a, T b) {
  return b >= 0 && (u64)b < sizeof(T) * 8 ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0;
}

// Integers lose the sign by wrapping around.
template <class T>
DEVICE T magnitude(T x) {
  return x < 0 ? difference((T)0, x) : x;
}
template <class T>
DEVICE T signum(T x) {
  return x > 0 ? (T)1 : x < 0 ? (T)-1 : x == 0 ? (T)0 : x;
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// log(1 + exp(x)) without overflow.
DEVICE float softplus(float x) { return maximum(x, 0.0f) + log1pf(expf(-fabsf(x))); }
DEVICE double softplus(double x) { return maximum(x, 0.0) + log1p(exp(-fabs(x))); }

// An index that may count from the end, as a place on an axis; one that is out of range reads the nearest element.
template <class T>
DEVICE T placed(T index, T size) {
  T place = index < 0 ? index + size : index;
  return place < 0 ? 0 : place < size ? place : size - 1;
}

// Where the element at a step is read from when the first steps of a sequence, as many as its length, are reversed.
DEVICE i64 turned(i64 step, i64 length, i64 steps) {
  return step >= length ? step : length - 1 - step < steps ? length - 1 - step : steps - 1;
}

// Whether one element comes before another in an order that begins with the largest, or with the smallest. NaN is larger
// than all others.
template <bool LARGEST, class T>
DEVICE bool ahead(T a, T b) {
  return LARGEST ? a > b || (a != a && b == b) : a < b || (b != b && a == a);
}
