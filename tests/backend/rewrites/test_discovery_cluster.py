"""Generation on a cluster of two workers."""

import distributed

from eqsat.rewrites.discovery.enumerate import generate
from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings


def test_a_cluster_finds_what_one_process_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "_PART", 5000)
    source = tmp_path / "own_operators.py"
    source.write_text(
        "import eqsat\n"
        "@eqsat.op('own_double', infer=lambda operands, attrs: (operands[0],), pointwise=True)\n"
        "def own_double(xp, x):\n"
        "    '''Twice the operand.'''\n"
        "    return xp.add(x, x)\n"
    )
    settings = GenerationSettings(
        ops=("add", "transpose", "concat", "split", "own_double"), domains=("3x3*3",), imports=(str(source),)
    )
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        made = generate.generate(settings, executor=executor)
    alone = generate.generate(settings)
    assert made.candidates == alone.candidates
    assert made.counts == alone.counts
    assert any("own_double" in c.left[0] for c in made.candidates)
