"""table.md and results.json of a study, from its results alone."""

import shlex

from studies.plan import TEXTS, as_options
from studies.results import FAILS, HOLDS, WITHIN

VERDICTS = (HOLDS, WITHIN, FAILS)


def number(value, digits):
    return f"{value:,.{digits}f}" if abs(value) < 1e6 else f"{value:.3g}"


def cell_text(cell, digits):
    """"12.34 ± 0.05", or why there is no figure."""
    if not cell.values:
        return "not run"
    if cell.reason:
        failed = sum(value is None for value in cell.values)
        return cell.reason + (f" ({failed} of {len(cell.values)})" if len(cell.values) > 1 else "")
    text = number(cell.mean, digits)
    return text if cell.spread is None else f"{text} ± {number(cell.spread, digits)}"


def published_text(row, key):
    value = row.published.get(key)
    if value is None:
        return ""
    return f"{value}{'?' if key in row.unconfirmed else ''}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def kept_text(results, row, columns):
    """How many of the orders that a row stands in hold: the last column."""
    mine = [order.verdict for order in results.orders
            if row in (order.better, order.worse) and order.column in columns]
    if not mine:
        return ""
    words = [f"{mine.count(verdict)} {verdict}" for verdict in VERDICTS if mine.count(verdict)]
    rest = len(mine) - sum(mine.count(verdict) for verdict in VERDICTS)
    return ", ".join(words + ([f"{rest} without verdict"] if rest else []))


def figures_of_group(results, columns, first):
    study = results.study
    published = [column for column in columns
                 if any(column.key in row.published for row in study.rows)]
    ordered = any(order.column in columns for order in results.orders)
    head = ["", *(column.label for column in columns)]
    head += ["parameters"] if first else []
    head += [f"{column.label}, published" for column in published]
    head += ["does the paper's order hold here?"] if ordered else []
    rows = []
    for row in study.rows:
        words = [row.label]
        words += [cell_text(results.cells[row.name, column.key], column.digits) for column in columns]
        if first:
            count = results.parameters(row)
            words.append("" if count is None else f"{count:,}")
        words += [published_text(row, column.key) for column in published]
        words += [kept_text(results, row, columns)] if ordered else []
        rows.append(words)
    return table(head, rows)


def groups_of(columns):
    groups = {}
    for column in columns:
        groups.setdefault(column.group, []).append(column)
    return groups


def figures(results):
    lines = []
    for index, (group, columns) in enumerate(groups_of(results.columns).items()):
        lines += [f"{group[0].upper()}{group[1:]}:", ""] if group else []
        lines += [*figures_of_group(results, columns, index == 0), ""]
    return lines


def legend(results):
    study = results.study
    over = "rounds of measuring" if study.measure == "speed" else "seeds"
    spread = (f"mean ± standard deviation over {results.seeds} {over}" if results.seeds > 1
              else "one seed, so no spread is known")
    lines = [f"Here: {spread}. {better_words(results.columns)}"]
    if study.published:
        lines.append(f"Published: {study.published['source']}, {study.published['what']}.")
        if any(row.unconfirmed for row in study.rows):
            lines.append("\"?\" marks a figure taken from a second source and not confirmed.")
    lines.append("Figures of different scale, text or task are not to be compared in size, only in "
                 "order.")
    return [*(f"- {line}" for line in [*lines, *study.notes]), ""]


def better_words(columns):
    """"Lower is better.", or for each quantity what is."""
    sides = {column.quantity or column.label: column.better for column in columns}
    if len(set(sides.values())) == 1:
        return f"{columns[0].better.capitalize()} is better."
    return "; ".join(f"{name}: {better} is better" for name, better in sides.items()) + "."


def summary(results):
    """Counts of the verdicts over all orders: {"holds": 3, ..}."""
    counts = {}
    for order in results.orders:
        counts[order.verdict] = counts.get(order.verdict, 0) + 1
    return counts


def order_section(results):
    if not results.orders:
        return []
    words = ", ".join(f"{verdict}: {count}" for verdict, count in summary(results).items())
    lines = ["## Does the paper's order hold here?", "",
             f"Pairs of rows that the paper orders: {len(results.orders)}. {words}."]
    if results.seeds > 1:
        lines.append("Within the spread: the two intervals of mean ± standard deviation touch.")
    else:
        lines.append("One seed tells no spread: a small difference may be chance.")
    several = len({order.column for order in results.orders}) > 1
    head = [*(["column"] if several else []), "better in the paper", "than", "published",
            "here", "verdict"]
    rows = [order_words(order, several) for order in results.orders]
    return [*lines, "", *table(head, rows), ""]


