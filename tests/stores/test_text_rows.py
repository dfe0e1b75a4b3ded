"""CSV and TSV: columns of numbers or lists, with quotes; errors name the line."""

import numpy as np
import pytest

from isoscope import DataWarning, InputError
from isoscope.errors import FileFormatError, MissingValueError
from isoscope.stores.open import open_store


def table(tmp_path, text, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path, **asked):
    return np.concatenate(list(open_store(path, **asked).chunks())).tolist()


def complete(path):
    """Return the vectors that `missing="drop"` keeps; the others are NaN."""
    return [row for row in np.asarray(read(path, missing="drop")).tolist() if not np.isnan(row).any()]


ROWS = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a,b\n1,2\n3,4\n", "a.csv"),
        ("1,2\n3,4\n", "a.csv"),
        ("\ufeffa,b\r\n1,2\r\n3,4\r\n", "a.csv"),
        ("\ufeff1,2\n3,4\n", "a.csv"),
        ("a;b\n1;2\n3;4\n", "a.csv"),
        ("a\tb\n1\t2\n3\t4\n", "a.tsv"),
        ('a,b\n"1","2"\n3,4', "a.csv"),
        (" a , b \n 1 , 2 \n 3 , 4 \n", "a.csv"),
        ("e0, e1, label\n1, 2, x\n3, 4, y\n", "a.csv"),
        ("# e0,e1\n1,2\n3,4\n", "a.csv"),
        ("#e0,e1\n1,2\n3,4\n", "a.csv"),
        ("e0,e1\r1,2\r3,4\r", "a.csv"),
        ("e0\te1\r1\t2\r3\t4", "a.tsv"),
        ("id,a,b,label\n10,1,2,0\n11,3,4,1\n", "a.csv"),
        ('vector,text\n"[1, 2]",x\n"[3.0, 4]",y\n', "a.csv"),
        ("text\tvector\nx\t[1, 2]\ny\t[3,4]\n", "a.tsv"),
        ('vector\n"[1. 2.]"\n"[ 3.\n 4.]"\n', "a.csv"),
        ('"[1, 2]"\n"[3, 4]"\n', "a.csv"),
        ("word,1,2\nother,3,4\n", "a.csv"),
        (",0,1\n0,1.0,2.0\n1,3.0,4.0\n", "a.csv"),
        ("0,1,label\n1,2,5\n3,4,6\n", "a.csv"),
        ("1,2\n3,4\n".replace("1", "1.0"), "a.csv"),
    ],
)
def test_accepted_table_formats(text, name, tmp_path):
    assert read(table(tmp_path, text, name)) == ROWS


def test_quoted_text_with_commas_quotes_and_newlines(tmp_path):
    path = table(tmp_path, 'text,a,b,label\n"one, ""two""\nthree",1,2,"x"\n"",3,4,y\n')
    store = open_store(path)
    assert store.text.tolist() == ['one, "two"\nthree', ""]
    assert store.labels.tolist() == ["x", "y"]
    assert read(path) == ROWS


def test_a_quote_inside_text_swallows_no_rows(tmp_path):
    rows = "".join(f'"item, {i}",{5 + i % 2}" disk,{i},0.5\n' for i in range(300))
    store = open_store(table(tmp_path, "title,size,e0,e1\n" + rows))
    assert len(store) == 300
    assert store.take([299]).tolist() == [[299, 0.5]]
    assert store.column("text", [1]).tolist() == ["item, 1"]


def test_a_row_that_a_quote_merged_into_another_is_an_error(tmp_path):
    text = 'text,e0,e1\nfirst,1,2\n"Wow,0.5,0.6\nnext,3,4\ndisk 5",0.3,0.4\n'
    with pytest.raises(FileFormatError, match=r"a\.csv, line 3: a cell opens with a double quote"):
        read(table(tmp_path, text))


def test_a_quoted_cell_may_contain_lines_of_numbers_if_they_are_fewer_than_the_dimensions(tmp_path):
    path = table(tmp_path, 'text,e0,e1,e2\n"1, 2\n3, 4",5,6,7\n')
    assert read(path) == [[5, 6, 7]]
    assert open_store(path).text.tolist() == ["1, 2\n3, 4"]


@pytest.mark.parametrize("header", ["", "e0;e1;e2;text\n"])
def test_decimal_commas_between_semicolons(header, tmp_path):
    text = header + '0,5;-0,25;1;x\n7;1,5e-3;0.5;"0,5"\n' + "0,5;2;3;y\n" * 200
    store = open_store(table(tmp_path, text), text="text" if header else "3")
    assert store.take([0, 1]).tolist() == [[0.5, -0.25, 1], [7, 0.0015, 0.5]]
    assert store.column("text", [1]).tolist() == ["0,5"]
    assert len(np.concatenate(list(store.chunks()))) == 202


def test_labels_with_decimal_commas_are_numbers(tmp_path):
    assert open_store(table(tmp_path, "e0;e1;label\n0,5;1;2,5\n1;2;3\n")).labels.tolist() == [2.5, 3]


