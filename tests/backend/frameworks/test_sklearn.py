"""Estimators and pipelines of scikit-learn, exported by skl2onnx."""

from typing import Any

import numpy as np
import pytest

skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed: make test-frameworks")
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

import eqsat  # noqa: E402
from eqsat.errors import ImportModelError  # noqa: E402

ESTIMATORS = {
    "linear": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "projected": lambda: make_pipeline(StandardScaler(), PCA(4, random_state=0), MLPClassifier(random_state=0)),
    "forest": lambda: RandomForestClassifier(5, random_state=0),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("zipmap", [False, True], ids=["tensor", "dicts"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_and_its_result_agree(name: str, zipmap: bool) -> None:
    X = np.random.default_rng(0).standard_normal((100, 8)).astype(np.float32)
    fitted = ESTIMATORS[name]().fit(X, X.sum(1) > 0)
    model = skl2onnx.to_onnx(fitted, X[:1], **({} if zipmap else {"options": {"zipmap": False}}))
    result = eqsat.optimize(model, measure=False, time_limit=20.0)
    assert not result.report.failure
    label, probability = result.run(X=X).values()
    rows: Any = [[row[True], row[False]] for row in probability] if zipmap else probability[:, ::-1]
    assert (label == fitted.predict(X)).all()
    np.testing.assert_allclose(rows, fitted.predict_proba(X)[:, ::-1], atol=1e-5)


def test_an_estimator_is_refused_with_the_way_to_onnx() -> None:
    with pytest.raises(ImportModelError, match=r"a PCA of scikit-learn is not read as it is[\s\S]*skl2onnx\.to_onnx"):
        eqsat.optimize(PCA(4))
