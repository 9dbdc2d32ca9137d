"""Figures that authors published for the models of the table: cited, not measured here, and of other machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Published:
    """What the authors of a system say of a network: how much faster it becomes, and the seconds of the search at most.

    `speedup` is None where there is no figure for this network alone.
    """

    system: str
    speedup: str | None
    seconds: float
    source: str


#: "Five DNNs … within 5 minutes", inference 1.1 to 1.6 times as fast as by other optimisers, over all five.
_METAFLOW = Published("MetaFlow", None, 300.0, "Jia et al., MLSys 2019, introduction: 1.1 to 1.6 over five networks")


def _taso(speedup: str | None) -> Published:
    """A figure of TASO on a V100, against the best of three frameworks."""
    return Published("TASO", speedup, 600.0, "TASO's repository and Jia et al., SOSP 2019: V100, best of 3 frameworks")


#: What was published for each model: MetaFlow's five networks, and TASO's.
PUBLISHED: Mapping[str, tuple[Published, ...]] = MappingProxyType(
    {
        "inception_v3": (_METAFLOW, _taso("1.1")),
        "squeezenet1_1": (_METAFLOW, _taso("1.3")),
        "resnet50": (_METAFLOW, _taso(None)),
        "sru_text_classifier": (_METAFLOW,),
        "sru_translation": (_METAFLOW,),
        "resnext50": (_taso("3.1"),),
        "nasnet_a": (_taso("1.3"),),
        "nasrnn": (_taso(None),),
        "taso_bert": (_taso("1.5"),),
        "bert_base": (),
    }
)
