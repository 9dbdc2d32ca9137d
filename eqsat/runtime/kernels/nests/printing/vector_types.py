"""Types of vectors of GNU C, and the functions that kernels call on them."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.expression import C_TYPES, STORED

#: The letters of a type of elements in the names of vectors.
_LETTERS: Mapping[DType, str] = {**C_TYPES, DType.FLOAT32: "f", DType.FLOAT64: "d"}
#: The signed integer of as many bytes.
_SIGNED = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
#: Instructions that read under a mask: what a processor has to have, for vectors of 64 bytes, and the letters of types.
_MASKED = {
    "f": ("__AVX512F__", "ups", "unsigned short"),
    "d": ("__AVX512F__", "upd", "unsigned char"),
    4: ("__AVX512F__", "dqusi", "unsigned short"),
    8: ("__AVX512F__", "dqudi", "unsigned char"),
    2: ("__AVX512BW__", "dquhi", "unsigned int"),
    1: ("__AVX512BW__", "dquqi", "unsigned long long"),
}
#: Lanes of vectors whose halves a processor may widen and narrow in one instruction, by what it has to have.
_WIDE_LANES = 16
_HALVES = {8: ("__F16C__", "256", ""), 16: ("__AVX512F__", "512", "_mask")}


def vector_type(dtype: DType, lanes: int) -> str:
    """The name of a type of vectors."""
    return f"v{lanes}{_LETTERS[dtype]}"


def definitions(dtype: DType, lanes: int) -> str:
    """The text that defines a type of vectors and its functions; of truth values the one of bytes."""
    element, name = C_TYPES[dtype], vector_type(dtype, lanes)
    size = lanes * dtype.itemsize
    values = ", ".join(["x"] * lanes)
    greater = {word: f" | ({word} != {word})" if dtype.is_float else "" for word in "ab"}
    text = f"""
typedef {element} {name} __attribute__((vector_size({size})));
typedef {element} loose_{name} __attribute__((vector_size({size}), aligned({dtype.itemsize}), may_alias));
typedef {_SIGNED[dtype.itemsize]} mask_{name} __attribute__((vector_size({size})));
INLINE {name} splat_{name}({element} x) {{ return ({name}){{{values}}}; }}
INLINE {name} load_{name}(const {element} *from) {{ return *(const loose_{name} *)from; }}
INLINE void store_{name}({element} *to, {name} x) {{ *(loose_{name} *)to = x; }}
{_partial_load(dtype, lanes)}
INLINE void store_part_{name}({element} *to, {name} x, int count) {{
  __builtin_memcpy(to, &x, count * sizeof({element}));
}}
INLINE {name} select_{name}(mask_{name} where, {name} a, {name} b) {{
  return ({name})((where & (mask_{name})a) | (~where & (mask_{name})b));
}}
INLINE {name} maximum_{name}({name} a, {name} b) {{ return select_{name}((a > b){greater["a"]}, a, b); }}
INLINE {name} minimum_{name}({name} a, {name} b) {{ return select_{name}((a < b){greater["a"]}, a, b); }}
"""
    return text + (_of_floats(dtype, lanes) if dtype.is_float else "")


def _of_floats(dtype: DType, lanes: int) -> str:
    """Functions of vectors of floats alone."""
    name, suffix = vector_type(dtype, lanes), "f" if dtype is DType.FLOAT32 else ""
    text = f"""{_even_load(dtype, lanes)}
