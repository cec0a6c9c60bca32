() => {
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
        const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
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
}
