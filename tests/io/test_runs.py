"""Run folders: resumed with the same settings, rejected with others, and locked during a run."""

import json
import os

import pytest

from isoscope._core.errors import FileFormatError, InputError, OutputError
from isoscope._io.runs import RunFolder, differences


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run", "run.json", "test/1", parts=("part-*",), can_restart=True)


def fill(run, settings, *parts, **options):
    with run.open():
        earlier = run.begin(settings, **options)
        for part in parts:
            run.record(part, {"name": part})
    return earlier


def test_run_with_same_settings_resumes(run):
    assert fill(run, {"rows": 3, "layers": (1, 2)}, "part-0") is None
    assert fill(run, {"rows": 3, "layers": [1, 2]}) == {"schema": "test/1", "rows": 3, "layers": [1, 2]}
    assert run.is_done("part-0")
    assert not run.is_done("part-1")


def test_changed_settings_raise_and_are_named(run):
    fill(run, {"rows": 3, "seed": None}, "part-0")
    with pytest.raises(OutputError, match=r"rows was 3, is 4; seed was not set, is 1; .*--restart"):
        fill(run, {"rows": 4, "seed": 1})
    assert fill(run, {"rows": 4, "seed": 1}, restart=True) is None
    assert not run.has_parts()


def test_changed_settings_are_accepted_if_nothing_is_finished(run):
    fill(run, {"rows": 3})
    assert fill(run, {"rows": 4}) is None
    assert json.loads(run.manifest.read_text()) == {"schema": "test/1", "rows": 4}


def test_settings_may_be_nested_in_the_manifest(tmp_path):
    run = RunFolder(tmp_path, "run.json", "test/1", parts=("part-*",), settings_key="settings")
    fill(run, {"rows": 3}, "part-0", facts={"model": "a"})
    assert fill(run, {"rows": 3}, facts={"model": "b"})["model"] == "a"
    assert run.read() == {"schema": "test/1", "model": "b", "settings": {"rows": 3}}
    run.manifest.write_text('{"schema": "test/1"}')
    with pytest.raises(FileFormatError, match="settings"):
        fill(run, {"rows": 3})


DAMAGED = ["{", "[]", "{}", '{"schema": "other/1"}', "null", '{"schema": "test/1", "rows": NaN}', "[" * 100_000]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_manifest_raises_one_line_error_and_can_be_deleted(run, content):
    fill(run, {"rows": 3}, "part-0")
    run.manifest.write_text(content)
    with pytest.raises(FileFormatError, match=r"run\.json cannot be read .*choose another folder") as caught:
        fill(run, {"rows": 3})
    assert "\n" not in str(caught.value)
    assert fill(run, {"rows": 3}, restart=True) is None


def test_settings_that_cannot_be_compared_are_damage(run):
    fill(run, {"rows": 3}, "part-0")

    def compare(old, new):
        return old["about"]["source"]

    with run.open(), pytest.raises(FileFormatError, match=r"run\.json cannot be read \(KeyError 'about'\)"):
        run.check({"rows": 3}, compare=compare)


def test_long_settings_are_shortened(run):
    fill(run, {"rows": "a" * 5000}, "part-0")
    with pytest.raises(OutputError, match=r"rows was aaa.*…, is 4") as caught:
        fill(run, {"rows": 4})
    assert len(str(caught.value)) < 400


def test_folders_with_other_files_raise(run):
    run.path.mkdir()
    (run.path / ".hidden").touch()
    assert fill(run, {"rows": 3}) is None
    run.manifest.unlink()
    (run.path / "mine.txt").touch()
    for restart in (False, True):
        with pytest.raises(OutputError, match=r"other files, such as mine\.txt"):
            fill(run, {"rows": 3}, restart=restart)
    assert (run.path / "mine.txt").exists()


def test_empty_folder_is_removed_and_second_process_raises(run):
    with pytest.raises(KeyError), run.open():
        raise KeyError
    assert not run.path.exists()
    with run.open():
        run.begin({})
        other = RunFolder(run.path, "run.json", "test/1", parts=())
        with pytest.raises(InputError, match="another process"), other.open():
            pass


def test_paths_that_cannot_be_folders_raise(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, message in (("file", "is a file"), ("no/run", "is not a folder"), ("link", "broken link")):
        run = RunFolder(tmp_path / name, "run.json", "test/1", parts=())
        with pytest.raises(OutputError, match=message), run.open():
            pass
    with RunFolder(tmp_path / "a" / "b", "run.json", "test/1", parts=()).open(parents=True) as path:
        assert path.is_dir()


def test_finish_removes_temporary_files_of_killed_processes_only(run):
    with run.open():
        run.begin({"rows": 3})
        for name in (".part-7.npy.0123.part", ".run.json.0123.part", ".other.0123.part"):
            (run.path / name).touch()
        run.finish()
    assert sorted(os.listdir(run.path)) == [".other.0123.part", "run.json"]
    assert run.read()["finished"] is True


def test_differences_compare_only_common_keys():
    assert differences({"a": 1, "b": 2}, {"a": 1, "c": 3}) == []
    assert differences({"a": [1, 2]}, {"a": None}) == ["a was 1,2, is not set"]
    assert differences({"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": "the files differ", "b": "the files differ"}) == [
        "the files differ"
    ]
