// Pages of a static copy. Data are scripts, since a page from a file may not fetch: each calls one function of `bundle`.
// The address is #LIST/CASE, both by number. lists: [label, cases]; lines: [case, subset, outcome, margin, prompt].
const byId = id => document.getElementById(id);
const CHUNK = 100, lines = new Map(), cases = new Map(), loaded = new Map();
let lists = [], at = {list: 0, index: 0}, shown = [];
window.bundle = {
    lists: found => {
        lists = found;
        byId("list").append(...lists.map(([label], index) => new Option(label, index)));
        go();
    },
    lines: (list, found) => lines.set(list, found),
    cases: (name, found) => cases.set(name, found),
};
const script = name => {
    if (!loaded.has(name)) loaded.set(name, new Promise((resolve, reject) => document.body.append(
        Object.assign(document.createElement("script"), {src: `data/${name}.js`, onload: resolve, onerror: reject}))));
    return loaded.get(name);
};
const go = async () => {
    const [list = 0, index = 0] = location.hash.slice(1).split("/").map(text => Number.parseInt(text) || 0);
    const other = !lines.has(list) || at.list !== list;
    at = {list: Math.min(list, lists.length - 1), index};
    await script(`${at.list}`);
    byId("list").value = at.list;
    if (other || !shown.length) filter();
    show();
};
const filter = () => {
    const outcome = byId("outcome").value, text = byId("search").value.toLowerCase();
    const found = [...(lines.get(at.list) ?? []).entries()];
    shown = found.filter(([, line]) => (outcome === "all" || line[2] === outcome)
        && `${line[0]} ${line[1]} ${line[4]}`.toLowerCase().includes(text)).map(([index]) => index);
    byId("count").textContent = `${shown.length.toLocaleString("en")} cases`;
    byId("rows").replaceChildren(...shown.map(row));
    mark();
};
const row = index => {
    const [name, subset, outcome, margin, prompt] = lines.get(at.list)[index];
    const link = Object.assign(document.createElement("a"), {href: `#${at.list}/${index}`, textContent: prompt || name});
    const facts = document.createElement("span"), [first, second] = [0, 1].map(() => document.createElement("span"));
    [first.textContent, second.textContent] = [subset, `${outcome} ${margin === null ? "" : margin.toFixed(3)}`];
    second.className = outcome;
    facts.append(first, second);
    link.append(facts);
    return link;
};
const mark = () => [...byId("rows").children].forEach((link, place) => {
    link.toggleAttribute("aria-current", shown[place] === at.index);
    if (shown[place] === at.index) link.scrollIntoView({block: "nearest"});
});
const show = async () => {
    const {list, index} = at, name = `${list}-${Math.floor(index / CHUNK)}`;
    await script(name);
    if (at.list !== list || at.index !== index) return;
    byId("case").innerHTML = cases.get(name)?.[index % CHUNK] ?? "";
    mark();
};
const step = by => {
    const next = shown[shown.indexOf(at.index) + by] ?? shown[0];
    if (next !== undefined) location.hash = `${at.list}/${next}`;
};
addEventListener("hashchange", go);
byId("list").onchange = event => location.hash = `${event.target.value}/0`;
byId("outcome").onchange = byId("search").oninput = filter;
byId("before").onclick = () => step(-1);
byId("after").onclick = () => step(1);
addEventListener("keydown", event => {
    const by = {j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1}[event.key];
    if (by && !event.target.closest("input, select")) step(by);
});
addEventListener("click", event => {
    const unfold = event.target.closest("#case .unfold");
    unfold?.previousElementSibling.classList.remove("folded");
    unfold?.remove();
});