def test_numbers_with_commas_between_commas_raise(tmp_path):
    with pytest.raises(InputError, match="line 3 has 4 cells: need 2"):
        read(table(tmp_path, "e0,e1\n1,2\n0,5,0,3\n"))


def test_only_numbered_columns_are_dimensions_beside_others(tmp_path):
    names = [f"e{i}" for i in range(32)]
    path = table(tmp_path, ",".join(["price", "year", *names, "userid"]) + "\n" + ",".join(["7"] * 35) + "\n")
    assert open_store(path).dim == 32
    assert open_store(path, labels="year").labels.tolist() == [7]


@pytest.mark.parametrize("absent", ["", "NA", "null", "None", "n/a", "<NA>"])
def test_a_numbered_column_without_values_at_first_is_a_dimension(absent, tmp_path):
    path = table(tmp_path, "e0,e1,e2\n" + f"1,{absent},3\n" * 150 + "4,5,6\n")
    assert open_store(path).dim == 3
    with pytest.raises(MissingValueError, match=f"line 2: column e1 is {absent or 'empty'}: fill it in, or drop"):
        read(path)
    assert complete(path) == [[4, 5, 6]]


@pytest.mark.parametrize(
    ("text", "line", "cell"),
    [
        ("e0,e1,e2\n1,x,3\n", 2, "x"),
        ("e0;e1;e2\n2,0;1,5;3,0\n2,0;1.234,5;3,0\n1;2.345,5;3\n", 3, "1.234,5"),
        ("n,e0,e1,e2\nx,1.5,2,3\ny,1.5,2,12%\n", 3, "12%"),
    ],
)
def test_a_numbered_column_that_is_not_numeric_is_an_error(text, line, cell, tmp_path):
    path = table(tmp_path, text)
    with pytest.raises(FileFormatError, match=rf"a\.csv, line {line}: column \w+ belongs .*'{cell}' is not a number"):
        open_store(path)


def test_a_numbered_column_with_a_role_is_not_a_dimension(tmp_path):
    store = open_store(table(tmp_path, "e0,e1,e2\n1,x,2\n3,y,4\n"), text="e1")
    assert store.text.tolist() == ["x", "y"]
    assert next(store.chunks()).tolist() == ROWS


def test_words_in_an_unnamed_column_are_not_a_dimension(tmp_path):
    assert read(table(tmp_path, ",0,1,2\n0,the,1.0,2\n1,of,3,4\n")) == ROWS
    with pytest.raises(FileFormatError, match="column 0 belongs to the dimensions 1, 2 by its name, but '5%'"):
        read(table(tmp_path, ",0,1,2\n0,5%,1.0,2\n1,6,3,4\n"))


def test_a_first_line_that_counts_from_zero_is_announced(tmp_path):
    with pytest.warns(DataWarning, match=r"the first line counts from 0 to 1 and is read as column names") as found:
        assert read(table(tmp_path, "0,1\n1.0,2.0\n3.0,4.0\n")) == ROWS
    assert len(found) == 1
    with pytest.warns(DataWarning, match=r"the first line counts from 0 to 1 and is read as a vector"):
        assert read(table(tmp_path, "0,1\n1,2\n3,4\n")) == [[0, 1], *ROWS]


@pytest.mark.parametrize("start", [0, 1])
def test_a_first_column_of_row_numbers_is_announced(start, tmp_path):
    path = table(tmp_path, "".join(f"{i},0.5,{i}.25\n" for i in range(start, start + 150)))
    with pytest.warns(DataWarning, match=r'first column counts .*read as a dimension: .*ids="0"'):
        assert open_store(path).dim == 3
    store = open_store(path, ids="0")
    assert (store.dim, store.ids.tolist()[:2]) == (2, [start, start + 1])


def test_a_first_line_of_missing_values_is_a_row(tmp_path):
    for first in ("nan,nan", ",", "NA,null"):
        assert complete(table(tmp_path, f"{first}\n1,2\n3,4\n")) == ROWS


def test_dimensions_without_a_pattern_are_announced(tmp_path):
    path = table(tmp_path, "user_id,height,weight\n1,2,3\n")
    with pytest.warns(DataWarning, match=r"a\.csv has no column of vectors.*.height, weight.: remove columns") as found:
        assert open_store(path).dim == 2
    assert len(found) == 1


def test_names_that_python_can_parse_as_numbers_are_names(tmp_path):
    with pytest.warns(DataWarning, match="inf, nan"):
        assert read(table(tmp_path, "inf,nan\n1,2\n3,4\n")) == ROWS


def test_quotes_in_tsv_are_literal(tmp_path):
    store = open_store(table(tmp_path, 'text\ta\tb\n5" disk\t1\t2\n"a" b\t3\t4\n', "a.tsv"))
    assert store.text.tolist() == ['5" disk', '"a" b']
    assert next(store.chunks()).tolist() == ROWS


