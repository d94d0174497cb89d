"""`replaywatch dashboards push|diff|export`"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.epilog = (
        "A Grafana token comes from GRAFANA_TOKEN, a password from GRAFANA_PASSWORD; neither is an argument."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, text in (("push", "bring a Grafana's dashboards up to date"), ("diff", "say what a push would change")):
        sub = verbs.add_parser(verb, help=text)
        sub.add_argument("url", help="address of Grafana")
        sub.add_argument("--user", help="user, where a password is used instead of a token")
        sub.add_argument("--organization-id", type=int, help="organisation, where the user has several")
        sub.add_argument("--ca-file", help="what Grafana's certificate must be signed by")
        if verb == "push":
            sub.add_argument("--prometheus-url", help="also make a data source of this Prometheus")
            sub.add_argument("--page-url", help="with it: where browsers reach the collector, for links from exemplars")
    export = verbs.add_parser("export", help="write dashboards, provisioning files and rules into a folder")
    export.add_argument("folder", type=Path)
    export.add_argument(
        "--page-url", default="http://127.0.0.1:8790", help="where browsers reach the collector, for links"
    )
    export.add_argument("--runbooks", default="docs", help="address of the documentation, for runbook links")


def main(arguments: argparse.Namespace) -> int:
    """Exit status 1 when diff finds differences."""
    if arguments.verb == "export":
        return _export(arguments)
    from replaywatch.dashboards.grafana import Site, Source, diff, push

    site = Site(
        url=arguments.url,
        token=os.environ.get("GRAFANA_TOKEN"),
        user=arguments.user,
        password=os.environ.get("GRAFANA_PASSWORD"),
        organization_id=arguments.organization_id,
        ca_file=arguments.ca_file,
    )
    if arguments.verb == "push":
        source = Source(arguments.prometheus_url, arguments.page_url) if arguments.prometheus_url else None
        for change in push(site, source):
            print(f"{change.what:10} {change.kind} {change.uid}")
        return 0
    differing = [d for d in diff(site) if d.text]
    for difference in differing:
        print(f"{difference.uid} is missing" if difference.is_missing else difference.text, end="\n")
    return 1 if differing else 0


def _export(arguments: argparse.Namespace) -> int:
    from replaywatch.dashboards.export import export
    from replaywatch.dashboards.rule import RuleSettings

    for path in export(arguments.folder, RuleSettings(runbooks=arguments.runbooks), arguments.page_url):
        print(path)
    return 0
