"""The type of a sum of two types, written out: what comprehensions promise, apart from how they compute it."""

NAMES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "bfloat16",
    "float16",
    "float",
    "double",
)
#: A row for each type; - where no type holds both.
_ROWS = """
bool     uint8    uint16   uint32   uint64   int8     int16    int32    int64    bfloat16 float16  float    double
uint8    uint8    uint16   uint32   uint64   int16    int16    int32    int64    bfloat16 float16  float    double
uint16   uint16   uint16   uint32   uint64   int32    int32    int32    int64    bfloat16 float16  float    double
uint32   uint32   uint32   uint32   uint64   int64    int64    int64    int64    bfloat16 float16  float    double
uint64   uint64   uint64   uint64   uint64   -        -        -        -        bfloat16 float16  float    double
int8     int16    int32    int64    -        int8     int16    int32    int64    bfloat16 float16  float    double
int16    int16    int32    int64    -        int16    int16    int32    int64    bfloat16 float16  float    double
int32    int32    int32    int64    -        int32    int32    int32    int64    bfloat16 float16  float    double
int64    int64    int64    int64    -        int64    int64    int64    int64    bfloat16 float16  float    double
bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 float    float    double
float16  float16  float16  float16  float16  float16  float16  float16  float16  float    float16  float    double
float    float    float    float    float    float    float    float    float    float    float    float    double
double   double   double   double   double   double   double   double   double   double   double   double   double
"""
#: The type of a sum by the types of its operands; None where no type holds both.
PROMOTED: dict[tuple[str, str], str | None] = {
    (row, column): None if name == "-" else name
    for row, line in zip(NAMES, _ROWS.split("\n")[1:], strict=False)
    for column, name in zip(NAMES, line.split(), strict=True)
}
