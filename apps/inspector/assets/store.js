// The page's one store: tab, run, scorer, filter and case, as the address has them. Every tab, control, link and point
// of a figure changes it, and nothing reloads the page. A tab registers with `rewardlab.pane(name, element, server)`;
// the functions of `server` are those of the tab in Python.
const FIRST = "overview", JUDGED = ["judgments", "compare", "benchmarks"], STEPS = ["tab", "run", "with", "item"];
const NO_ANSWER = "The inspector does not answer: start it again, or look at its terminal.";
const SECONDS = 5, panes = {}, kept = {}, waiting = new Map(), context = {};
const tabOf = query => query.get("tab") ?? (query.has("run") || query.has("item") ? "judgments" : FIRST);
let state = new URLSearchParams(location.search), arrived = false, library = null;

// ---- the address ----

const remember = () => {
    const tab = tabOf(state);
    kept[tab] = state;
    if (JUDGED.includes(tab) && state.get("run")) Object.assign(context, {run: state.get("run"), scorer: state.get("scorer")});
};
const write = (query, how) => {
    const next = new URLSearchParams([...query].filter(([, value]) => value !== ""));
    if (String(next) !== String(state)) history[`${how}State`](null, "", `?${next}`);
    state = next;
    remember();
};
const go = (address, how) => {
    const query = new URLSearchParams(address);
    const step = STEPS.some(name => (name === "tab" ? tabOf(state) !== tabOf(query) : state.get(name) !== query.get(name)));
    write(query, how ?? (step ? "push" : "replace"));
    select();
    panes[tabOf(state)]?.show(state);
};
const set = (values, drops = []) => {
    const query = new URLSearchParams({tab: tabOf(state), ...Object.fromEntries(state), ...values});
    drops.forEach(name => query.delete(name));
    go(query);
};
const settle = (tab, values, how = "replace") => {  // the values that an answer is for, where the reader has not gone on
    if (tab === tabOf(state)) write(new URLSearchParams({tab, ...values}), how);
};
const queryOf = tab => {  // the tab's last address, at the run and scorer of the other tabs
    const last = new URLSearchParams(kept[tab] ?? {tab}), {run, scorer} = context;
    if (!JUDGED.includes(tab) || !run) return last;
    const sides = [[last.get("run"), last.get("scorer")], [last.get("with"), last.get("other")]];
    if (tab === "compare" && sides.some(([id, name]) => id === run && (!scorer || name === scorer))) return last;
    if (last.get("run") === run) return scorer && last.set("scorer", scorer), last;
    return new URLSearchParams({tab, run, ...(scorer ? {scorer} : {})});
};
window.addEventListener("popstate", () => {
    state = new URLSearchParams(location.search);
    remember();
    select();
    panes[tabOf(state)]?.show(state);
});

// ---- tabs of Gradio follow the store, and the store the tab that a reader chooses ----

const buttons = () => [...document.querySelectorAll("#tabs [role=tab][data-tab-id]:not(#playgrounds *)")];
const chosen = () => buttons().find(button => button.ariaSelected === "true")?.dataset.tabId;
const select = () => {
    const tab = tabOf(state), all = buttons(), button = all.find(one => one.dataset.tabId === tab);
    if (chosen() === tab) return arrived = true, nested(), draw();
    if (all.length && !button) return go({tab: FIRST}, "replace");
    button?.click();
    requestAnimationFrame(select);
};
const nested = () => {  // a decoded file is in a tab of its own
    if (tabOf(state) !== "playground" || !state.get("run")) return;
    const button = document.querySelector("#playgrounds [data-tab-id=files]");
    button ? button.click() : requestAnimationFrame(nested);
};
new MutationObserver(() => {
    const tab = chosen();
    if (!arrived || !tab || tab === tabOf(state)) return;
    write(queryOf(tab), "push");
    panes[tab]?.show(state);
}).observe(document, {subtree: true, attributeFilter: ["aria-selected"]});
remember();
requestAnimationFrame(select);

// ---- answers ----

