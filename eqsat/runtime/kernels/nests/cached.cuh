// Elements of arrays that a kernel never writes, read through the cache for these; before the kernels that ask for it.

template <class T>
DEVICE T cached(const T* from) {
  return __ldg(from);
}
DEVICE bool cached(const bool* from) { return __ldg((const u8*)from) != 0; }
DEVICE f16 cached(const f16* from) {
  f16 made;
  made.bits = __ldg(&from->bits);
  return made;
}
DEVICE bf16 cached(const bf16* from) {
  bf16 made;
  made.bits = __ldg(&from->bits);
  return made;
}
DEVICE f8 cached(const f8* from) {
  f8 made;
  made.bits = __ldg(&from->bits);
  return made;
}
#define CACHED(element) cached(&(element))
