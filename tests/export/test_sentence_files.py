"""Files of sentences mean here what they mean in training."""

from pathlib import Path

import pytest

from dragoman.export import ExportError
from dragoman.export.sentence_files import read_sentences
from dragoman.model.corpus import read_pairs


def test_sentences_of_a_table_are_chosen_by_language(tmp_path: Path) -> None:
    """One file of our own sentences serves both directions."""
    table, plain = tmp_path / "s.tsv", tmp_path / "s.txt"
    table.write_text("pt\ten\nOlá\tHello\n", "utf-8")
    plain.write_text("Olá\nAté logo\n", "utf-8")
    assert read_sentences(table, "pt") == ["Olá"]
    assert read_sentences(table, "en") == ["Hello"]
    assert read_sentences(plain, "pt") == ["Olá", "Até logo"]
    with pytest.raises(ExportError, match="no column named de"):
        read_sentences(table, "de")


@pytest.mark.parametrize("header", ["pt\ten", "en\tpt", " pt\ten "])
def test_a_table_means_here_what_it_meant_in_training(tmp_path: Path, header: str) -> None:
    """One file goes through all commands; read another way round, a bundle would be proven on the wrong language."""
    table = tmp_path / "s.tsv"
    table.write_text(f"{header}\n" + ("Hello\tOlá\n" if header.startswith("en") else "Olá\tHello\n"), "utf-8")
    here = zip(read_sentences(table, "pt"), read_sentences(table, "en"), strict=True)
    assert list(here) == read_pairs([table], ("pt", "en")) == [("Olá", "Hello")]


def test_lines_end_where_training_saw_them_end(tmp_path: Path) -> None:
    """A separator within one sentence must not shift every reference below it; Windows' line ends are no text."""
    (tmp_path / "a.pt").write_bytes("Um\u2028dois\x85\x0c\r\nTrês\r\n".encode())
    assert read_sentences(tmp_path / "a.pt", "pt") == ["Um\u2028dois\x85\x0c", "Três"]


@pytest.mark.parametrize("name", ["s.tsv", "s.pt"])
def test_the_mark_before_utf8_is_no_text(tmp_path: Path, name: str) -> None:
    """Windows' programs write it: the first column would have another name, the first sentence another first letter."""
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + ("pt\ten\nSol\tSun\n" if name == "s.tsv" else "Sol\n").encode())
    assert read_sentences(tmp_path / name, "pt") == ["Sol"]


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    """As in training, and counted from where the file begins, mark or not."""
    (tmp_path / "s.pt").write_bytes(b"\xef\xbb\xbfSol\nn\xe3o\n")
    with pytest.raises(ExportError, match=r"s\.pt, line 2: byte 0xe3 is not UTF-8"):
        read_sentences(tmp_path / "s.pt", "pt")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("Olá\tHello\nAdeus\tGoodbye\n", "first line of a .tsv must name the language .* write that line above"),
        ("pt\ten\nOlá\tHello\nAdeus\n", "line 3: 1 columns, but the first line has 2"),
        ("", "no column named en"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path, table: str, sentence: str) -> None:
    """A corpus to train on may have no first line of names: whoever brings it here learns what is missing."""
    path = tmp_path / "corpus.tsv"
    path.write_text(table, "utf-8")
    with pytest.raises(ExportError, match=sentence):
        read_sentences(path, "en")
