"""What ``steptime net`` prints: back ends, what is planned, and what was found."""

from pathlib import Path

from steptime.analysis.message_times import SCHEMA, NetSummary
from steptime.cli.list import back_end_rows
from steptime.cli.section_output import show_sections
from steptime.cli.streams import print_json
from steptime.document.section import Part, Section, Sentences, text_table
from steptime.model.measured_links import stored_links
from steptime.report.links import link_section
from steptime.results.store import Store
from steptime.runner.net_plan import (
    NetPlan,
)
from steptime.units import format_bytes


def print_back_ends(form: str, html: Path | None) -> None:
    """Print every back end whose messages can be timed."""
    back_ends = back_end_rows()
    if form == "json":
        print_json(back_ends)
    keys = {"name": "back end", "operations": "operations", "framework": "framework", "summary": "what"}
    rows = [
        [", ".join(each[key]) if isinstance(each[key], list) else str(each[key]) for key in keys] for each in back_ends
    ]
    table = text_table(list(keys.values()), rows, "Back ends", "prose", ("wide", "stacked"))
    show_sections([Section("Back ends", [table])], form, html, "Back ends")


def print_plan(plan: NetPlan, launches: int, output: Path, form: str, html: Path | None) -> None:
    """Print what would be measured, and where results go."""
    if form == "json":
        settings = [{"id": each.id, **each.model_dump(mode="json")} for each in plan.settings]
        print_json({"folder": str(output), "launches": launches, "settings": settings, "skipped": plan.skipped})
    rows = [
        [
            each.back_end,
            ", ".join(each.operations),
            f"{each.workers} + {each.servers} servers" if each.servers else str(each.workers),
            each.cluster.in_words() if each.cluster else "this host",
            ", ".join(map(format_bytes, each.sizes)),
            str(launches),
        ]
        for each in plan.settings
    ]
    titles = ["back end", "operations", "workers", "hosts", "sizes", "launches"]
    table = text_table(titles, rows, "Planned messages", "prose", ("wide",))
    parts: list[Part] = [table] if rows else []
    parts.append(Sentences([*(f"skipped: {line}" for line in plan.skipped), f"results go to {output}"]))
    show_sections([Section("Planned messages", parts)], form, html, "Planned messages")


def print_found(folder: Path, form: str, html: Path | None) -> None:
    """Print the links of a results folder."""
    store = Store.open(folder)
    found = stored_links(store) or NetSummary(rows=[])
    if form == "json":
        print_json({"schema": SCHEMA, "folder": str(folder), "net": found.to_json(), "problems": store.problems})
    show_sections([link_section(found)], form, html, "Messages")
