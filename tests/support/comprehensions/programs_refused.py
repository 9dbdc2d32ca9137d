"""Comprehensions that are refused where they are defined; @ marks the place that the error names."""

from eqsat.errors import (
    BoundsError,
    ComprehensionNameError,
    ComprehensionSyntaxError,
    ComprehensionTypeError,
    RangeError,
    UpdateError,
)
from tests.support.comprehensions.comprehension_cases import wrong

SYNTAX = (
    wrong("def f(float(N) x) -> (y) { y(i) = x(i@", ComprehensionSyntaxError, "the source ends too early"),
    wrong("def f(float(N) x) @{ y(i) = x(i) }", ComprehensionSyntaxError, "unexpected '{'"),
    wrong("def f(float(N) x) -> (y) {\n  y(i) @+ x(i)\n}", ComprehensionSyntaxError, "unexpected '+'"),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) @$ 2 }", ComprehensionSyntaxError, "unexpected character '$'"),
    wrong("def f(float(N) x) -> (y) { y(i) = x@[i] }", ComprehensionSyntaxError, "unexpected character '['"),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) * @* 2 }", ComprehensionSyntaxError, "unexpected '*'"),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) where @}", ComprehensionSyntaxError, "unexpected '}'"),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) > 0 ? 1 @}", ComprehensionSyntaxError, "unexpected '}'"),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = @9223372036854775808 }",
        ComprehensionSyntaxError,
        "an integer that is too large",
    ),
    wrong("# one\ndef f(float(N) x) -> (y) {\n\ty(i) = x(i) }@}", ComprehensionSyntaxError, "unexpected '}'"),
    wrong("def f(float(N) x) -> (y) { for @i in 0:N y(i) = x(i) }", ComprehensionSyntaxError, "unexpected 'i'"),
)
NAMES = (
    wrong("def f(floaty(N) @x) -> (y) { y(i) = x(i) }", ComprehensionNameError, "no element type floaty"),
    wrong("def f(float(N) x, float(N) @x) -> (y) { y(i) = x(i) }", ComprehensionNameError, "x is declared twice"),
    wrong("def f(float(N) x, int @N) -> (y) { y(i) = x(i) }", ComprehensionNameError, "N is a size and a scalar"),
    wrong("def f(float(N) @min) -> (y) { y(i) = min(i) }", ComprehensionNameError, "min is a function"),
    wrong("def f(float(N) x) -> (@half) { half(i) = x(i) }", ComprehensionNameError, "half is an element type"),
    wrong("def f(float(N) x) -> (y) { y(i) = @z(i) }", ComprehensionNameError, "no tensor or function z"),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) + @x }", ComprehensionNameError, "x without subscripts"),
    wrong("def f(float(N,M) x) -> (y) { y(i) = @x(i) }", ComprehensionNameError, "x with 1 subscript"),
    wrong("def f(float(N) x) -> (y) { y(i) = @exp(x(i), 2) }", ComprehensionNameError, "exp with 2 arguments"),
    wrong("def f(float(N) x) -> (y) { y(i) = @max(x(i)) }", ComprehensionNameError, "max with 1 argument"),
    wrong("def f(float(N) x) -> (y) { y(i) = @int32() }", ComprehensionNameError, "int32 with 0 arguments"),
    wrong("def f(float(N) x) -> (y, @z) { y(i) = x(i) }", ComprehensionNameError, "z is returned and never defined"),
    wrong("def @f(float(N) x) -> () { y(i) = x(i) }", ComprehensionNameError, "nothing is returned"),
    wrong("def f(float(N) x) -> (float(M) @y) { y(i) = x(i) }", ComprehensionNameError, "no size M"),
    wrong(
        "def f(float(N) x) -> (y) { @t(i) += x(i) y(i) = t(i) }",
        ComprehensionNameError,
        "t is read before it is defined",
    ),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) where @N = 3 }", ComprehensionNameError, "N is a size"),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = x(i) + a where a = 1, @a = 2 }",
        ComprehensionNameError,
        "where gives a a meaning twice",
    ),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) + x where @x = 1 }", ComprehensionNameError, "x is a tensor"),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) where exists @z(i) }", ComprehensionNameError, "no tensor z"),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = x(i) }\ndef @f(float(N) x) -> (y) { y(i) = x(i) }",
        ComprehensionNameError,
        "f is defined twice",
    ),
)
TYPES = (
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) @% 2 }", ComprehensionTypeError, "% of floats"),
    wrong("def f(float(N) x) -> (y) { y(i) = @x(i) ? 1 : 2 }", ComprehensionTypeError, "float as a condition"),
    wrong("def f(int(N) x) -> (y) { y(i) = x(i) > 0 && @x(i) }", ComprehensionTypeError, "int32 as a condition"),
    wrong("def f(int(N) x) -> (y) { y(i) = !@x(i) }", ComprehensionTypeError, "int32 as a condition"),
    wrong("def f(bool(N) x) -> (y) { y(i) = @-x(i) }", ComprehensionTypeError, "- of bool"),
    wrong("def f(bool(N) x) -> (y) { y(i) = x(i) @+ x(i) }", ComprehensionTypeError, "+ of bool"),
    wrong("def f(bool(N) x) -> (y) { y(i) = @max(x(i), x(i)) }", ComprehensionTypeError, "max of bool"),
    wrong("def f(bool(N) x) -> (y) { @y max=! x(i) }", ComprehensionTypeError, "max=! of bool"),
    wrong("def f(uint64(N) a, int8(N) b) -> (y) { y(i) = a(i) @* b(i) }", ComprehensionTypeError, "uint64 with int8"),
    wrong(
        "def f(float(N) x, float(M) p) -> (y) { y(i) = x(@p(i)) }", ComprehensionTypeError, "a subscript of type float"
    ),
    wrong(
        "def f(float(N) x) -> (int(N) y) { @y(i) = x(i) }",
        ComprehensionTypeError,
        "float assigned to y, which is int32",
    ),
    wrong(
        "def f(double(N) x) -> (float(N) y) { @y(i) = x(i) }",
        ComprehensionTypeError,
        "double assigned to y, which is float",
    ),
    wrong(
        "def f(float(N) x) -> (y) { @y(i) += y(i) where exists x(i) }",
        ComprehensionTypeError,
        "no type of y follows from what it is made of",
    ),
)
RANGES = (
    wrong(
        "def f(float(N) x) -> (y) { y(@i) max=! x(2 * i + k) }",
        RangeError,
        "no range of i, k follows from what is read",
    ),
    wrong("def f(float(N) x) -> (y) { y(@i) = 3 }", RangeError, "no range of i follows from what is read"),
    wrong("def f(float(N) x) -> (y) { y(@i) = x(i * i) }", RangeError, "no range of i follows from what is read"),
    wrong("def f(float(N) x) -> (y) { y(@i) = x(i - 2) }", RangeError, "i would have to start at 2"),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = x(i) where @k in 0:2 }",
        RangeError,
        "where gives a range to k, which is not used",
    ),
    wrong(
        "def f(float(N,N) x) -> (y) { y(i) +=! x(i,j) where j in 0:@i }",
        RangeError,
        "the range of j depends on i, which is no size",
    ),
    wrong(
        "def f(int(N) x) -> (y) { y(i) = i where i in 0:@x(0) }", RangeError, "the range of i depends on elements of x"
    ),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = x(i) where @i in 2:N }", RangeError, "elements of y before 2 are not defined"
    ),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = x(i @+ 1) where i in 0:N }",
        BoundsError,
        "x(i + 1) passes the bounds of x on axis 0",
    ),
    wrong(
        "def f(float(N) x) -> (y) { y +=! x(i @- 1) where i in 0:N }",
        BoundsError,
        "x(i - 1) passes the bounds of x on axis 0",
    ),
    wrong("def f(float(3) x) -> (y) { y = x(@3) }", BoundsError, "x(3) passes the bounds of x on axis 0"),
    wrong(
        "def f(float(N) x) -> (float(N) y) { y(@i) = 1 where i in 0:N + 1 }",
        BoundsError,
        "y(i) passes the bounds of y on axis 0",
    ),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = i where i in 0:N, exists x(i @+ 1) }",
        BoundsError,
        "x(i + 1) passes the bounds of x on axis 0",
    ),
)
UPDATES = (
    wrong("def f(float(N,K) x) -> (y) { @y(i) = x(i,k) }", UpdateError, "= with k, which y is not subscripted by"),
    wrong("def f(float(N) x) -> (y) { @x(i) = 2 }", UpdateError, "x is a parameter, which stays as it is"),
    wrong("def f(float(N) x) -> (y) { y(i @+ 1) = x(i) }", UpdateError, "a subscript of the target y that is no index"),
    wrong("def f(float(N) x) -> (y) { y(@N) = 2 }", UpdateError, "a subscript of the target y that is no index"),
    wrong("def f(float(N) x) -> (y) { y(i,@i) = x(i) }", UpdateError, "y is subscripted by i twice"),
    wrong("def f(float(N) x) -> (y) { y(i) = x(i) @y(i,j) = x(i) + x(j) }", UpdateError, "y has 2 subscripts here"),
    wrong("def f(float(N) x) -> (float(N) y) { @y +=! x(i) }", UpdateError, "y has 0 subscripts here"),
    wrong(
        "def f(float(N,N) x) -> (y) { y(i,j) = x(i,j) y(i,j) = @y(j,i) }",
        UpdateError,
        "y is read at other elements than those it is written at",
    ),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = x(i) y(i) = @y(i + 1) }",
        UpdateError,
        "y is read at other elements than those it is written at",
    ),
    wrong(
        "def f(float(N,N) x) -> (y) { y(i,j) = x(i,j) y(i,j) +=! @y(k,k) * x(i,j) }",
        UpdateError,
        "y is read at other elements than those it is written at",
    ),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = 1 y(i) = @y(i - 1) + x(i) }",
        UpdateError,
        "y is read at other elements than those it is written at",
    ),
    wrong(
        "def f(int(N) x) -> (y) { y(i) = 0 y(i) = x(@y(i)) }",
        UpdateError,
        "a subscript that depends on y, which is being defined",
    ),
)
PROGRAMS = SYNTAX + NAMES + TYPES + RANGES + UPDATES
