import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope._core.errors import DataWarning, InputError
from isoscope.training.history import History
from isoscope.training.layer_metrics import MEASUREMENTS
from tests.training.histories import made


def rows(step: int, layers: int = 2) -> list[dict]:
    values = {name: step + i / 100 for i, name in enumerate(MEASUREMENTS)} | {"silhouette": math.nan}
    place = {"step": step, "epoch": step / 10, "rows": 8, "dimensions": 4}
    return [place | {"order": i, "layer": f"layer_{i}"} | values for i in range(layers)]


def filled(path=None, steps=(0, 10, 20)) -> History:
    history = History(path)
    for step in steps:
        history.append(rows(step))
        history.save()
    return history


def told(history: History) -> list[str]:
    return [repr(row) for row in history]  # NaN is equal to itself so


def test_saved_history_can_be_read(tmp_path):
    history = filled(tmp_path / "history.parquet")
    assert told(History.read(tmp_path / "history.parquet")) == told(history)


def test_resumed_history_equals_uninterrupted_history(tmp_path):
    filled(tmp_path / "whole.parquet", range(0, 60, 10))
    filled(tmp_path / "parts.parquet", range(0, 40, 10))  # cut off at 35, the last checkpoint is that of step 20
    resumed = History.read(tmp_path / "parts.parquet")
    resumed.truncate(21)
    for step in (30, 40, 50):
        resumed.append(rows(step))
    resumed.save()
    assert told(History.read(tmp_path / "parts.parquet")) == told(History.read(tmp_path / "whole.parquet"))


def test_other_programs_can_read_the_file(tmp_path):
    filled(tmp_path / "history.parquet")
    table = pq.read_table(tmp_path / "history.parquet").to_pydict()
    assert table["step"] == [0, 0, 10, 10, 20, 20]
    assert table["layer"] == ["layer_0", "layer_1"] * 3
    assert set(MEASUREMENTS) < set(table)


def test_series_of_a_layer():
    steps, values = filled().series("layer_1", "isoscore")
    assert steps.tolist() == [0, 10, 20]
    assert np.diff(values).tolist() == pytest.approx([10, 10])


def test_layers_are_in_model_order():
    history = History()
    history.append(reversed(rows(0, layers=12)))
    assert history.layers == [f"layer_{i}" for i in range(12)]
    assert history.steps == [0]


def test_folder_can_be_read_as_history(tmp_path):
    history = filled(tmp_path / "run" / "isotropy")
    assert history.path == tmp_path / "run" / "isotropy" / "history.parquet"
    assert len(History.read(tmp_path / "run" / "isotropy")) == 6


def test_new_training_keeps_the_old_file(tmp_path):
    path = tmp_path / "history.parquet"
    for number in (1, 2):
        before = told(filled(path, (0, number)))
        history = History.read(path)
        with pytest.warns(
            DataWarning, match=rf"an earlier training run, up to step {number}: .* history-{number}.parquet"
        ):
            history.truncate(0)
        assert told(History.read(tmp_path / f"history-{number}.parquet")) == before
        assert len(history) == 0


def test_remeasuring_the_first_step_renames_no_file(tmp_path):
    history = filled(tmp_path / "history.parquet", [0])
    history.truncate(0)
    assert len(history) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["history.parquet"]


def test_interrupted_save_keeps_the_old_file(tmp_path, monkeypatch):
    history = filled(tmp_path / "history.parquet")
    history.append(rows(30))
    monkeypatch.setattr(pq, "write_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        history.save()
    monkeypatch.undo()
    assert History.read(tmp_path / "history.parquet").steps == [0, 10, 20]
    assert len(list(tmp_path.iterdir())) == 1


def test_invalid_history_file_raises_with_its_name(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.parquet does not exist"):
        History.read(tmp_path / "nowhere.parquet")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(InputError, match=r"broken.parquet cannot be read as Parquet"):
        History.read(broken)
    pq.write_table(pa.table({"step": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"other.parquet has no column epoch"):
        History.read(tmp_path / "other.parquet")
    held = pq.read_table(filled(tmp_path / "holes.parquet").path)
    place = held.column_names.index("step")
    for value in (None, math.inf):
        pq.write_table(held.set_column(place, "step", [[value] * len(held)]), tmp_path / "holes.parquet")
        with pytest.raises(InputError, match=r"holes.parquet has .* in column step"):
            History.read(tmp_path / "holes.parquet")


def test_unknown_name_raises_with_known_names():
    with pytest.raises(InputError, match=r"layer 'layer_9' is not in the history: choose from layer_0, layer_1"):
        filled().series("layer_9", "isoscore")
    with pytest.raises(InputError, match=r"measurement is 'loss': need one of anisotropy_1, "):
        filled().series("layer_0", "loss")


def test_notebooks_show_the_charts_of_a_history():
    html = made(layers=1)._repr_html_()
    assert html.count("<img") == 3
    assert "unbiased" in html
    assert "<img" not in History()._repr_html_()


def test_one_layer_is_singular():
    assert repr(made(layers=1)) == "History(4 steps, 1 layer)"
