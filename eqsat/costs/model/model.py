"""The cost model: what operators and graphs cost on a device, from measured times and the device's figures."""

from __future__ import annotations

from eqsat.costs.model.cost import GraphCost
from eqsat.costs.model.graph_costs import graph_cost
from eqsat.costs.model.prices import OperatorPrices
from eqsat.language.terms import Graph


class CostModel(OperatorPrices):
    """Costs on one device.

    `objective` weighs the terms time (seconds), flops, bytes, launches, weight_memory (bytes), error, and peak_memory
    (bytes), of which the last is no sum and left to who schedules. `cost`, a function from an Application to a number
    that is finite and not negative, stands in place of the objective. `sizes` are the sizes of named dims. A time comes
    from `table` where the operator was measured in this environment, else from the device's roofline, fitted to the
    measurements, and is marked as estimated.

    A sum over operators knows nothing of optimisations across them: ONNX Runtime folds a batch normalisation into the
    convolution before it, fuses patterns such as layer normalisation from its parts, and keeps a layout of its own
    between convolutions. Nor does it know times that depend on data: a softmax over masked scores takes ten times as
    long as one over small numbers. So finalists are measured whole. On a GPU whose table has whole graphs, kernels'
    costs are scaled so that sums meet them: factor · seconds + overhead, unless `corrected` is False.
    """

    def graph(self, graph: Graph) -> GraphCost:
        """The cost of a whole graph, node by node, and of the constants that are there when it runs."""
        return graph_cost(self, graph)
