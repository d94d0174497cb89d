"""Slack's and Microsoft's own packages look at our messages: @slack/types by TypeScript, adaptivecards by its parser.

`npm install --prefix build/grafana-schema --no-save @slack/types@3.2.0 adaptivecards@3.0.6` lays them out beside
Grafana's, as .ci/run does.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.schema_check import COMPILER, MODULES
from notify.made import AT, notice
from replaywatch.notify import slack, teams
from replaywatch.notify.notice import Notice

needs_slack = pytest.mark.skipif(
    not COMPILER.is_file() or not (MODULES / "@slack" / "types").is_dir(), reason="@slack/types is not there"
)
CARDS = MODULES / "adaptivecards" / "dist" / "adaptivecards.js"
needs_cards = pytest.mark.skipif(not CARDS.is_file(), reason="the npm package adaptivecards is not there")
TYPES = """
import type * as k from '@slack/types';
type Message = { text: string; blocks: (k.HeaderBlock | k.SectionBlock | k.ContextBlock)[] };
"""
READER = """
globalThis.window = globalThis;
const cards = require(process.argv[1]);
const card = new cards.AdaptiveCard(), context = new cards.SerializationContext(), found = [];
card.parse(JSON.parse(require('fs').readFileSync(0, 'utf8')), context);
for (let i = 0; i < context.eventCount; i++) found.push(context.getEventAt(i).message);
for (const event of card.validateProperties().validationEvents) found.push(event.message);
console.log(JSON.stringify(found));
"""


def notices() -> list[Notice]:
    closed = notice(event="closed", incident={"closed_at": AT})
    bare = notice(cost=None, causes=[], remedy=None, evidence=[], links={}, dashboard_url=None)
    return [notice(), notice(event="grown", severity="warn", incident={"members": 400}), closed, bare]


def type_errors(folder: Path, messages: list[dict[str, Any]]) -> str:
    literals = [f"const m{n}: Message = {json.dumps(m, indent=1)};" for n, m in enumerate(messages)]
    (folder / "check.ts").write_text(TYPES + "\n".join(literals) + "\n")
    (folder / "node_modules").symlink_to(MODULES)
    command = ["node", str(COMPILER), "--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "bundler"]
    command += ["--module", "esnext", "--types", "", str(folder / "check.ts")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def card_faults(card: dict[str, Any]) -> list[str]:
    done = subprocess.run(
        ["node", "-e", READER, str(CARDS)], input=json.dumps(card), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@needs_slack
def test_slack_messages_are_of_slacks_published_types(tmp_path: Path) -> None:
    assert type_errors(tmp_path, [slack.message(one) for one in notices()]) == ""


@needs_slack
def test_the_check_of_slacks_types_finds_what_is_wrong(tmp_path: Path) -> None:
    wrong = slack.message(notice())
    wrong["blocks"][1]["txt"] = wrong["blocks"][1].pop("text")
    assert "error TS" in type_errors(tmp_path, [wrong])


@needs_cards
@pytest.mark.parametrize("number", range(4))
def test_microsofts_own_reader_has_nothing_to_say_of_a_card(number: int) -> None:
    assert card_faults(teams.card(notices()[number])) == []


@needs_cards
def test_microsofts_own_reader_finds_what_is_wrong() -> None:
    wrong = teams.card(notice())
    wrong["body"][0]["color"] = "pinkish"
    del wrong["actions"][0]["url"]
    assert len(card_faults(wrong)) == 2
