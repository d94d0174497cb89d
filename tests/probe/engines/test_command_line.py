"""Options as engines read them."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaywatch.probe.engines.command_line import as_object, file_options, options, switch, value_of

words = st.lists(
    st.one_of(st.text(max_size=12), st.sampled_from(["--a", "-O0", "--a=1", "-", "--", "--=x", "", "{}", "-1"]))
)


@given(words)
def test_any_words_are_options_or_nothing(line):
    found = options(line)
    assert "" not in found
    assert switch(found, "a") in (True, False, None)
    assert all(isinstance(as_object(value), dict) for value in found.values())


def test_names_have_dashes_and_keep_what_follows_a_dot():
    line = ["serve", "--max_num_seqs", "-1", "--cc.cudagraph_mode=FULL", "--json", '{"a_b": 1}', "-O0", "--eager"]
    assert options(line) == {
        "max-num-seqs": "-1", "cc.cudagraph_mode": "FULL", "json": '{"a_b": 1}', "O0": "", "eager": "",
    }  # fmt: skip


def test_last_mention_of_a_flag_decides():
    assert switch(options(["--eager", "--no-eager"]), "eager") is False
    assert switch(options(["--no-eager", "--eager", "model"]), "eager") is True
    assert switch(options(["--eager=false"]), "eager") is False
    assert switch(options(["--no-eager=0"]), "eager") is True
    assert switch({}, "eager") is None


def test_beginning_of_a_name_means_the_option():
    assert switch(options(["--ea"]), "eager") is None
    assert switch(options(["--eag"]), "eager") is True
    assert switch(options(["--no-e"]), "eager") is False
    assert switch(options(["--eager-padding"]), "eager") is None
    assert value_of(options(["--backend=a", "--back", "b"]), "backend") == "b"
    assert value_of(options(["--backends=a"]), "backend") == ""


def test_values_that_json_lacks_take_nothing_from_the_rest_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", pytest.importorskip("yaml"))
    path = tmp_path / "serve.yaml"
    path.write_text(
        "enforce_eager: true\nhf-overrides: {released: 2024-01-01, 2024-01-02: x, n: 1}\nself: &self [*self]\n"
    )
    found = file_options(str(path))
    assert found["enforce-eager"] == "true"
    assert json.loads(found["hf-overrides"]) == {"released": "2024-01-01", "n": 1}
    assert "self" in found
