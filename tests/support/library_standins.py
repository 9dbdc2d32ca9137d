"""cuBLASLt and cuDNN as far as they are told what to compute and asked how: they compute nothing."""

import contextlib
import ctypes
import enum
from types import SimpleNamespace

import numpy as np


class Preferences:
    """cuBLASLt as far as it is told what to propose; `stated` has what it was told."""

    OWN = frozenset({"OWN", "stated"})

    class MatmulPreferenceAttribute(enum.IntEnum):
        MAX_WORKSPACE_BYTES = 1
        REDUCTION_SCHEME_MASK = 3
        MIN_ALIGNMENT_A_BYTES = 5
        MIN_ALIGNMENT_B_BYTES = 6
        MIN_ALIGNMENT_C_BYTES = 7
        MIN_ALIGNMENT_D_BYTES = 8

    MatmulDescAttribute = enum.IntEnum("MatmulDescAttribute", "TRANSA TRANSB EPILOGUE BIAS_POINTER BIAS_DATA_TYPE")
    MatrixLayoutAttribute = enum.IntEnum("MatrixLayoutAttribute", "BATCH_COUNT STRIDED_BATCH_OFFSET")
    matmul_desc_create = matmul_preference_create = matrix_layout_create = staticmethod(lambda *_: 1)
    matmul_desc_destroy = matmul_preference_destroy = matrix_layout_destroy = staticmethod(lambda handle: None)
    get_matmul_desc_attribute_dtype = staticmethod(lambda attribute: np.uint64)
    get_matmul_preference_attribute_dtype = staticmethod(lambda attribute: np.uint64)
    matmul_desc_set_attribute = staticmethod(lambda *_: None)

    def __init__(self):
        self.stated = {}

    def matmul_preference_set_attribute(self, handle, attribute, address, size):
        self.stated[attribute.name] = int(ctypes.c_uint64.from_address(address).value)


class Plans:
    """cuDNN as far as plans are chosen: `names` of those it lists, `broken` those that cannot be built."""

    class UnsupportedError(Exception):
        pass

    #: Names of the stand-in's own, for itself and for tests.
    OWN = frozenset({"OWN", "UnsupportedError", "names", "broken", "supported", "done", "built"})

    def __init__(self, names, broken=(), supported=True):
        self.names, self.broken, self.supported, self.done = names, set(broken), supported, []
        self.cudnnGraphNotSupportedError = self.UnsupportedError
        self.heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="F")
        self.numerical_note = SimpleNamespace(DOWN_CONVERT_INPUTS=1, REDUCED_PRECISION_REDUCTION=2, TENSOR_CORE=3)
        self.norm_forward_phase = SimpleNamespace(INFERENCE="inference")
        self.build_plan_policy = SimpleNamespace(ALL="all")
        self.data_type = SimpleNamespace(HALF="half", FLOAT="float", BFLOAT16="bfloat16")
        self.built = set()

    def backend_version(self):
        return 92800

    def create_handle(self):
        return 7

    def destroy_handle(self, handle):
        self.done.append(("destroy", handle))

    def set_stream(self, handle, stream):
        self.done.append(("stream", handle, stream))

    def pygraph(self, **options):
        assert options["handle"] == 7
        return self

    def tensor(self, name, **options):
        return Result(name)

    def conv_fprop(self, **options):
        return Result()

    def layernorm(self, **options):
        assert options["norm_forward_phase"] == "inference"
        return [Result(), None, None]

    def validate(self):
        pass

    build_operation_graph = validate

    def check_support(self):
        if not self.supported:
            raise self.UnsupportedError("no engine")

    def create_execution_plans(self, modes):
        self.done.append(("modes", modes))

    def deselect_workspace_greater_than(self, size):
        pass

    def deselect_numeric_notes(self, notes):
        self.done.append(("unwanted", notes))

    def get_execution_plan_count(self):
        return len(self.names)

    def get_plan_name_at_index(self, index):
        return self.names[index]

    def build_plans(self, policy):
        for index in range(len(self.names)):
            with contextlib.suppress(RuntimeError):
                self.build_plan_at_index(index)

    def build_plan_at_index(self, index):
        if self.names[index] in self.broken:
            raise RuntimeError("not for this device")
        self.built.add(index)

    def get_workspace_size_plan_at_index(self, index):
        if index not in self.built:
            raise RuntimeError("not built")
        return 1000 + index

    def execute_plan_at_index(self, pointers, workspace, index, handle):
        self.done.append(("execute", pointers, workspace, self.names[index], handle))


class Result(str):
    """A tensor of cuDNN's that has a name."""

    OWN = frozenset({"OWN", "alignment", *dir(str)})

    def set_alignment(self, value):
        self.alignment = value
        return self

    def set_output(self, _):
        return self

    set_data_type = set_dim = set_stride = set_output