@pytest.mark.parametrize(
    ("labels", "expected"), [("1 2 3", [1, 2, 3]), ("1 2.5 3", [1.0, 2.5, 3.0]), ("1 2 x", ["1", "2", "x"])]
)
def test_labels_are_numeric_if_all_values_are(labels, expected, tmp_path):
    path = table(tmp_path, "a,b,label\n" + "".join(f"{i},0,{label}\n" for i, label in enumerate(labels.split())))
    store = open_store(path)
    assert store.labels.tolist() == expected
    assert [v for batch in store.batches(["labels"], rows=1) for v in batch.columns["labels"]] == expected
    assert store.column("labels", [2]).tolist() == expected[2:]
    assert store.labels.dtype == store.column("labels", [0]).dtype


def test_digit_strings_keep_leading_zeros(tmp_path):
    assert open_store(table(tmp_path, "a,b,text\n1,2,007\n3,4,8\n")).text.tolist() == ["007", "8"]


def test_requested_columns_are_not_dimensions(tmp_path):
    path = table(tmp_path, "a,b,grade\n1,2,9\n3,4,8\n")
    with pytest.warns(DataWarning, match="a, b, grade"):
        assert open_store(path).dim == 3
    store = open_store(path, labels="grade")
    assert (store.dim, store.labels.tolist()) == (2, [9, 8])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n1,2\n3,x\n", "line 4: 'x' in column b is not a number"),
        ("a,b\n" + "1,2\n" * 150 + "3,x\n", "line 152: 'x' in column b is not a number"),
        ("a,b\n1,2\n,4\n", "line 3: column a is empty: fill it in, or drop"),
        ("0.5,\n1,2\n3,4\n", "line 1: column 1 is empty: fill it in, or drop"),
        ("NA,0.5\n1,2\n3,4\n", "line 1: column 0 is NA: fill it in, or drop"),
        ("NA,5\n1,2\n3,4\n", "line 1: column 0 is NA: fill it in, or drop"),
        (",\n1,2\n3,4\n", "line 1: column 0 is empty: fill it in, or drop"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cell: need 2, as in the first line"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells: need 2, as in the first line"),
        ("a,b\n" + "1,2\n" * 150 + "3,4,5\n", "line 152 has 3 cells: need 2"),
        ("a,b\n", "has only a header line"),
        ("\n\n", "is empty"),
        ("a,a\n1,2\n", "two columns named 'a'"),
        ("a,b,score\nx,y,1.5\n", "contains no vectors; its columns are a, b, score"),
        ("text,label\nx,y\n", "contains no vectors; its columns are text, label"),
        ('v\n"[1, 2]"\n"[3]"\n', "line 3: column v has 1 number: need 2, as in the first row"),
        ('v\n"[1, 2]"\n"[3, x]"\n', "line 3: column v is not a list of numbers"),
        ('v\n"[1, 2]"\n"[3, ..., 4]"\n', "line 3: column v has 3 numbers: need 2"),
        ('v\n"[1, 2, 3, 4]"\n"[1 2,3 4]"\n', "line 3: column v is not a list of numbers: .*'1 2'"),
        ("v,w\n[],1\n[],2\n", "column v has no numbers in its first row"),
        ("a,b\n1,2\n".encode("utf-16"), "is encoded in UTF-16: save it as UTF-8"),
    ],
)
def test_malformed_tables_raise(text, message, tmp_path):
    with pytest.raises(InputError, match=rf"a\.csv.*{message}"):
        read(table(tmp_path, text))


def test_a_missing_label_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"a\.csv: label is empty in 1 of 2 rows, first in row 1"):
        _ = open_store(table(tmp_path, "a,b,label\n1,2,x\n3,4,\n")).labels


def test_cell_longer_than_csv_field_limit_is_read(tmp_path):
    cell = ", ".join(["0.1234567890123456"] * 10_000)
    assert open_store(table(tmp_path, f'v,text\n"[{cell}]",x\n')).take([0]).shape == (1, 10_000)


def test_an_id_with_leading_zeros_stays_text(tmp_path):
    path = tmp_path / "a.csv"
    for ids, expected in ((["007", "12"], ["007", "12"]), (["7", "12"], [7, 12]), (["-1", "0"], [-1, 0])):
        path.write_text("id,a,b\n" + "".join(f"{i},1.5,2\n" for i in ids))
        assert open_store(path).ids.tolist() == expected
    path.write_text("id,a,b\n1.0,1.5,2\n")
    assert open_store(path).ids.tolist() == ["1.0"]


def test_integers_with_too_many_digits_raise_one_error(tmp_path):
    digits = "1" * 5000
    with pytest.raises(InputError, match="column label contains an integer of 5,000 digits"):
        _ = open_store(table(tmp_path, f"a,b,label\n1,2,{digits}\n3,4,5\n")).labels
    assert open_store(table(tmp_path, f"a,b,id\n1,2,{digits}\n3,4,5\n")).ids.tolist() == [digits, "5"]
    with pytest.raises(InputError, match="line 1 contains an integer with too many digits"):
        read(table(tmp_path, f"[{digits}, 2]\n", "a.jsonl"))
    nested = f'{{"a": {{"v": [9, 9]}}, "v": [{digits[:400]}, 2]}}'  # which only Python parses
    with pytest.raises(InputError, match=r"line 2: 1{30}… in the vector is too large for float64"):
        read(table(tmp_path, f'{{"v": [1, 2]}}\n{nested}\n', "a.jsonl"))
