// The list of cases and the case beside it. Gradio calls this with `element` (the list), `trigger`, `props`,
// `server` (functions of case_server.py) and `watch`. props.value: {query, total, counts, position, marked, error}.
const ROW = 46, CHUNK = 60, SETTLED = 250;
const NO_ANSWER = "The inspector does not answer: start it again, or look at its terminal.";
const NONE = "No case passes: choose another outcome or widen the filter.";
const FIELDS = ["run", "scorer", "outcome", "subset", "search", "margin", "gap", "length", "only", "order"];
const TEXTS = ["search", "margin", "gap", "length"];
const byId = id => document.getElementById(id);
const stored = (name, value) => {  // a value that this browser keeps
    const key = `rewardlab-${name}`;
    if (value === undefined) return JSON.parse(localStorage.getItem(key) ?? "null");
    localStorage.setItem(key, JSON.stringify(value));
};
let view = {query: {}, total: 0, marked: []}, version = 0;
let rows = new Map(), names = new Map(), fetching = false;
const unstored = new Map();  // case -> why its annotation was not stored
let wanted = 0, shown = null, loading = false, outdated = false, timer = null;
const options = {raw: stored("raw") ?? false, diff: false, blind: stored("blind") ?? false};
const list = () => element.querySelector("#cases");
const request = more => ({query: view.query, marked: view.marked, reader: stored("reader") ?? "", ...options, ...more});

// ---- the list: only the rows in sight are in the page ----

