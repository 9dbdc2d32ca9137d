"""The error of times interpolated from the kernel timings that NVIDIA publishes, on shapes held back.

    python -m benchmarks.cited_costs --package FOLDER

FOLDER is an unpacked `aiconfigurator-core` 0.12 (Apache-2.0; its folder `aiconfigurator_core`). No time was measured by
eqsat: all of them are cited. One shape in ten is held back, chosen before anything is fitted, and for products also
one pair (n, k) in ten with all of its rows. The costs of eqsat's devices do not use these timings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).parent / "results" / "cited_costs.json"
#: Peak operations and bytes a second, by which times are made efficiencies: those of the device nvidia-h200, and about
#: nine tenths of what data sheets say of the other two. The interpolation corrects them; the plain roofline that is
#: printed beside it does not.
PEAKS = {"h200_sxm": (788e12, 4.3e12), "h100_sxm": (788e12, 3.0e12), "a100_sxm": (280e12, 1.7e12)}
LAUNCH = 2.5e-6
NEIGHBOURS = 12
#: Rows that are predicted of those held back, a series.
ASKED = 1500
SEED = 0
_KINDS = {
    "products": ("gemm", "gemm_perf", ("m", "n", "k"), ("gemm_dtype",)),
    "encoder attention": ("encoder_attention", "encoder_attention_perf", ("batch_size", "isl", "num_heads"), ()),
    "context attention": (
        "attention",
        "context_attention_perf",
        ("batch_size", "isl", "num_heads", "num_key_value_heads"),
        ("kv_cache_dtype", "window_size", "step"),
    ),
    "generation attention": (
        "attention",
        "generation_attention_perf",
        ("batch_size", "step", "num_heads", "num_key_value_heads"),
        ("kv_cache_dtype", "window_size"),
    ),
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Timings of one kind of kernel by one framework: sizes (rows, dims), seconds and their roofline (rows)."""

    device: str
    kind: str
    source: str
    variant: str
    sizes: Array
    seconds: Array
    roofline: Array


def interpolated(sizes: Array, efficiency: Array, asked: Array) -> Array:
    """Efficiencies at the asked sizes: local planes through the nearest known ones, all in logarithms.

    `sizes` are (rows, dims), `efficiency` (rows,), `asked` (rows, dims), all above 0. Beyond the known sizes all
    neighbours are far, weights small and planes close to level: nothing is extrapolated.

    >>> known = np.array([[2.0**i, 2.0**j] for i in range(5) for j in range(5)])
    >>> interpolated(known, known[:, 0] * known[:, 1], np.array([[6.0, 3.0]])).round(2).tolist()
    [18.0]
    """
    from scipy.spatial import cKDTree

    known, points, values = np.log2(sizes), np.log2(asked), np.log(efficiency)
    count = min(NEIGHBOURS, len(known))
    distances, nearest = cKDTree(known).query(points, count)
    distances, nearest = distances.reshape(-1, count), nearest.reshape(-1, count)
    reach = distances[:, -1:] * 1.1 + 1e-9
    weights = (1 - (distances / reach) ** 3) ** 3
    plane = np.concatenate([np.ones((*nearest.shape, 1)), known[nearest] - points[:, None]], 2)
    # A small penalty on slopes keeps planes level where neighbours lie on a line.
    penalty = np.diag([1e-9] + [0.02] * known.shape[1])
    normal = np.einsum("rnd,rn,rne->rde", plane, weights, plane) + penalty
    right = np.einsum("rnd,rn,rn->rd", plane, weights, values[nearest])
    return np.asarray(np.exp(np.linalg.solve(normal, right[..., None])[:, 0, 0]))


def ratios(predicted: Array, measured: Array) -> dict[str, float]:
    """Quantiles of max(p/m, m/p)."""
    error = np.maximum(predicted / measured, measured / predicted)
    named = {"median": 0.5, "p90": 0.9, "p99": 0.99, "worst": 1.0}
    return {name: round(float(np.quantile(error, q)), 3) for name, q in named.items()}


def _roofline(device: str, kind: str, rows: dict[str, Array]) -> Array:
    flops, bandwidth = PEAKS[device]
    if kind == "products":
        m, n, k = rows["m"], rows["n"], rows["k"]
        return np.asarray(np.maximum(2 * m * n * k / flops, 2 * (m * n + m * k + n * k) / bandwidth) + LAUNCH)
    batch, heads, width = rows["batch_size"], rows["num_heads"], rows["head_dim"]
    shared = rows.get("num_key_value_heads", heads)
    new = np.ones_like(batch) if kind == "generation attention" else rows["isl"]
    seen = new + rows["step"] if "step" in rows else new
    pairs = new * seen if kind != "context attention" else new * (seen - new / 2)
    moved = 4 * batch * width * (heads * new + shared * seen)
    return np.asarray(np.maximum(4 * batch * heads * width * pairs / flops, moved / bandwidth) + LAUNCH)


