"""Footers of Parquet files: what is read is written again as it was, and places move."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope.stores.footers import join_footers, read_footer


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_a_footer_that_is_not_moved_stays_as_it_is(version, compression, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "a": [1, None, 3],
            "b": ["x", "y", None],
            "c": [[1.5], [], [2.5, 3.5]],
            "d": [True, False, None],
            "e": [{"k": 1}, {"k": 2}, {"k": 3}],
        }
    )
    for more in ({}, {"sorting_columns": [pq.SortingColumn(0)]}, {"write_page_index": True}):
        pq.write_table(table, path, version=version, compression=compression, row_group_size=2, **more)
        footer, start = read_footer(path)
        assert start + len(footer) + 8 == path.stat().st_size
        assert join_footers([(footer, 0)]) == (3, footer)
        assert join_footers([(join_footers([(footer, 10**12)])[1], -(10**12))]) == (3, footer)


def test_files_one_behind_the_other_with_one_footer_are_a_file(tmp_path):
    joined, parts = b"", []
    tables = [pa.table({"n": list(range(i, i + 3)), "s": [f"{i}"] * 3}) for i in (0, 10, 20)]
    for table in tables:
        pq.write_table(table, tmp_path / "part", row_group_size=2)
        footer, start = read_footer(tmp_path / "part")
        parts.append((footer, len(joined)))
        joined += (tmp_path / "part").read_bytes()[:start]
    rows, footer = join_footers(parts)
    (tmp_path / "whole.parquet").write_bytes(joined + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    file = pq.ParquetFile(tmp_path / "whole.parquet")
    assert (rows, file.metadata.num_rows, file.metadata.num_row_groups) == (9, 9, 6)
    assert file.read().equals(pa.concat_tables(tables))
    assert file.read_row_group(3)["n"].to_pylist() == [12]
