"""The flags that findings print, in the engines' real sources."""

import re

import pytest

from probe.engines.sources import versions
from replaywatch.detectors.engine_flags import ceiling_flag, enable, sizes_flag

CURRENT = (1, 2, 4, 8)


def printed(engine, version):
    """Options in all that is printed for a release."""
    texts = (
        enable(engine, version),
        sizes_flag(engine, (1, 8, 48), version),
        sizes_flag(engine, (48,), version),
        ceiling_flag(engine, 48, version, CURRENT),
        ceiling_flag(engine, 48, version, (3, 5)),
    )
    return {option for text in texts for option in re.findall(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*", text)}


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_knows_what_is_printed_for_its_release(root):
    known = (root / "vllm/engine/arg_utils.py").read_text().replace("'", '"')
    options = printed("vllm", root.name.removeprefix("vllm-"))
    assert "--enforce-eager" in options
    assert [option for option in options if f'"{option}"' not in known] == []


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglang_knows_what_is_printed_for_its_release(root):
    places = [root / "sglang/srt/server_args.py", *(root / "sglang/srt/arg_groups/fields").glob("*.py")]
    known = "\n".join(path.read_text() for path in places)
    options = printed("sglang", root.name.removeprefix("sglang-"))
    assert "--disable-cuda-graph" in options
    unknown = [o for o in options if f'"{o}"' not in known and f"{o[2:].replace('-', '_')}: " not in known]
    assert unknown == []
