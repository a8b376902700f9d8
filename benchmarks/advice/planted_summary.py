"""What planted causes show of the advice: counts with their intervals of 95 % (Clopper and Pearson)."""

from collections.abc import Callable, Mapping, Sequence

from scipy.stats import binomtest

Row = Mapping[str, object]


def summary(rows: Sequence[Row]) -> str:
    """Return a table of old causes, which rules were written with, and of new ones by the commit of the rules."""
    new = [row for row in rows if row["rules"]]
    groups = {"old causes": [row for row in rows if not row["rules"]], "new causes": new}
    groups |= {
        f"  rules of {commit}": [row for row in new if row["rules"] == commit]
        for commit in dict.fromkeys(str(row["rules"]) for row in new)
    }
    return "\n".join(line for name, group in groups.items() if group for line in _lines(name, group))


def _lines(name: str, rows: Sequence[Row]) -> list[str]:
    verified = [row for row in rows if row["verified"]]
    shown = [row for row in verified if _number(row, "verified_low") > 1.0 or _number(row, "verified_high") < 1.0]
    own = [row for row in verified if row.get("rule_low")]
    fired = {value: sum(row["fired"] == value for row in rows) for value in ("unsettled", "no")}
    found = _share(rows, lambda row: row["fired"] == "yes")
    quiet, every = (
        _share(rows, holds) for holds in (lambda row: row["clean_silent"] == "yes", lambda row: not row["clean_rules"])
    )
    inside, inside_own = (
        _share(of, lambda row, name=name: _is_inside(row, name))
        for of, name in ((verified, "predicted"), (own, "rule"))
    )
    return [
        f"{name}: {len(rows)}",
        f"    found {found}, unsettled {fired['unsettled']}, silent {fired['no']}",
        f"    of the clean twin the rule is silent {quiet}, every rule {every}",
        f"    verified gains inside the printed interval {inside}, inside the rule's own {inside_own}",
        f"    sign right where a difference was shown {_share(shown, _has_right_sign)}",
    ]


def _share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> str:
    if not rows:
        return "of none"
    count = sum(map(holds, rows))
    interval = binomtest(count, len(rows)).proportion_ci(0.95, "exact")
    percent = f"{100 * count / len(rows):.0f} %, {100 * interval.low:.0f} to {100 * interval.high:.0f}"
    return f"{count} of {len(rows)} ({percent})"


def _is_inside(row: Row, interval: str) -> bool:
    return _number(row, f"{interval}_low") <= _number(row, "verified") <= _number(row, f"{interval}_high")


def _has_right_sign(row: Row) -> bool:
    return (_number(row, "verified") > 1.0) == (_number(row, "predicted") > 1.0)


def _number(row: Row, name: str) -> float:
    return float(str(row[name]))
