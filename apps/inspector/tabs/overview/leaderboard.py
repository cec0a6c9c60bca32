"""The leaderboard: a table for every benchmark, with a row for every model of every run."""

import json
from html import escape

from .....benchmarks.evaluate import OVERALL
from .....benchmarks.types import Interval
from ...html import CSV, STYLE, shown
from ..metrics import about, cases_query, linked, results_query, section_filter
from ..results.areas import AXIS, ends, interval_mark, share_html, tick_mark
from .queries import Board, Standing

CSS = """<style>
.rl .board {margin-block: 12px}
.rl .board h2 {font-size: 16px; font-weight: 600; margin: 0}
.rl .board thead button {all: unset; cursor: pointer; font-weight: 600; white-space: nowrap}
.rl .board thead button:focus-visible {outline: 2px solid currentColor; outline-offset: 2px}
.rl .board [aria-sort=ascending] button::after {content: " ↑" / ""}
.rl .board [aria-sort=descending] button::after {content: " ↓" / ""}
.rl .board :is(th, td) {padding-inline: 10px}
.rl .board td:first-child, .rl .board th:first-child {min-width: 0 !important; width: 34px; text-align: center}
.rl .board :is(th, td):is(.name, .run) {text-align: left; min-width: 9rem; overflow-wrap: anywhere}
.rl .board tbody tr {height: 34px}
.rl .board .axis {width: 22%; min-width: 160px; position: relative}
.rl .board tbody th.name {width: 18%; white-space: normal}
.rl .board td.axis {height: 1px; padding-block: 0}
.rl .board tr[hidden] {display: none}
.rl .board input[type=checkbox] {appearance: auto; all: revert; accent-color: var(--color-accent)}
.rl progress {accent-color: var(--color-accent)}
@media (max-width: 700px) {
    .rl .board .axis {display: none}
    .rl .board :is(th, td):is(.name, .run) {min-width: 5rem}
    .rl .board :is(th, td) {padding-inline: 6px}
}
.rl .tools {display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; margin: 8px 0}
.rl .tools input {font: inherit; color: inherit; background: transparent; border: 1px solid var(--line);
    border-radius: 6px; padding: 5px 10px; min-width: min(100%, 18rem)}
.rl .tools a {border: 1px solid var(--line); border-radius: 6px; padding: 5px 14px; color: inherit; font-weight: 600;
    text-decoration: none}
.rl .tools a[aria-disabled=true] {opacity: .5; pointer-events: none}
.rl .cards {display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
    margin: 8px 0}
.rl .card-body {padding: 10px 14px} .rl .card-body p {margin: 0 0 6px} .rl .card-body p:last-child {margin: 0}
.rl .curves {display: flex; flex-wrap: wrap; gap: 4px 18px} .rl .curves figure {margin: 0; flex: 1 1 8rem; min-width: 0}
.rl .curves svg {display: block; width: 100%; height: 34px; overflow: visible}
.rl .curves figcaption {display: flex; justify-content: space-between; gap: 8px; font-size: 13px; white-space: nowrap}
.rl .curves figcaption span:first-child {overflow: hidden; text-overflow: ellipsis}
.rl progress {width: 100%}
</style>"""
TOOLS = (
    '<div class="tools"><input type="search" id="board-filter" placeholder="Filter models, runs and benchmarks" '
    'aria-label="Filter models, runs and benchmarks" autocomplete="off"><a id="board-compare" role="button" '
    'aria-disabled="true">Compare</a><span class="faint" id="board-chosen">Choose two models to compare.</span></div>'
)
SCRIPT = """() => {
    if (window.rewardlabBoard) return;
    const state = window.rewardlabBoard = {text: "", sorts: {}, chosen: []};
    const all = (selector, within = document) => [...within.querySelectorAll(selector)];
    const drawn = new MutationObserver(changes => {
        const inside = ({target}) => target.closest?.("#leaderboard") || target.querySelector?.("#leaderboard");
        if (changes.some(inside)) apply();
    });
    const sorted = (table, column, down) => {
        const value = row => row.children[column].dataset.value ?? row.children[column].textContent;
        const rows = all("tbody tr", table).map(row => [value(row), row]);
        const numbers = rows.every(([text]) => text === "" || !isNaN(text));
        const order = ([a], [b]) => (a === "") - (b === "") || (down ? -1 : 1) * (numbers ? a - b : a.localeCompare(b));
        rows.sort(order).forEach(([, row]) => row.parentElement.append(row));
        all("thead th", table).forEach((head, index) => {
            if (index === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
            else head.removeAttribute("aria-sort");
        });
    };
    const apply = () => {
        const filter = document.getElementById("board-filter"), link = document.getElementById("board-compare");
        if (!filter) return;
        if (document.activeElement !== filter) filter.value = state.text;
        const words = state.text.toLowerCase().split(/\\s+/).filter(Boolean);
        for (const board of all(".board")) {
            const rows = all("tbody tr", board);
            for (const row of rows) row.hidden = !words.every(word => row.dataset.text.includes(word));
            board.hidden = rows.every(row => row.hidden);
            if (state.sorts[board.id]) sorted(board.querySelector("table"), ...state.sorts[board.id]);
        }
        const boxes = all(".board input[type=checkbox]");
        state.chosen = state.chosen.filter(value => boxes.some(box => box.value === value));
        for (const box of boxes) box.checked = state.chosen.includes(box.value);
        const ready = state.chosen.length === 2;
        link.setAttribute("aria-disabled", !ready);
        const [first, second] = state.chosen.map(value => JSON.parse(value));
        const asked = ready ? {run: first[0], scorer: first[1], with: second[0], other: second[1]} : {};
        if (ready) link.href = "?" + new URLSearchParams({tab: "compare", ...asked});
        else link.removeAttribute("href");
        document.getElementById("board-chosen").textContent = ready ? `${first[1]} and ${second[1]}`
            : state.chosen.length ? "Choose one more model." : "Choose two models to compare.";
        drawn.takeRecords();  // what this changed itself
    };
    document.addEventListener("input", event => {
        if (event.target.id === "board-filter") {state.text = event.target.value; apply()}
        if (event.target.closest?.(".board") && event.target.type === "checkbox") {
            const {value, checked} = event.target, others = state.chosen.filter(other => other !== value);
            state.chosen = checked ? [...others.slice(-1), value] : others;
            apply();
        }
    });
    document.addEventListener("click", event => {
        const head = event.target.closest?.(".board thead button")?.closest("th");
        if (!head) return;
        const down = head.getAttribute("aria-sort") !== "descending";
        const first = !head.dataset.up;  // numbers from the highest, names from A
        state.sorts[head.closest(".board").id] = [head.cellIndex, head.hasAttribute("aria-sort") ? down : first];
        apply();
    });
    drawn.observe(document.body, {childList: true, subtree: true});
    apply();
}"""
"""JavaScript: the leaderboard is sorted by a click on a head, filtered as one types, and two models can be compared."""


