"""Execute notebooks and write them with their outputs: `make notebooks`."""

from __future__ import annotations

import sys
import time

from notebooks.pairing import FOLDER, sources, write

known = {path.stem: path for path in sources()}
unknown = [name for name in sys.argv[1:] if name not in known]
if unknown:
    sys.exit(f"no notebook {', '.join(unknown)}; there are {', '.join(known)}")
for name in sys.argv[1:] or known:
    began = time.perf_counter()
    target = write(known[name])
    shown = target.relative_to(FOLDER.parent)
    print(f"{shown}: {target.stat().st_size:,} bytes, {time.perf_counter() - began:.1f} s", flush=True)