INLINE {name} fmax_{name}({name} a, {name} b) {{ return select_{name}((a > b) | (b != b), a, b); }}
INLINE {name} fmin_{name}({name} a, {name} b) {{ return select_{name}((a < b) | (b != b), a, b); }}
INLINE {name} fabs_{name}({name} x) {{ return ({name})((mask_{name})x & ~(mask_{name})splat_{name}(-0.0{suffix})); }}
INLINE {name} sqrt_{name}({name} x) {{
  {name} made;
  for (int lane = 0; lane < {lanes}; ++lane) made[lane] = sqrt{suffix}(x[lane]);
  return made;
}}
"""
    return text + (_exponential(name, lanes) if dtype is DType.FLOAT32 else "")


def _even_load(dtype: DType, lanes: int) -> str:
    """The loads of every other element, none beyond the last of which is read."""
    if lanes < 4:
        return ""
    element, name = C_TYPES[dtype], vector_type(dtype, lanes)
    places = ", ".join(str(place) for place in (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)))
    apart = ", ".join(f"from[{2 * lane}]" for lane in range(lanes))
    return f"""INLINE {name} load_even_{name}(const {element} *from) {{
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(load_{name}(from), load_{name}(from + {lanes - 1}), {places});
#else
  return ({name}){{{apart}}};
#endif
}}
INLINE {name} load_even_part_{name}(const {element} *from, int count) {{
#if defined(__clang__) || __GNUC__ >= 12
  const int read = 2 * count - 1, more = read - {lanes - 1};
  const {name} near = read < {lanes} ? load_part_{name}(from, read) : load_{name}(from);
  const {name} far = more > 0 ? load_part_{name}(from + {lanes - 1}, more) : near;
  return __builtin_shufflevector(near, far, {places});
#else
  {name} x = {{0}};
  for (int lane = 0; lane < count; ++lane) x[lane] = from[2 * lane];
  return x;
#endif
}}"""


def _partial_load(dtype: DType, lanes: int) -> str:
    """The load of the first elements of a vector: under a mask where the processor has one, else byte by byte."""
    element, name = C_TYPES[dtype], vector_type(dtype, lanes)
    size = lanes * dtype.itemsize
    numbers = ", ".join(map(str, range(lanes)))
    macro, read = "", ""
    if size == 64:
        macro, kind, mask = _MASKED[_LETTERS[dtype] if dtype.is_float else dtype.itemsize]
        cast = "" if dtype.is_float else f"({name})"
        bits = "(1u << count) - 1" if lanes < 32 else f"({mask})((1ull << count) - 1)"
        zero = f"({name}){{0}}" if dtype.is_float else f"({_signed_vector(dtype, lanes)}){{0}}"
        read = f"return {cast}__builtin_ia32_load{kind}512_mask((const void *)from, {zero}, {bits});"
    elif dtype.is_float:
        kind, width = "ps" if dtype is DType.FLOAT32 else "pd", "256" if size == 32 else ""
        integer = _SIGNED[dtype.itemsize]
        macro, mask = "__AVX__", f"(mask_{name}){{{numbers}}} < ({integer})count"
        read = f"return __builtin_ia32_maskload{kind}{width}((const void *)from, {mask});"
    plain = f"""  {name} x = {{0}};
  __builtin_memcpy(&x, from, count * sizeof({element}));
  return x;"""
    body = f"#ifdef {macro}\n  {read}\n#else\n{plain}\n#endif" if macro else plain
    return f"""INLINE {name} load_part_{name}(const {element} *from, int count) {{
{body}
}}"""


def _signed_vector(dtype: DType, lanes: int) -> str:
    """The type that instructions take a vector of integers as."""
    element = {1: "char", 2: "short", 4: "int", 8: "long long"}[dtype.itemsize]
    return f"{element} __attribute__((vector_size({lanes * dtype.itemsize})))"


def narrow_definitions(dtype: DType, lanes: int) -> str:
    """The text that defines loads and stores of vectors of float32 that lie in memory as floats of 16 bits."""
    element, name = STORED[dtype], vector_type(DType.FLOAT32, lanes)
    of, halves, words = f"{name}_{element}", f"h{lanes}_{element}", f"w{lanes}_{element}"
    widen, narrow = _bits_of_bfloat16(name, lanes) if dtype is DType.BFLOAT16 else _bits_of_float16(name, lanes)
    return f"""
