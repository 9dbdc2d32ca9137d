// Checks of subscripts and divisors that are known where a kernel runs; before the kernels that need them.

// A subscript; that of the first element, and a failure, where it passes the bounds.
DEVICE i64 inside(i64 index, i64 extent, bool& failed) {
  const bool out = index < 0 || index >= extent;
  failed |= out;
  return out ? 0 : index;
}
// A divisor; a failure where it is 0.
template <class T>
DEVICE T divisor(T value, bool& failed) {
  failed |= value == 0;
  return value;
}
#define INSIDE(index, extent) inside(index, extent, failed)
#define CHECKED(divide, a, b) divide(a, divisor(b, failed))
