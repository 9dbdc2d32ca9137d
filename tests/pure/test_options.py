"""An option is written once: calls, their keyword arguments and command lines derive from the fields of `Options`."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, replace
from pathlib import Path

import click
import pytest

import eqsat
from eqsat import cli
from eqsat.errors import UsageError
from eqsat.options import keywords
from eqsat.options.meanings import CALLS, Call, meaning_of
from eqsat.options.options import Options, default_of, options_of

TYPED = {
    "pareto": keywords.ParetoKeywords,
    "explore": keywords.ExploreKeywords,
    "optimize": keywords.OptimizeKeywords,
}


@pytest.mark.parametrize("call", CALLS)
def test_type_checkers_see_the_options_that_a_call_takes(call: Call) -> None:
    stated = {name: str(of.__forward_arg__) for name, of in inspect.get_annotations(TYPED[call]).items()}
    assert stated == {one.name: str(one.type) for one in options_of(call)}


@pytest.mark.parametrize("call", CALLS)
def test_calls_show_their_options_with_defaults_and_say_what_each_is(call: Call) -> None:
    function = getattr(eqsat, call)
    shown = inspect.signature(function).parameters
    for one in options_of(call):
        assert shown[one.name].default == default_of(one, call)
        assert f"* `{one.name}`: {meaning_of(one).text}." in function.__doc__
    assert "{options}" not in function.__doc__


@pytest.mark.parametrize("call", CALLS)
def test_commands_take_every_option_that_has_a_flag(call: Call) -> None:
    command = cli.commands.commands[call]
    taken = {parameter.name: parameter for parameter in command.params}
    for one in options_of(call):
        meaning = meaning_of(one)
        if meaning.flag:
            parameter = taken[one.name]
            assert isinstance(parameter, click.Option)
            assert parameter.opts[0] == meaning.flag.partition("/")[0]
            assert parameter.help == meaning.help != ""


def test_every_option_has_a_text_and_a_check() -> None:
    for one in fields(Options):
        assert meaning_of(one).text and callable(meaning_of(one).check)
        assert bool(meaning_of(one).flag) == bool(meaning_of(one).help)


def test_an_option_that_a_call_does_not_take_is_refused_with_the_one_that_is_near() -> None:
    with pytest.raises(
        TypeError, match=r"optimize\(\) got an unexpected keyword argument 'devise'. Did you mean 'device'"
    ):
        Options.of("optimize", {"devise": "cuda"})
    with pytest.raises(TypeError, match=r"pareto\(\) got an unexpected keyword argument 'buckets'"):
        Options.of("pareto", {"buckets": {"batch": [1]}})


def test_defaults_are_those_of_the_call() -> None:
    assert Options.of("pareto", {}).time_limit == 60.0
    assert Options.of("optimize", {}).time_limit == Options().time_limit == 30.0


def test_options_are_checked_when_they_are_made_and_when_they_are_replaced() -> None:
    with pytest.raises(UsageError, match="steps = 0"):
        Options(steps=0)
    options = Options(sizes={"batch": [1, 3]}, limits={"peak_memory": "8 GB"}, buckets={"length": [4, 2]})
    assert replace(options, seed=1) == replace(replace(options, seed=2), seed=1)
    assert options.limits == {"peak_memory": 8e9}
    with pytest.raises(UsageError, match="seed = -1"):
        replace(options, seed=-1)
    with pytest.raises(UsageError, match="buckets and sizes of 'batch'"):
        replace(options, buckets={"batch": [1]})


def test_calibration_data_are_checked_for_their_form_alone(tmp_path: Path) -> None:
    unread = iter([{"x": 1}])
    assert Options(calibration=unread).calibration is unread
    assert next(unread) == {"x": 1}
    assert Options(calibration=tmp_path).calibration == tmp_path
    with pytest.raises(UsageError, match=re.escape("calibration = int\n  expected dicts of arrays by input name")):
        Options(calibration=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=re.escape("none.npz: the file cannot be read: No such file or directory")):
        Options(calibration=tmp_path / "none.npz")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UsageError, match=re.escape("x.npy: not an .npz file")):
        Options(calibration=str(tmp_path / "x.npy"))