typedef u16 {halves} __attribute__((vector_size({2 * lanes}), aligned(2), may_alias));
typedef u32 {words} __attribute__((vector_size({4 * lanes})));
typedef short s_{halves} __attribute__((vector_size({2 * lanes})));
INLINE {name} widen_{of}({halves} given) {{
{widen.replace("WORDS", words)}
}}
INLINE {halves} narrow_{of}({name} x) {{
{narrow.replace("WORDS", words).replace("HALVES", halves)}
}}
INLINE {name} load_{of}(const {element} *from) {{ return widen_{of}(*(const {halves} *)from); }}
INLINE {name} load_part_{of}(const {element} *from, int count) {{
  {halves} x = {{0}};
  __builtin_memcpy(&x, from, count * 2);
  return widen_{of}(x);
}}
INLINE void store_{of}({element} *to, {name} x) {{ *({halves} *)to = narrow_{of}(x); }}
INLINE void store_part_{of}({element} *to, {name} x, int count) {{
  const {halves} made = narrow_{of}(x);
  __builtin_memcpy(to, &made, count * 2);
}}
"""


def _bits_of_bfloat16(name: str, lanes: int) -> tuple[str, str]:
    """The bodies that widen and narrow floats with the exponents of float32: as the functions of one element do."""
    widened, narrowed = "__builtin_convertvector(given, WORDS)", "__builtin_convertvector(all, HALVES)"
    widen = f"  return ({name})({widened} << 16);"
    narrow = f"""  const WORDS bits = (WORDS)x;
  const WORDS made = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const WORDS other = (WORDS)(x != x);
  const WORDS all = (made & ~other) | (other & 0x7fc0u);
  return {narrowed};"""
    if lanes != _WIDE_LANES:
        return widen, narrow
    short, word = "short __attribute__((vector_size(32)))", "int __attribute__((vector_size(64)))"
    quick = f"(WORDS)__builtin_ia32_pmovzxwd512_mask(({short})given, ({word}){{0}}, -1)"
    cut = f"(HALVES)__builtin_ia32_pmovdw512_mask(({word})all, ({short}){{0}}, -1)"
    return _either("__AVX512F__", widen.replace(widened, quick), widen), _either(
        "__AVX512F__", narrow.replace(narrowed, cut), narrow
    )


def _either(macro: str, quick: str, plain: str) -> str:
    """A body for gcc on processors that a macro stands for, and the one for all others."""
    return f"#if defined({macro}) && !defined(__clang__)\n{quick}\n#else\n{plain}\n#endif"


def _bits_of_float16(name: str, lanes: int) -> tuple[str, str]:
    """The bodies that widen and narrow floats of 16 bits: one instruction, or as the functions of one element do.

    The instruction keeps what a NaN says; the function makes one NaN of all.
    """
    widen = f"""  const WORDS all = __builtin_convertvector(given, WORDS);
  const WORDS sign = (all & 0x8000u) << 16, most = all & 0x7fffu;
  const WORDS small = (WORDS)(__builtin_convertvector(most, {name}) * 5.9604644775390625e-8f);
  const WORDS is_small = (WORDS)(most < 0x400u), is_large = (WORDS)(most >= 0x7c00u);
  const WORDS usual = (most << 13) + 0x38000000u + (is_large & 0x38000000u);
  return ({name})(((small & is_small) | (usual & ~is_small)) | sign);"""
    narrow = """  const WORDS bits = (WORDS)x, sign = (bits >> 16) & 0x8000u, most = bits & 0x7fffffffu;
  const WORDS usual = (most + 0xfffu + ((most >> 13) & 1u) - 0x38000000u) >> 13;
  const WORDS is_small = (WORDS)(most < 0x38800000u), is_large = (WORDS)(most >= 0x477ff000u);
  const WORDS other = (WORDS)(most > 0x7f800000u);
  WORDS made = {0};
  for (int lane = 0; lane < LANES; ++lane)
    made[lane] = is_small[lane] ? (u32)rintf(float_of_bits(most[lane]) * 16777216.0f) : usual[lane];
  made = (made & ~is_large) | (is_large & 0x7c00u);
  made = (made & ~other) | (other & 0x7e00u);
  return __builtin_convertvector(made | sign, HALVES);""".replace("LANES", str(lanes))
    if lanes not in _HALVES:
        return widen, narrow
    macro, width, masked = _HALVES[lanes]
    vector = f"short __attribute__((vector_size({2 * lanes})))"
    extra = f", ({name}){{0}}, -1, 4" if masked else ""  # by the rounding of the processor
    fast = f"  return ({name})__builtin_ia32_vcvtph2ps{width}{masked}(({vector})given{extra});"
    rest = f", 8, ({vector}){{0}}, -1" if masked else ", 0"
    quick = f"""  const HALVES made = (HALVES)__builtin_ia32_vcvtps2ph{width}{masked}(x{rest});
  const HALVES other = __builtin_convertvector((WORDS)(x != x), HALVES);
  return (made & ~(other & 0x7fffu)) | (other & 0x7e00u);"""
    return _either(macro, fast, widen), _either(macro, quick, narrow)


def _exponential(name: str, lanes: int) -> str:
    """Functions exp, tanh, sigmoid and erf of vectors of float.

    Of exp it is a polynomial on the rest beside a multiple of log 2. Those of erf were fitted by weighted least squares
    to values of 30 digits: of erf(√t)/√t for t to 0.9, and of -log erfc(x) for x from 0.92 to 4.
    """
    return f"""