const ask = async promise => {  // Gradio's client returns undefined where the server does not answer
    try {return await promise ?? {error: NO_ANSWER}} catch (error) {return {error: `${NO_ANSWER} (${error})`}}
};
const tell = (element, error, again) => {  // shown where the reader acts; the action can be repeated
    let note = element.querySelector(":scope > .failed");
    if (!error) return note?.remove();
    if (!note) element.prepend(note = Object.assign(document.createElement("div"), {className: "rl failed"}));
    note.setAttribute("role", "alert");
    const button = Object.assign(document.createElement("button"), {type: "button", textContent: "Try again", onclick: again});
    note.replaceChildren(error, " ", button);
};
const plotly = () => library ??= new Promise((done, failed) => {
    const script = Object.assign(document.createElement("script"), {src: "plotly.js", onload: () => done(window.Plotly)});
    script.onerror = () => {library = null; failed(NO_ANSWER)};
    document.head.append(script);
});
const draw = async () => {  // figures are drawn where they can be seen, as Plotly measures their place
    for (const [part, figure] of waiting) {
        if (!part.offsetParent) continue;
        const Plotly = await plotly().catch(() => null);
        if (!Plotly || waiting.get(part) !== figure) continue;
        waiting.delete(part);
        const {title, definition} = figure.layout.meta ?? {};
        const [head, plot] = part.children;
        head.replaceChildren(Object.assign(document.createElement("span"), {textContent: title ?? ""}));
        if (definition) Object.assign(head.firstChild, {tabIndex: 0}).dataset.definition = definition;
        const options = {responsive: true, displaylogo: false, displayModeBar: innerWidth > 700 ? "hover" : false};
        await Plotly.react(plot, figure.data, figure.layout, options);
        plot.removeAllListeners("plotly_click");
        plot.on("plotly_click", ({points: [{data, id}]}) => {
            if (String(data.meta).startsWith("?tab=")) go(data.meta + encodeURIComponent(id ?? ""));
        });
    }
};
const fill = (part, value, polled) => {
    if (JSON.stringify(value) === part.rewardlabValue) return;
    const focus = part.contains(document.activeElement) && document.activeElement;
    if (focus && polled && focus.matches("input, select, textarea")) return;
    part.rewardlabValue = JSON.stringify(value);
    part.hidden = !value;
    if (value?.data) {
        if (!part.querySelector(".plot")) part.innerHTML = "<h3></h3><div class=\"plot\"></div>";
        return waiting.set(part, value);
    }
    waiting.delete(part);
    part.innerHTML = value;
    if (focus?.name) part.querySelector(`[name="${CSS.escape(focus.name)}"]`)?.focus({preventScroll: true});
    part.dispatchEvent(new Event("filled", {bubbles: true}));
};
const pane = (name, box, server, own) => {
    const element = box.querySelector(".pane") ?? box;
    let version = 0, loading = 0, stamp = "", growing = false;
    const load = async (query, polled = false) => {
        loading += 1;
        try {await answer(++version, query, polled)} finally {loading -= 1}
    };
    const answer = async (asked, query, polled) => {
        const request = {query: Object.fromEntries(query)};
        element.classList.toggle("pending", !polled);
        const found = await ask(server.view({...request, seen: polled ? stamp : ""}));
        if (asked !== version) return;  // another address was asked for meanwhile
        element.classList.remove("pending");
        tell(element, found.error, () => load(query));
        if (found.error || found.same) return;
        ({stamp, growing} = found);
        element.querySelectorAll("[id].part").forEach(part => {
            if (!found.later.includes(part.id) || !polled) fill(part, found.parts[part.id] ?? "", polled);
        });
        settle(name, found.query);
        draw();
        if (!found.later.length) return;
        const late = await ask(server.later({query: found.query}));
        if (asked !== version) return;
        tell(element, late.error, () => load(query));
        for (const [id, value] of Object.entries(late.parts ?? {})) fill(document.getElementById(id), value);
        draw();
    };
    panes[name] = own ?? {show: load, poll: () => growing && !loading && load(state, true)};  // no poll overtakes an answer
    if (tabOf(state) === name) panes[name].show(state);
    if (own) return;
    element.addEventListener("change", ({target}) => {
        if (!target.name) return;
        const boxes = [...element.querySelectorAll(`input[type=checkbox][name="${target.name}"]:checked`)];
        const value = target.type === "checkbox" ? boxes.map(box => box.value).join() : target.value;
        set({[target.name]: value}, target.dataset.drops?.split(" "));
    });
};
setInterval(() => document.hidden || panes[tabOf(state)]?.poll?.(), 1000 * SECONDS);
document.addEventListener("click", event => {
    const link = event.target.closest?.("a[href^='?']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
});

// ---- what this browser keeps, and definitions of metrics ----

const stored = (name, value) => {
    if (value === undefined) try {return JSON.parse(localStorage.getItem(`rewardlab-${name}`))} catch {return null}
    localStorage.setItem(`rewardlab-${name}`, JSON.stringify(value));
};
const define = ({type, target}) => {
    const metric = type === "keydown" ? null : target.closest?.("[data-definition]");
    document.getElementById("definition")?.remove();
    if (!metric) return;
    const box = Object.assign(document.createElement("div"), {id: "definition", textContent: metric.dataset.definition});
    box.setAttribute("role", "tooltip");
    metric.setAttribute("aria-describedby", "definition");
    document.querySelector(".gradio-container").append(box);
    const {left, bottom} = metric.getBoundingClientRect();
    box.style.left = `${Math.max(8, Math.min(left, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${Math.min(bottom + 6, innerHeight - box.offsetHeight - 8)}px`;
};
["pointerover", "focusin", "click"].forEach(name => document.addEventListener(name, define));
document.addEventListener("keydown", event => event.key === "Escape" && define(event));

window.rewardlab = {pane, fill, go, set, settle, ask, tell, stored, draw, state: () => state, tab: () => tabOf(state)};
