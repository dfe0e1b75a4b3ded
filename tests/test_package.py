"""The front door: what an import costs, what is public and how it explains itself."""

import inspect
import subprocess
import sys
from importlib import metadata, resources

import numpy as np
import pytest

import isoscope

HEAVY = ["torch", "jax", "numba", "llvmlite", "scipy", "sklearn", "cupy", "pandas", "safetensors", "threadpoolctl"]
NAMES = [name for name in isoscope.__all__ if name != "__version__"]


def heavy_modules_after(program: str) -> set[str]:
    """What a fresh interpreter has imported of the heavy modules once the program has run."""
    tell = f"{program}\nimport sys\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_an_import_costs_nothing_heavy():
    assert heavy_modules_after("import isoscope") == set()


def test_a_look_at_the_names_costs_nothing_heavy():
    assert heavy_modules_after("import isoscope; dir(isoscope); isoscope.__version__; isoscope.InputError") == set()


def test_sums_of_numpy_arrays_need_numpy_alone():
    program = """
import numpy as np, isoscope
X = np.random.default_rng(0).standard_normal((20, 4))
isoscope.isoscore(X), isoscope.isoscore(X, unbiased=True), isoscope.mean_cosine(X)
"""
    assert heavy_modules_after(program) == set()


@pytest.mark.parametrize(
    "measure", ["sketch(X).isoscore()", "h0_barcode(X)", "two_nn(X)", "silhouette(X, [0, 1] * 10)", "uniformity(X)"]
)
def test_no_measurement_of_numpy_arrays_imports_another_array_library(measure):
    program = f"""
import numpy as np, isoscope
X = np.random.default_rng(0).standard_normal((20, 4))
isoscope.{measure}
"""
    assert not heavy_modules_after(program) & {"torch", "jax", "cupy"}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_explains_itself(name):
    value = getattr(isoscope, name)
    assert value.__name__ == name
    assert value.__module__.startswith("isoscope.")
    text = inspect.getdoc(value)
    assert text
    assert not text.startswith(f"{name}(")  # a NamedTuple's own docstring says nothing
    if inspect.isfunction(value):
        assert ">>> " in text


def test_the_names_are_all_in_dir_and_each_once():
    assert len(set(isoscope.__all__)) == len(isoscope.__all__)
    assert set(dir(isoscope)) == set(isoscope.__all__)


def test_a_star_import_gives_every_name():
    space = {}
    exec("from isoscope import *", space)
    assert set(isoscope.__all__) <= set(space)


@pytest.mark.parametrize("name", ["attach", "IStar", "CosReg", "PersistentEntropy", "UnbiasedIsoScore"])
def test_what_needs_torch_says_how_to_get_it(name):
    code = (
        "import sys; sys.modules['torch'] = None; import isoscope\n"
        f"try: isoscope.{name}\nexcept isoscope.MissingExtra as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith('pip install "isoscope[train]"')
    assert len(said.strip().splitlines()) == 1


def test_type_checkers_see_the_same_names_as_the_interpreter():
    """The names under TYPE_CHECKING are written twice, so that they are compared here."""
    import ast

    tree = ast.parse(inspect.getsource(isoscope))
    checked = next(node for node in tree.body if isinstance(node, ast.If) and node.test.id == "TYPE_CHECKING")
    homes = {alias.name: node.module for node in checked.body for alias in node.names}
    assert set(homes) == set(NAMES)
    for name, home in homes.items():
        assert getattr(isoscope, name).__module__ == home


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'isoscope' has no attribute 'isoscor'"):
        isoscope.isoscor  # noqa: B018
    assert not hasattr(isoscope, "isoscor")


def test_the_version_is_the_package_s():
    assert isoscope.__version__ == metadata.version("isoscope")


def test_the_package_is_typed():
    assert (resources.files("isoscope") / "py.typed").is_file()


def test_errors_and_warnings_are_of_the_expected_kinds():
    assert issubclass(isoscope.InputError, ValueError)
    assert issubclass(isoscope.DataWarning, UserWarning)
    with pytest.raises(ValueError, match="X has 1 row"):
        isoscope.isoscore(np.ones((1, 2)))
