const board = {text: "", sorts: {}, chosen: []};  // what a reader filters by, sorts by and compares, while the page is open
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const sort = (table, column, down) => {
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
    if (document.activeElement !== filter) filter.value = board.text;
    const words = board.text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const table of all(".board")) {
        const rows = all("tbody tr", table);
        for (const row of rows) row.hidden = !words.every(word => row.dataset.text.includes(word));
        table.hidden = rows.every(row => row.hidden);
        if (board.sorts[table.id]) sort(table.querySelector("table"), ...board.sorts[table.id]);
    }
    const boxes = all(".board input[type=checkbox]");
    board.chosen = board.chosen.filter(value => boxes.some(box => box.value === value));
    for (const box of boxes) box.checked = board.chosen.includes(box.value);
    const sides = board.chosen.map(value => JSON.parse(value)), ready = sides.length > 1;
    link.setAttribute("aria-disabled", !ready);
    const [first, second] = sides, names = sides.map(([, scorer]) => scorer);
    const more = sides.length > 2 ? {among: JSON.stringify(sides)} : {};
    const values = ready && {tab: "compare", run: first[0], scorer: first[1], with: second[0], other: second[1], ...more};
    if (ready) link.setAttribute("href", `?${new URLSearchParams(values)}`);
    else link.removeAttribute("href");
    document.getElementById("board-chosen").textContent = ready ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`
        : sides.length ? "Choose one more model." : "Choose two or more models to compare.";
};
document.addEventListener("input", ({target}) => {
    if (target.id === "board-filter") board.text = target.value;
    else if (!target.matches(".board input[type=checkbox]")) return;
    else board.chosen = [...board.chosen.filter(value => value !== target.value), ...(target.checked ? [target.value] : [])];
    apply();
});
document.addEventListener("click", event => {
    const head = event.target.closest?.(".board thead button")?.closest("th");
    if (!head) return;
    const down = head.getAttribute("aria-sort") !== "descending";
    const first = !head.dataset.up;  // numbers from the highest, names from A
    board.sorts[head.closest(".board").id] = [head.cellIndex, head.hasAttribute("aria-sort") ? down : first];
    apply();
});
document.addEventListener("filled", event => event.target.id === "leaderboard" && apply());
