"""Import of calls of comprehensions, which PyTorch's exporter writes as nodes of a domain of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping

from eqsat.errors import EqsatError
from eqsat.language.comprehension.calls import NAME, given_at
from eqsat.language.comprehension.engine import only_function
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported


def _comprehension(call: Call) -> None:
    try:
        function = only_function(call.attrs["source"])
        places = call.attrs.get("places", ())
        numbers = json.loads(call.attrs.get("numbers", "{}"))
        values = [call.value(index) for index in range(len(places))]
        given = given_at(function, [*places, *numbers], [*values, *numbers.values()])
    except (EqsatError, KeyError, ValueError) as error:
        raise Unsupported(f"a comprehension that is not one: {error}") from None
    operands = []
    for name in (*function.operands, *(one for one in function.scope.updated if one in given)):
        value = given[name]
        operands.append(value if isinstance(value, str) else call.number(value, function.types[name]))
    computed = [name for name in function.needs if isinstance(given[name], str)]
    if computed:
        raise Unsupported(f"{function.name} of a {computed[0]} that is computed")
    outputs = [name or call.unused(index) for index, name in enumerate(call.node.output)]
    call.emit(operator_of(function).name, *operands, outputs=outputs, **{name: given[name] for name in function.needs})


IMPORTS: Mapping[str, Importer] = {NAME: _comprehension}
