"""Files whose doctests need packages that are not installed are not collected."""

from importlib.util import find_spec

collect_ignore_glob = (
    [] if find_spec("torch") and find_spec("onnxscript") else ["eqsat/pytorch/*", "eqsat/language/pytorch/*"]
)