const draw = () => {
    const box = list();
    if (!box) return;
    const space = box.firstElementChild;
    space.style.height = `${view.total * ROW}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
    const last = Math.min(view.total, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 10);
    const known = new Map([...space.children].map(row => [Number(row.dataset.at), row]));
    for (const [at, row] of known) if (at < first || at >= last) row.remove();
    let missing = null;
    for (let at = first; at < last; at++) {
        let row = known.get(at);
        if (!row) {
            row = Object.assign(document.createElement("div"), {id: `case-row-${at}`, className: "row"});
            row.setAttribute("role", "option");
            row.dataset.at = at;
            row.style.top = `${at * ROW}px`;
            space.append(row);
        }
        if (!row.dataset.full && rows.has(at)) {
            row.innerHTML = rows.get(at);
            row.dataset.full = 1;
            row.dataset.case = names.get(at);
        }
        row.classList.toggle("marked", view.marked.includes(names.get(at)));
        row.setAttribute("aria-selected", at === wanted);
        if (!rows.has(at)) missing ??= at;
    }
    if (view.total) box.setAttribute("aria-activedescendant", `case-row-${wanted}`);
    byId("case-place").textContent = view.total ? `${(wanted + 1).toLocaleString("en")} of ${view.total.toLocaleString("en")}` : "";
    if (missing !== null && !fetching) fetchRows(Math.floor(missing / CHUNK) * CHUNK);
};
const fetchRows = async start => {
    fetching = true;
    const asked = version, found = await answer(server.rows(request({start, size: CHUNK})));
    fetching = false;
    if (asked === version && !found.error) keep(found);
    if (asked !== version || !found.error) draw();
};
const keep = found => {
    found.rows.forEach((html, index) => rows.set(found.start + index, html));
    found.cases.forEach((name, index) => names.set(found.start + index, name));
    view.total = found.total;
};
const answer = async promise => {  // Gradio's client returns undefined where the server does not answer
    try {return await promise ?? {error: NO_ANSWER}} catch (error) {return {error: `${NO_ANSWER} (${error})`}}
};
const reveal = () => {
    const box = list(), top = wanted * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
};

// ---- the filter: one is asked for at a time, the last one counts, and its answer is taken for no other ----

let latest = {}, filtering = false;
const same = (one, other, names) => names.every(name => String(one[name] ?? "") === String(other[name] ?? ""));
const filter = async (values, typed) => {
    const query = Object.fromEntries(FIELDS.map((name, index) => [name, values[index]]));
    if (!query.run || query.run !== latest.run) return;  // another run is on its way, with its filter
    if (typed && same(query, latest, TEXTS)) return;  // filled in by an address
    latest = query;
    if (filtering) return;
    filtering = true;
    let asked, found;
    do {
        asked = latest;
        found = await answer(server.rows(request({query: asked, start: 0, size: CHUNK})));
    } while (asked !== latest);
    filtering = false;
    if (same(asked, view.query, FIELDS) && !view.error) return;  // the answer to an address, meanwhile
    const {total, counts, error} = found;
    open({query: asked, marked: view.marked, total: total ?? 0, counts, refused: error}, found);
};
const count = () => document.querySelectorAll("#outcome label").forEach(label => {
    const number = view.counts?.[label.querySelector("input").value];
    if (number === undefined) delete label.dataset.count;
    else label.dataset.count = `(${number.toLocaleString("en")})`;
});

// ---- the case: each step counts at once, the case of the last one is shown ----

const select = position => {
    if (!view.total) return;
    wanted = Math.max(0, Math.min(position, view.total - 1));
    reveal();
    draw();
    load({position: wanted});
};
const load = async which => {
    if (loading) return outdated = true;
    [loading, outdated] = [true, false];
    byId("case").classList.add("refreshing");
    const asked = version, at = wanted, found = await answer(server.case(request(which)));
    loading = false;
    if (outdated || asked !== version || at !== wanted) return load({position: wanted});  // the reader went on meanwhile
    if (found.error) return tell(found.error);
    if (found.case === null) return tell(NONE);
    if (wanted !== found.position) {wanted = found.position; reveal(); draw()}
    show(found);
};
const tell = (text, html = "") => {  // a sentence, or the server's card with commands
    shown = null;
    byId("case").classList.remove("refreshing");
    const note = Object.assign(document.createElement("p"), {className: "note", textContent: text});
    if (html) byId("case").innerHTML = html;
    else byId("case").replaceChildren(note);
    byId("annotation").hidden = true;
    byId("case-bar").hidden = true;
    settle(null);
};
const show = found => {
    shown = found.case;
    byId("case").innerHTML = found.html;
    byId("case").classList.remove("refreshing");
    byId("case-bar").hidden = byId("annotation").hidden = false;
    byId("case-pane").scrollTop = 0;
    annotation(found);
    star();
    settle(shown);
};
const settle = name => {  // what follows the case waits until the reader stays at it
    clearTimeout(timer);
    timer = setTimeout(() => {
        if (name !== shown) return;
        trigger("settled", {case: name ?? ""});
        if (!view.query.run || !element.offsetParent) return;
        const {only, ...query} = view.query;
        const full = {tab: "judgments", ...query, only: only.join(), item: name ?? ""};
        const changed = Object.entries(full).filter(([key, value]) => value && !(key === "order" && value === "items"));
        window.rewardlabHistory?.go(new URLSearchParams(changed));
    }, SETTLED);
};
const star = () => {
    const on = shown !== null && view.marked.includes(shown);
    const button = byId("case-mark");
    button.textContent = on ? "★ Bookmarked" : "☆ Bookmark";
    button.setAttribute("aria-pressed", on);
};
const mark = () => {
    if (shown === null) return;
    view.marked = view.marked.includes(shown) ? view.marked.filter(name => name !== shown) : [...view.marked, shown];
    trigger("marked", {run: view.query.run, cases: view.marked});
    star();
    draw();
};

// ---- annotation: a draft stays with its case ----

const draftKey = () => JSON.stringify([view.query.run, shown]);
const drafts = () => stored("drafts") ?? {};
const draft = text => {
    const {[draftKey()]: _, ...others} = drafts();
    stored("drafts", text ? {...others, [draftKey()]: text} : others);
};
const annotation = found => {
    byId("annotation-question").textContent = found.question;
    byId("annotation-choices").replaceChildren(...[...found.choices, ["", "Skip", "s"]].map(([value, label, key]) => {
        const button = Object.assign(document.createElement("button"), {type: "button", textContent: label});
        Object.assign(button.dataset, {verdict: value, key});
        button.append(Object.assign(document.createElement("kbd"), {textContent: key}));
        return button;
    }));
    byId("annotation-note").value = drafts()[draftKey()] ?? "";
    byId("annotation-said").innerHTML = found.said;
    byId("annotation-progress").textContent = found.progress;
    byId("annotation-error").textContent = "";
};
const judge = async verdict => {
    if (shown === null) return;
    if (verdict === "") return select(wanted + 1);
    const reader = byId("annotation-reader"), name = shown, at = wanted;
    if (!reader.value.trim()) {
        byId("annotation-error").textContent = "Fill in your name: it is stored with each annotation.";
        return reader.focus();
    }
    const note = byId("annotation-note").value, key = draftKey();
    const stale = () => shown !== name;
    if (at + 1 < view.total) select(at + 1);
    const found = await answer(server.annotate(request({case: name, verdict, note})));
    found.error ? unstored.set(name, found.error) : unstored.delete(name);
    byId("annotation-unstored").textContent =
        [...unstored].map(([name, error]) => `The annotation of ${name} is not stored. ${error}`).join("\n");
    if (found.error) return stale() && select(at);
    const {[key]: kept, ...others} = drafts();
    if ((kept ?? "") === note) stored("drafts", others);  // the reader may have begun another note
    byId("annotation-progress").textContent = found.progress;
    if (!stale()) annotation(found);
    outdated = true;  // what is on its way was asked for before it was stored
};

// ---- what readers do ----

const toggles = {"case-raw": "raw", "case-diff": "diff", "annotation-blind": "blind"};
const pressed = () => {
    for (const [id, name] of Object.entries(toggles)) byId(id).setAttribute("aria-pressed", options[name]);
    byId("judged").toggleAttribute("data-blind", options.blind);
};
const toggle = name => {
    options[name] = !options[name];
    if (name !== "diff") stored(name, options[name]);
    pressed();
    if (name === "blind") return restart({case: shown});
    load({position: wanted});
};
const copy = () => window.rewardlabCopy?.(byId("case-link"), location.href);
const help = () => byId("keys-help").toggleAttribute("hidden");
const actions = {
    "case-before": () => select(wanted - 1), "case-after": () => select(wanted + 1), "case-mark": mark,
    "case-link": copy, "case-help": help, "case-back": () => byId("judged").removeAttribute("data-open"),
    "case-raw": () => toggle("raw"), "case-diff": () => toggle("diff"), "annotation-blind": () => toggle("blind"),
};
const keys = {
    j: "case-after", ArrowRight: "case-after", k: "case-before", ArrowLeft: "case-before", m: "case-mark",
    d: "case-diff", r: "case-raw", "?": "case-help", Escape: "case-back",
};
const onKey = event => {
    if (!element.offsetParent && !byId("judged")?.hasAttribute("data-open")) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typed = "textarea, select, [contenteditable=true], input:not([type=radio], [type=checkbox])";
    const moved = "input, [role=tab], [role=tablist], [role=listbox]:not(#cases)";  // by arrow keys
    if (event.target.closest(event.key.length > 1 ? `${typed}, ${moved}` : typed)) return;
    const step = event.target.closest("#cases") && {ArrowDown: 1, ArrowUp: -1, Home: -1e9, End: 1e9}[event.key];
    const choice = [...byId("annotation-choices").children].find(button => button.dataset.key === event.key);
    if (step) select(wanted + step);
    else if (choice && !byId("annotation").hidden) judge(choice.dataset.verdict);
    else if (actions[keys[event.key]]) actions[keys[event.key]]();
    else return;
    event.preventDefault();
};
const onClick = event => {
    const row = event.target.closest("#cases .row");
    if (row) {
        byId("judged").setAttribute("data-open", "");
        return select(Number(row.dataset.at));
    }
    const unfold = event.target.closest("#case .unfold");
    if (unfold) {
        unfold.previousElementSibling.classList.remove("folded");
        return unfold.remove();
    }
    const choice = event.target.closest("#annotation-choices button");
    if (choice) return judge(choice.dataset.verdict);
    const button = event.target.closest("#case-pane button");
    if (button && actions[button.id]) actions[button.id]();
};
const onInput = event => {
    if (event.target.id === "annotation-note") draft(event.target.value);
    if (event.target.id === "annotation-reader") stored("reader", event.target.value);
};
const restart = (which, found) => {
    version += 1;
    rows = new Map();
    names = new Map();
    if (found) keep(found);
    list().scrollTop = 0;
    list().firstElementChild.replaceChildren();
    pressed();
    draw();
    if (view.total || options.blind) load(which);
    else tell(NONE);
};
const grow = value => {  // a run that is being written: the reader stays at the position
    if (value.total === view.total) return;
    view = {...view, total: value.total, counts: value.counts};
    count();
    version += 1;
    rows = new Map();
    names = new Map();
    list().firstElementChild.replaceChildren();
    draw();
};
const open = (value, found) => {
    if (!value?.query || !byId("annotation")) return;
    const error = value.error ?? value.refused;
    if (value.again && !same(value.query, latest, FIELDS)) return;  // the filter was changed meanwhile
    if (!found) latest = value.query;
    if (!found && shown !== null && !error && same(value.query, view.query, FIELDS)) return grow(value);
    view = {...value, marked: value.marked ?? []};
    wanted = value.position ?? 0;
    byId("annotation-reader").value = stored("reader") ?? "";
    count();
    if (error) {
        version += 1;
        rows = new Map();
        list().firstElementChild.replaceChildren();
        draw();
        return tell(value.refused ?? "", value.error);
    }
    restart({position: wanted}, found);
    reveal();
    if (value.opened) byId("judged").setAttribute("data-open", "");
};
window.rewardlabCases?.stop();
const watched = [["keydown", onKey], ["click", onClick], ["input", onInput]];
watched.forEach(([name, act]) => document.addEventListener(name, act));
element.addEventListener("scroll", draw, true);
const resized = new ResizeObserver(draw);
resized.observe(list());
window.rewardlabCases = {
    filter,
    stop: () => {
        watched.forEach(([name, act]) => document.removeEventListener(name, act));
        resized.disconnect();
    },
    goTo: name => {  // Back and Forward of the browser
        clearTimeout(timer);
        const at = [...names].find(([, known]) => known === name)?.[0];
        at === undefined ? load({case: name}) : select(at);
    },
};
watch("value", () => open(props.value));
const begin = () => byId("case-bar") && byId("annotation") && list() ? open(props.value) : requestAnimationFrame(begin);
begin();