INLINE {name} exp_{name}({name} x) {{
  const {name} inside = maximum_{name}(splat_{name}(-104.0f), minimum_{name}(splat_{name}(89.0f), x));
  const {name} shifted = inside * 1.44269504f + 12582912.0f, times = shifted - 12582912.0f;
  const {name} rest = (inside - times * 0.693359375f) + times * 2.12194440e-4f;
  {name} made = splat_{name}(1.9875691500e-4f) * rest + 1.3981999507e-3f;
  made = made * rest + 8.3334519073e-3f;
  made = made * rest + 4.1665795894e-2f;
  made = made * rest + 1.6666665459e-1f;
  made = made * rest + 5.0000001201e-1f;
  made = made * rest * rest + rest + 1.0f;
  const mask_{name} power = __builtin_convertvector(times, mask_{name}), half = power >> 1;
  made = made * ({name})((half + 127) << 23) * ({name})((power - half + 127) << 23);
  return select_{name}(x != x, x, made);
}}
INLINE {name} tanh_{name}({name} x) {{
  const {name} size = fabs_{name}(x), square = x * x;
  {name} small = splat_{name}(-5.70498872745e-3f) * square + 2.06390887954e-2f;
  small = small * square - 5.37397155531e-2f;
  small = small * square + 1.33314422036e-1f;
  small = small * square - 3.33332819422e-1f;
  small = small * square * size + size;
  const {name} large = 1.0f - 2.0f / (exp_{name}(size + size) + 1.0f);
  const {name} made = select_{name}((size < 0.625f), small, large);
  return ({name})((mask_{name})made | ((mask_{name})x & (mask_{name})splat_{name}(-0.0f)));
}}
INLINE {name} sigmoid_{name}({name} x) {{ return 1.0f / (1.0f + exp_{name}(-x)); }}
INLINE {name} erf_{name}({name} x) {{
  const {name} size = fmin_{name}(fabs_{name}(x), splat_{name}(4.0f)), square = size * size;
  {name} small = splat_{name}(8.193779649445787e-05f) * square - 0.0008099877741187811f;
  small = small * square + 0.005197154823690653f;
  small = small * square - 0.02685779146850109f;
  small = small * square + 0.11283665895462036f;
  small = small * square - 0.37612631916999817f;
  small = (small * square + 1.128379225730896f) * size;
  {name} power = splat_{name}(2.116183895850554e-05f) * size - 0.0004352181567810476f;
  power = power * size + 0.0041746399365365505f;
  power = power * size - 0.025128616020083427f;
  power = power * size + 0.10829393565654755f;
  power = power * size + 0.6333346366882324f;
  power = power * size + 1.1295207738876343f;
  power = power * size - 0.00017587367619853467f;
  const {name} made = select_{name}((size < 0.93f), small, 1.0f - exp_{name}(-power));
  return select_{name}(x != x, x, ({name})((mask_{name})made | ((mask_{name})x & (mask_{name})splat_{name}(-0.0f))));
}}
"""
