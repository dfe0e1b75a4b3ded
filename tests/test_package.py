"""The public API: the cost of an import, the public names, and their docstrings."""

import ast
import importlib
import importlib.util
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import numpy as np
import pytest

import isoscope

ROOT = Path(__file__).parents[1]
HEAVY = ["torch", "jax", "numba", "llvmlite", "scipy", "sklearn", "cupy", "pandas", "safetensors", "threadpoolctl"]
LAZY = ["isoscope", *(f"isoscope.{each}" for each in dir(isoscope) if each.islower() and each not in isoscope.__all__)]
LAZY.remove("isoscope.errors")
PUBLIC = [
    (module, name)
    for module in [*LAZY, "isoscope.errors"]
    for name in importlib.import_module(module).__all__
    if name != "__version__"
]


def heavy_modules_after(program: str) -> set[str]:
    """Return the heavy modules that a fresh interpreter has imported after the program."""
    script = f"{program}\nimport sys\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_import_loads_nothing_heavy():
    program = "import isoscope; dir(isoscope); isoscope.__version__; isoscope.InputError; dir(isoscope.losses)"
    assert heavy_modules_after(program) == set()


def test_sketching_numpy_arrays_needs_only_numpy():
    program = """
import numpy as np, isoscope
X = np.random.default_rng(0).standard_normal((20, 4))
isoscope.isoscore(X), isoscope.isoscore(X, unbiased=True), isoscope.mean_cosine(X)
"""
    assert heavy_modules_after(program) == set()


MEASURES = ["sketch(X).isoscore()", "h0_barcode(X)", "two_nn(X)", "silhouette(X, [0, 1] * 10)", "uniformity(X)"]


@pytest.fixture(scope="module")
def heavy_modules_after_measures() -> dict[str, set[str]]:
    """Return the heavy modules that one fresh interpreter has imported after each measure, in order."""
    script = f"""
import sys, numpy as np, isoscope
X = np.random.default_rng(0).standard_normal((20, 4))
for measure in {MEASURES}:
    eval(f"isoscope.{{measure}}")
    print(*[name for name in {HEAVY} if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {measure: set(line.split()) for measure, line in zip(MEASURES, run.stdout.splitlines(), strict=True)}


@pytest.mark.parametrize("measure", MEASURES)
def test_measuring_numpy_arrays_imports_no_other_array_library(heavy_modules_after_measures, measure):
    assert not heavy_modules_after_measures[measure] & {"torch", "jax", "cupy"}


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_every_public_name_has_a_docstring_and_an_example(module, name):
    value = getattr(importlib.import_module(module), name)
    assert value.__name__ == name
    assert value.__module__.partition(".")[0] == "isoscope"
    text = inspect.getdoc(value)
    assert text
    assert not text.startswith(f"{name}(")  # the generated docstring of a NamedTuple
    if inspect.isfunction(value):
        assert ">>> " in text


@pytest.mark.parametrize("module", LAZY)
def test_dir_and_star_import_give_every_name_once(module):
    package = importlib.import_module(module)
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) - {"__version__"} <= set(dir(package))
    space = {}
    exec(f"from {module} import *", space)
    assert set(package.__all__) <= set(space)


def test_top_level_has_about_fifty_names():
    assert 45 <= len(isoscope.__all__) <= 65


def test_public_names_need_no_import_and_are_not_replaced_by_modules():
    """Packages are attributes before their import; a module with a function's name would replace the function."""
    program = """
import importlib, pkgutil, isoscope
for name in dir(isoscope):
    getattr(isoscope, name)
print(isoscope.metrics.__name__)
for each in pkgutil.walk_packages(isoscope.__path__, "isoscope."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
for package in (isoscope, *(importlib.import_module(f"isoscope.{name}") for name in %r)):
    for name in package.__all__:
        value = getattr(package, name)
        assert callable(value) or name == "__version__", f"{package.__name__}.{name} is {value!r}"
"""
    names = [each.rpartition(".")[2] for each in LAZY if each != "isoscope"]
    run = subprocess.run([sys.executable, "-c", program % names], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "isoscope.metrics\n"


@pytest.mark.parametrize("module", LAZY)
def test_no_module_shares_its_name_with_a_public_function(module):
    package = importlib.import_module(module)
    assert not {each.name for each in pkgutil.iter_modules(package.__path__)} & set(package.__all__)


@pytest.mark.parametrize("name", ["attach", *(f"losses.{each}" for each in isoscope.losses.__all__)])
def test_names_that_need_torch_show_how_to_install_it(name):
    code = (
        "import sys; sys.modules['torch'] = None; import isoscope\n"
        f"try: isoscope.{name}\nexcept isoscope.MissingExtra as error: print(error)"
    )
    message = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert message.endswith('pip install "isoscope[train]"')
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("module", LAZY)
def test_type_checkers_see_the_runtime_names(module):
    """The names under TYPE_CHECKING duplicate the public names, so this test compares both."""
    package = importlib.import_module(module)
    tree = ast.parse(inspect.getsource(package))
    checked = next(node for node in tree.body if isinstance(node, ast.If) and node.test.id == "TYPE_CHECKING")
    homes = {alias.asname: node.module for node in checked.body for alias in node.names}
    subpackages = {name for name, home in homes.items() if home == "isoscope"}
    assert homes.keys() - subpackages == set(package.__all__) - {"__version__"}
    assert homes.keys() | {"__version__"} >= set(dir(package))
    for name in homes.keys() - subpackages:
        assert getattr(package, name) is getattr(importlib.import_module(homes[name]), name)


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'isoscope' has no attribute 'isoscor'"):
        isoscope.isoscor  # noqa: B018
    assert not hasattr(isoscope, "isoscor")


def test_version_matches_the_distribution():
    assert isoscope.__version__ == metadata.version("isoscope")


def test_the_package_is_typed():
    assert (resources.files("isoscope") / "py.typed").is_file()


def test_errors_are_value_errors_and_survive_pickling():
    assert issubclass(isoscope.InputError, ValueError)
    assert issubclass(isoscope.DataWarning, UserWarning)
    for name in isoscope.errors.__all__:
        kind = getattr(isoscope.errors, name)
        assert issubclass(kind, isoscope.InputError | isoscope.DataWarning)
        assert type(pickle.loads(pickle.dumps(kind("X has 1 row")))) is kind
    with pytest.raises(ValueError, match="X has 1 row"):
        isoscope.isoscore(np.ones((1, 2)))


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_page_is_generated_from_the_code():
    tool = load_tool("api_page")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.render_page(), "run python tools/api_page.py"


def test_the_reference_page_has_every_public_name_and_no_other():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### `([\w.]+)`$", page, flags=re.M)) == sorted(f"{a}.{b}" for a, b in PUBLIC)