def order_words(order, several):
    column = order.column
    name = f"{column.group}, {column.label}" if column.group else column.label
    published = (", ".join(str(value) for value in order.published)
                 + ("?" if order.unconfirmed else "")) if order.published else order.source
    here = ", ".join(cell_text(cell, column.digits) for cell in order.cells)
    return [*([name] if several else []), order.better.label, order.worse.label, published, here,
            order.verdict]


def row_command(study, row, config):
    words = ["build/transnormer", "bench" if study.bench else "train", config,
             *as_options(study.settings_of(row))]
    if study.bench:
        words += ["--mode", "MODE", "--lengths", "LENGTH", "--batch-size",
                  str(study.bench.batch_size), "--repeat", str(study.bench.repeat), "--set",
                  "data.tokens_per_sample=LENGTH"]
    else:
        words += ["--set", "train.seed=SEED"]
    return shlex.join(words)


def how_it_was_run(results, command, config):
    study = results.study
    text = f" on {TEXTS[study.text]}" if study.text else ""
    lines = ["## How it was run", "", f"- Command: `{command}`",
             f"- Scale \"{study.scale}\"{text}: {study.scale_what}"]
    tokens, updates = results.facts("tokens"), results.facts("updates")
    if tokens:
        lines.append(f"- Budget, the same for every row: {max(tokens):,} tokens a run in "
                     f"{max(updates):,} updates; every other setting but the row's is the same too")
    lines.append(f"- {'Rounds' if study.bench else 'Seeds'}: {results.seeds}, "
                 f"so {len(results.jobs)} {'measurements' if study.bench else 'runs'}")
    if results.outcomes:
        seconds = [each.facts["seconds"] for each in results.outcomes]
        dates = sorted(results.facts("date"))
        lines += [f"- Machine: {'; '.join(results.facts('machine'))}",
                  f"- Date: {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}; "
                  f"{'; '.join(results.facts('program'))}",
                  f"- Time: {sum(seconds) / 60:,.1f} minutes, "
                  f"{min(seconds):,.0f} to {max(seconds):,.0f} s each"]
    lines += ["", "One of each row by hand:", "", "```sh",
              *(row_command(study, row, config) for row in study.rows), "```", ""]
    return lines


def to_markdown(results, command, config, pictures):
    study = results.study
    lines = [f"# {study.title}", "", study.question, ""]
    if results.unfinished:
        lines += [f"**Unfinished: {len(results.outcomes)} of {len(results.jobs)} are done.** The "
                  "command below goes on.", ""]
    lines += figures(results) + legend(results)
    lines += [line for picture in pictures for line in (f"![{picture.stem}]({picture.name})", "")]
    lines += order_section(results) + how_it_was_run(results, command, config)
    return "\n".join(lines).rstrip("\n") + "\n"


def to_json(results, command, config):
    study = results.study
    return {
        "study": study.name, "title": study.title, "scale": study.scale, "seeds": results.seeds,
        "command": command, "config": config, "unfinished": results.unfinished,
        "published": study.published,
        "columns": [{"key": column.key, "label": column.label, "better": column.better,
                     "group": column.group} for column in results.columns],
        "tokens_a_run": max(results.facts("tokens"), default=None),
        "updates_a_run": max(results.facts("updates"), default=None),
        "machine": results.facts("machine"), "date": sorted(results.facts("date")),
        "program": results.facts("program"),
        "rows": [row_json(results, row) for row in study.rows],
        "orders": [order_json(order) for order in results.orders],
        "verdicts": summary(results)}


def row_json(results, row):
    study = results.study
    figures_here = {}
    for column in results.columns:
        cell = results.cells[row.name, column.key]
        figures_here[column.key] = {"mean": cell.mean, "std": cell.spread, "ended": cell.reason or None,
                                    "values": list(cell.values)}
    return {"name": row.name, "label": row.label, "settings": study.settings_of(row),
            "parameters": results.parameters(row), "figures": figures_here,
            "published": row.published, "unconfirmed": list(row.unconfirmed)}


def order_json(order):
    return {"column": order.column.key, "better": order.better.name, "worse": order.worse.name,
            "published": list(order.published) or None, "unconfirmed": order.unconfirmed,
            "source": order.source, "here": [cell.mean for cell in order.cells],
            "verdict": order.verdict}