def boards_html(boards: tuple[Board, ...]) -> str:
    """Return a filter and a table for every benchmark."""
    tables = "".join(_board_html(board, index) for index, board in enumerate(boards))
    return f'{STYLE}{AXIS}{CSS}<div class="rl">{TOOLS}{tables}</div>' if boards else ""


def _board_html(board: Board, index: int) -> str:
    heads = '<th scope="col" class="choice" aria-label="compare"></th>' + _head("model", up=True)
    heads += '<th scope="col" class="axis"><span class="track">' + "".join(
        f'<span style="left:{at}%">{at}</span>' for at in (0, 50, 100)
    )
    heads += "</span></th>" + _head(about("overall", "overall, %"), ordered="descending")
    heads += "".join(_head(about("section", shown(name, 40))) for name in board.sections)
    heads += _head(about("gain")) + _head(about("unscored", "abstained")) + _head("date") + _head("run", up=True)
    rows = "".join(_standing_html(standing, board) for standing in board.standings)
    number = len(board.standings)
    return (
        f'<section class="board box with-csv" id="board-{index}"><div class="head"><h2>{shown(board.suite, 80)}</h2>'
        f'<span class="faint">version {shown(board.version, 20)}; {board.cases:,} cases; {number:,} '
        f'{"model" if number == 1 else "models"}</span><span class="end">{CSV}</span></div>'
        '<div class="scores"><table class="heat">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _head(label: str, *, up: bool = False, ordered: str = "") -> str:
    options = ' class="name"' if label in ("model", "run") else ""
    options += ' data-up="1"' if up else ""
    options += f' aria-sort="{ordered}"' if ordered else ""
    return f'<th scope="col"{options}><button type="button">{label}</button></th>'


def _standing_html(standing: Standing, board: Board) -> str:
    run, scorer = standing.run, standing.scorer
    value = json.dumps([run, scorer])
    name = linked(results_query(run, scorer), shown(scorer, 80))
    role = "" if standing.role == "model" else f' <span class="faint">{shown(standing.role, 20)}</span>'
    role += "".join(f' <span class="pill wrong">{shown(caution, 80)}</span>' for caution in standing.cautions)
    overall = standing.areas[OVERALL]
    label = f'aria-label="compare {escape(scorer)} of {escape(run)}"'
    cells = f'<td class="choice"><input type="checkbox" value="{escape(value)}" {label}></td>'
    cells += f'<th scope="row" class="name">{name}{role}</th><td class="axis"{_value(overall.value)}>'
    cells += f'<span class="track">{_marks(standing)}</span></td>'
    cells += _share(overall, cases_query(run, scorer, outcome="all"), ends(overall))
    for section in board.sections:
        interval = standing.areas.get(section)
        address = cases_query(run, scorer, **section_filter(section))
        cells += "<td data-value></td>" if interval is None else _share(interval, address)
    cells += _gain_html(standing) + f'<td data-value="{standing.abstained}">{standing.abstained:,}</td>'
    state = ' <span class="pill">running</span>' if standing.growing else ""
    cells += f'<td style="white-space: nowrap">{shown(standing.date, 10)}{state}</td>'
    cells += f'<td class="run">{linked(results_query(run), shown(run, 80))}</td>'
    text = escape(f"{scorer} {run} {board.suite} {standing.role}".lower())
    return f'<tr data-text="{text}">{cells}</tr>'


def _value(value: float) -> str:
    return f' data-value="{"" if value != value else value}"'


def _share(interval: Interval, address: str, small: str = "") -> str:
    return share_html(interval.value, address, small).replace("<td", f"<td{_value(interval.value)}", 1)


def _marks(standing: Standing) -> str:
    marks = "".join(
        tick_mark(interval, name, cases_query(standing.run, name, outcome="all"))
        for name, interval in standing.baselines.items()
    )
    address = cases_query(standing.run, standing.scorer, outcome="all")
    return marks + interval_mark(standing.areas[OVERALL], standing.scorer, address)


def _gain_html(standing: Standing) -> str:
    gain = standing.gain
    if gain is None or gain.value != gain.value:
        return "<td data-value></td>"
    value, low, high = (100 * number for number in gain)
    text = f"{value:+.1f}<small>[{low:+.1f}, {high:+.1f}]</small>"
    kind = "" if gain.real else ' class="faint"'
    return f"<td{_value(gain.value)}{kind}>{text}</td>"