def read_series(package: Path, device: str) -> Iterator[Series]:
    """Every series in bfloat16 of a device; SystemExit where pyarrow or the files are missing."""
    data = package / "systems" / "data" / device
    if not any(data.glob("gemm/*/*/gemm_perf.parquet")):
        sys.exit(f"{package}: no timings of {device}\n  expected systems/data/{device}/gemm/*/*/gemm_perf.parquet")
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        sys.exit("cannot read parquet: pyarrow is not installed\n  pip install pyarrow")
    for kind, (folder, name, dims, variants) in _KINDS.items():
        for file in sorted((data / folder).glob(f"*/*/{name}.parquet")):
            frame = parquet.read_table(file).to_pandas()
            frame = frame[frame["gemm_dtype" if kind == "products" else "attn_dtype"] == "bfloat16"]
            # Not every framework has windows.
            split = [v for v in (*variants, *([] if kind == "products" else ["head_dim"])) if v in frame]
            source = "/".join(file.parts[-3:-1])
            for variant, part in frame.groupby(split):
                # One time a shape, so that no shape is both known and held back.
                part = part.groupby(list(dims), as_index=False).median(numeric_only=True)
                columns = {c: part[c].to_numpy(float) for c in part if c != "latency"}
                columns |= {c: np.full(len(part), float(v)) for c, v in zip(split, variant, strict=True) if _counts(c)}
                sizes = np.stack([columns[d] for d in dims], 1)
                seconds = part["latency"].to_numpy(float) * 1e-3
                label = " ".join(f"{c}={v}" for c, v in zip(split, variant, strict=True))
                yield Series(device, kind, source, label, sizes, seconds, _roofline(device, kind, columns))


def _counts(column: str) -> bool:
    return column in ("head_dim", "window_size", "step")


def held_back(series: Series, columns: Sequence[int]) -> NDArray[np.bool_]:
    """One in ten of the distinct sizes in these columns, as a mask of rows."""
    _, index = np.unique(series.sizes[:, columns], axis=0, return_inverse=True)
    index = index.reshape(-1)
    return np.asarray((np.random.default_rng(SEED).random(index.max() + 1) < 0.1)[index])


def errors(series: Sequence[Series], columns: Sequence[int] | None = None) -> dict[str, object]:
    """Errors on the rows that are held back in several series, with those of the roofline on the same rows."""
    predicted, measured, roofline = [], [], []
    for one in series:
        mask = held_back(one, range(one.sizes.shape[1]) if columns is None else columns)
        if mask.sum() == 0 or (~mask).sum() < NEIGHBOURS:
            continue
        asked = np.flatnonzero(mask)
        asked = np.random.default_rng(SEED).permutation(asked)[:ASKED]
        known = one.seconds[~mask] / one.roofline[~mask]
        predicted.append(interpolated(one.sizes[~mask], known, one.sizes[asked]) * one.roofline[asked])
        measured.append(one.seconds[asked])
        roofline.append(one.roofline[asked])
    if not measured:
        return {"rows": 0}
    p, m, r = map(np.concatenate, (predicted, measured, roofline))
    return {"rows": len(m), "interpolated": ratios(p, m), "roofline": ratios(r, m)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of errors and write it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cited_costs", description=__doc__.split("\n")[0])
    parser.add_argument("--package", type=Path, required=True, help="The folder aiconfigurator_core.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    rows = []
    for device in PEAKS:
        groups: dict[tuple[str, str], list[Series]] = {}
        for one in read_series(given.package, device):
            groups.setdefault((one.kind, one.source), []).append(one)
        for (kind, source), several in groups.items():
            whole = {"device": device, "kind": kind, "source": source}
            rows.append(whole | {"held": "shapes"} | errors(several))
            if kind == "products":
                rows.append(whole | {"held": "(n, k)"} | errors(several, (1, 2)))
    print(f"{'device':9} {'kind':21} {'source':21} {'held':7} {'rows':>5}  median    p90  worst  roofline's")
    for row in rows:
        if row["rows"]:
            ours, base = row["interpolated"], row["roofline"]
            print(
                f"{row['device']:9} {row['kind']:21} {row['source']:21} {row['held']:7} {row['rows']:5}  "
                f"{ours['median']:6.3f} {ours['p90']:6.3f} {ours['worst']:6.2f}  {base['median']:.2f} {base['p90']:.2f}"
            )
    cited = {"package": "aiconfigurator-core 0.12", "licence": "Apache-2.0", "measured_here": False}
    given.output.write_text(json.dumps({"cited": cited, "dtype": "bfloat16", "errors": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
