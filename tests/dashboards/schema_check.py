"""Dashboards against the types that Grafana publishes: the npm package @grafana/schema, checked by TypeScript.

`npm install --prefix build/grafana-schema --no-save @grafana/schema@13.2.3 typescript@7.0.2` lays both out,
as .ci/run does.
Fresh object literals are checked for unknown keys at every depth, so a misspelt option is an error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "build" / "grafana-schema" / "node_modules"
COMPILER = MODULES / "typescript" / "bin" / "tsc"
needs_schema = pytest.mark.skipif(
    shutil.which("node") is None or not COMPILER.is_file() or not (MODULES / "@grafana" / "schema").is_dir(),
    reason="@grafana/schema is not there; see tests/dashboards/schema_check.py",
)
# Panels whose options the package types; the module that does.
PANELS = ("stat", "timeseries", "table", "bargauge", "heatmap", "statetimeline")
HEAD = """
import type * as s from '@grafana/schema';
%s
// An enum's member is its text in JSON.
type Text<T> = T extends string ? `${T}` : T extends (infer U)[] ? Text<U>[] : T extends object ?
  { [K in keyof T]: Text<T[K]> } : T;
// What the Prometheus data source adds to an annotation and to a target; the package has no types of it.
type Mark = Omit<s.AnnotationQuery, 'target'> & {
  titleFormat: string; textFormat: string; target: { expr: string; refId: string; interval: string } };
type Target = { refId: string; datasource: s.DataSourceRef; expr: string; legendFormat: string; instant: boolean;
  range: boolean; exemplar?: boolean; format: 'time_series' | 'table' | 'heatmap'; editorMode: 'code' };
type Of<Type extends string, Options, Custom> = Omit<s.Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Type; targets: Target[]; options: Partial<Text<Options>>;
  fieldConfig: Text<s.FieldConfigSource<Partial<Custom>>> };
type AnyPanel = s.RowPanel
  | Of<'stat', Stat.Options, {}> | Of<'bargauge', Bars.Options, {}> | Of<'heatmap', Heat.Options, {}>
  | Of<'timeseries', Lines.Options, Lines.FieldConfig> | Of<'state-timeline', States.Options, {}>
  | Of<'table', Table.Options, s.TableFieldOptions>;
type Board = Omit<Text<s.Dashboard>, 'annotations' | 'panels'> & {
  annotations: { list: Mark[] }; panels: AnyPanel[] };
"""
ALIASES = {
    "stat": "Stat",
    "timeseries": "Lines",
    "table": "Table",
    "bargauge": "Bars",
    "heatmap": "Heat",
    "statetimeline": "States",
}


def type_errors(folder: Path, boards: list[dict[str, Any]]) -> str:
    """What TypeScript says of dashboards written as literals of the published types; empty when nothing."""
    imports = "\n".join(
        f"import type * as {ALIASES[p]} from '../dist/types/raw/composable/{p}/panelcfg/x/types.gen';" for p in PANELS
    ).replace("../dist", str(MODULES / "@grafana" / "schema" / "dist"))
    literals = [f"const board{n}: Board = {json.dumps(board, indent=1)};" for n, board in enumerate(boards)]
    (folder / "check.ts").write_text(HEAD % imports + "\n".join(literals) + "\n")
    link = folder / "node_modules"
    if not link.exists():
        link.symlink_to(MODULES)
    command = ["node", str(COMPILER), "--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "bundler"]
    command += ["--module", "esnext", "--target", "es2022", "--types", "", str(folder / "check.ts")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    return "" if done.returncode == 0 else done.stdout + done.stderr
