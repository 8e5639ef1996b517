"""The section of ``docs/faults.md`` about deleted objects, from the kept results. Pure."""

from collections.abc import Mapping

from e2e.harness.deletions import REFUSED, Deletion, Rest, Thing

Known = Mapping[tuple[Thing, Rest], Deletion]

HEAD = """
## Deleted objects

`make deletions-live` deletes each object with `kubectl delete` while the migration rests and clients work. In `TakingOver` and `RollingBrokers` it is paused after the first broker. The controllers' listener has certificates that the operator
issues. After each deletion the high watermark of the metadata log must not be lower than before it, and voters may restart only where the deletion stops them. [Deleted objects of the controllers](operations.md#deleted-objects-of-the-controllers)
describes what the operator does.

| Cell | Meaning |
|---|---|
| a number | Seconds from the deletion until the object existed again |
| *whole* | Seconds until every voter ran again and followed one leader |
| *named* | The operator does not create it anew. Seconds until the status named it; then the seconds from the documented way out until everything was as before |
| **✗** | It did not end as promised |
"""
WAY_OUT = {
    Thing.ORIGINALS: "one of the two is restored from a backup ([if the original state is lost](rollback.md#if-the-original-state-is-lost))",
    Thing.AUTHORITY: "it is restored from a backup",
    Thing.CLAIM: "[Replace a controller](kraft.md#replace-a-controller)",
}
LONGEST_WORDS = 330


def section(known: Known) -> str:
    """Return the section."""
    parts = [
        HEAD,
        "| deleted | " + " | ".join(Rest) + " |",
        "|---" * (len(Rest) + 1) + "|",
        *(f"| {thing} | " + " | ".join(_cell(known.get((thing, rest))) for rest in Rest) + " |" for thing in Thing),
        f"\n{_summary(known)}\n",
        "What status and events said, in the last phase of the table that has a result:\n",
        *(_said(thing, known) for thing in Thing),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _cell(found: Deletion | None) -> str:
    if found is None:
        return "·"
    if found.thing in REFUSED:
        named = "never" if found.named_s is None else f"{found.named_s:.0f} s"
        back = found.restored_s if found.whole_s is None else found.whole_s
        text = f"*named* {named}, {back:.0f} s"
    else:
        text = f"{found.restored_s:.0f} s" + ("" if found.whole_s is None else f", *whole* {found.whole_s:.0f} s")
    return text if found.good else f"**✗** {text}"


def _summary(known: Known) -> str:
    cells = len(Thing) * len(Rest)
    if not known:
        return f"0 of {cells} cells have a result."
    runs = {str(d.run.get("at")): d.run for d in known.values()}
    acked, lost, doubled = (sum(r.get(k) or 0 for r in runs.values()) for k in ("acked", "lost", "duplicates"))
    bad = [d for d in known.values() if not d.good]
    unchanged = sum(not r.get("inventory_differences") for r in runs.values())
    commits = ", ".join(sorted({str(r.get("commit")) for r in runs.values()}))
    text = (
        f"{len(known)} of {cells} cells have a result, {len(known) - len(bad)} of them as promised. In {len(runs)} run(s) {acked} records were acknowledged, {lost} lost, {doubled} duplicated; "
        f"after {unchanged} of them all other metadata was as before. Longest produce stall: {max(d.longest_stall_s for d in known.values()):.1f} s. Commits: {commits}."
    )
    broken = [
        f"\n- **✗** {d.thing} in {d.rest}: {'; '.join(d.troubles) or 'its run did not end as promised'}" for d in bad
    ]
    return "\n".join([text, *broken])


def _said(thing: Thing, known: Known) -> str:
    found = next((known[thing, rest] for rest in reversed(Rest) if (thing, rest) in known), None)
    if found is None:
        return ""
    words = "; ".join(_escaped(text[:LONGEST_WORDS]) for text in found.said)
    way = f". Way out: {WAY_OUT[thing]}" if thing in WAY_OUT else ""
    return f"- {thing} (`{found.commands[0]}`): {words}{way}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("{", "&#123;")
