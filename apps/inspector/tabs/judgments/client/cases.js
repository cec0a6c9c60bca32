// The list of cases and the case beside it. Gradio calls this with `element` (the tab) and `server` (functions of
// case_server.py); the store calls `show` with an address. `view.py` puts annotation.js and why.js before it.
const ROW = 46, CHUNK = 60, SETTLED = 250, {ask, stored} = window.rewardlab;
const NONE = "No case passes: choose another outcome or widen the filter.";
const byId = id => document.getElementById(id);
let view = {query: {}, key: null, total: 0}, version = 0;
let rows = new Map(), names = new Map(), fetching = false;
let wanted = 0, shown = null, loading = false, next = null, timer = null, explained = "";
const options = {raw: stored("raw") ?? false, diff: false, blind: stored("blind") ?? false};
const list = () => element.querySelector("#cases");
const finished = run => (run ?? "").replaceAll(/\.partial(?=\/|$)/g, "");  // what a run is called once it is finished
const marked = (run = view.query.run) => stored("marks")?.[finished(run)] ?? [];
const request = more => ({query: view.query, marked: marked(), reader: byId("annotation-reader").value, ...options, ...more});

// ---- the list: only the rows in sight are in the page ----

const draw = () => {
    const box = list(), stars = marked();
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
        row.classList.toggle("marked", stars.includes(names.get(at)));
        row.setAttribute("aria-selected", at === wanted);
        if (!rows.has(at)) missing ??= at;
    }
    if (view.total) box.setAttribute("aria-activedescendant", `case-row-${wanted}`);
    byId("case-place").textContent = view.total ? `${(wanted + 1).toLocaleString("en")} of ${view.total.toLocaleString("en")}` : "";
    if (missing !== null && !fetching) fetchRows(Math.floor(missing / CHUNK) * CHUNK);
};
const fetchRows = async start => {
    fetching = true;
    const asked = version, found = await ask(server.rows(request({start, size: CHUNK})));
    fetching = false;
    if (asked === version && !found.error) keep(found);
    if (asked !== version || !found.error) draw();
    else rewardlab.tell(element, found.error, () => {rewardlab.tell(element); draw()});
};
const keep = found => {
    found.rows.forEach((html, index) => rows.set(found.start + index, html));
    found.cases.forEach((name, index) => names.set(found.start + index, name));
    view.total = found.total;
};
const forget = () => {
    version += 1;
    rows = new Map();
    names = new Map();
    list().firstElementChild.replaceChildren();
};
const reveal = () => {
    const box = list(), top = wanted * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
};

// ---- the address: one is asked for at a time, the last one counts, and its answer is taken for no other ----

const valuesOf = ({order, ...query}) => ({...query, order: order === "items" ? "" : order});
const keyOf = query => {
    const others = [...new URLSearchParams(query)].filter(([name, value]) => value && !["tab", "item"].includes(name));
    return JSON.stringify(others.sort());
};
let latest = null, opening = false;
const show = query => {
    const item = query.get("item");
    if (keyOf(query) !== view.key) return open(query);
    if (opening) latest = query;
    if (item && item !== shown) goTo(item);
    else settle(shown);  // the reader may have left before the address named the case
};
const open = async (query, polled = false) => {
    latest = query;
    if (opening) return;
    opening = true;
    const start = wanted;
    let asked, found;
    do {
        asked = latest;
        const known = view.key === null ? "" : view.query.run, values = Object.fromEntries(asked);
        found = await ask(server.open(request({query: values, marked: marked(values.run), known, size: CHUNK})));
    } while (asked !== latest);
    opening = false;
    rewardlab.tell(element, found.error, () => open(asked));
    if (found.error) return;
    const item = asked.get("item"), {query: filled, total, counts, refused, growing} = found;
    const before = view, key = keyOf(valuesOf(filled));
    view = {query: filled, key, total, counts, refused, growing};
    const focus = document.activeElement.closest("#judgments-toolbar") && document.activeElement.name;
    if (found.toolbar) [byId("judgments-toolbar").innerHTML, byId("report").innerHTML] = [found.toolbar, found.report];
    else synchronise();
    if (finished(before.query.run) !== finished(filled.run)) {  // the case of the other run counts no more
        shown = null;
        byId("annotation-stored").replaceChildren();
    }
    if (found.toolbar && focus) byId("judgments-toolbar").querySelector(`[name=${focus}]`).focus();
    byId("judgments-note").textContent = found.note;
    count();
    rewardlab.settle("judgments", {...valuesOf(filled), item: item ?? ""});
    const same = polled && asked === query && shown !== null && before.key !== null;
    if (same && !refused) return grow(found, before.total, found.position - start);
    wanted = found.position;
    byId("annotation-reader").value = stored("reader") ?? found.reader;
    if (refused) {
        forget();
        draw();
        return tell("", refused);
    }
    restart({position: wanted}, found);
    reveal();
    if (item) byId("judged").setAttribute("data-open", "");
};
const grow = (found, before, shift) => {  // a run that is being written: the reader stays at the case, or goes on
    wanted = Math.max(0, wanted + shift);
    if (found.total === before && !found.toolbar) return;
    forget();
    keep(found);
    draw();
};
const synchronise = () => {  // of links, and of Back
    for (const field of byId("judgments-toolbar").querySelectorAll("[name]")) {
        const value = view.query[field.name] ?? "";
        if (field.type === "radio") field.checked = field.value === value;
        else if (field.type === "checkbox") field.checked = value.split(",").includes(field.value);
        else if (field !== document.activeElement) field.value = value;
    }
};
const count = () => document.querySelectorAll("#outcome label").forEach(label => {
    const number = view.counts?.[label.querySelector("input").value];
    if (number === undefined) delete label.dataset.count;
    else label.dataset.count = `(${number.toLocaleString("en")})`;
});
const onControl = ({target}) => {
    if (!target.name || !target.closest("#judgments-toolbar")) return;
    if (target.name === "run") return rewardlab.go({tab: "judgments", run: target.value});
    const form = new FormData(byId("judgments-toolbar"));
    rewardlab.go({tab: "judgments", ...valuesOf({...Object.fromEntries(form), only: form.getAll("only").join()})});
};

// ---- the case: each step counts at once, the case of the last one is shown ----

const select = position => {
    if (!view.total) return;
    wanted = Math.max(0, Math.min(position, view.total - 1));
    reveal();
    draw();
    load({position: wanted});
};
const goTo = name => {
    clearTimeout(timer);
    const at = [...names].find(([, known]) => known === name)?.[0];
    at === undefined ? load({case: name}) : select(at);
};
const load = async which => {
    if (loading) return next = which;
    [loading, next] = [true, null];
    byId("case").classList.add("refreshing");
    const asked = version, at = wanted, found = await ask(server.case(request(which)));
    loading = false;
    if (next || asked !== version || at !== wanted) return load(next ?? {position: wanted});  // the reader went on meanwhile
    if (found.error) return tell(found.error, "", () => load(which));
    if (found.case === null) return tell(NONE);
    if (wanted !== found.position) {wanted = found.position; reveal(); draw()}
    present(found);
};
const tell = (text, html = "", again = null) => {  // a sentence, or the server's card with commands
    shown = null;
    byId("case").classList.remove("refreshing");
    const note = Object.assign(document.createElement("p"), {className: "note", textContent: text});
    if (html) byId("case").innerHTML = html;
    else byId("case").replaceChildren(note);
    const button = {type: "button", className: "unfold", textContent: "Try again", onclick: again};
    if (again) byId("case").append(Object.assign(document.createElement("button"), button));
    byId("annotation").hidden = true;
    byId("case-bar").hidden = true;
    settle(null);
};
const present = found => {
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
        const {run, scorer} = view.query, now = JSON.stringify([run, scorer, name]);
        if (now !== explained) explainCase();
        explained = now;
        const before = rewardlab.state().get("item");
        const how = before && before !== name ? "push" : "replace";
        if (run && element.offsetParent && !opening) rewardlab.settle("judgments", {...valuesOf(view.query), item: name ?? ""}, how);
    }, SETTLED);
};
const star = () => {
    const on = shown !== null && marked().includes(shown);
    const button = byId("case-mark");
    button.textContent = on ? "★ Bookmarked" : "☆ Bookmark";
    button.setAttribute("aria-pressed", on);
};
const mark = () => {
    if (shown === null) return;
    const before = marked(), cases = before.includes(shown) ? before.filter(name => name !== shown) : [...before, shown];
    stored("marks", {...stored("marks"), [finished(view.query.run)]: cases});
    star();
    draw();
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
    if (name !== "blind") return load({position: wanted});
    view.key = null;
    open(new URLSearchParams({...valuesOf(view.query), item: shown ?? ""}));
};
const actions = {
    "case-before": () => select(wanted - 1), "case-after": () => select(wanted + 1), "case-mark": mark,
    "case-link": () => rewardlab.copy(byId("case-link"), location.href),
    "case-help": () => byId("keys-help").toggleAttribute("hidden"),
    "case-back": () => byId("judged").removeAttribute("data-open"),
    "case-raw": () => toggle("raw"), "case-diff": () => toggle("diff"), "annotation-blind": () => toggle("blind"),
    "annotation-take": () => byId("annotation-file").click(), "annotation-give": give, ...below,
};
const keys = {
    j: "case-after", ArrowRight: "case-after", k: "case-before", ArrowLeft: "case-before", m: "case-mark",
    d: "case-diff", r: "case-raw", "?": "case-help", Escape: "case-back",
};
const onKey = event => {
    if (!element.offsetParent && !byId("judged")?.hasAttribute("data-open")) return;
    if (rewardlab.tab() !== "judgments" || event.ctrlKey || event.metaKey || event.altKey) return;
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
    const unfold = event.target.closest("#case .folded + .unfold");
    if (unfold) {
        unfold.previousElementSibling.classList.remove("folded");
        return unfold.remove();
    }
    if (event.target.closest("#more-button")) return byId("more-filters").classList.toggle("folded-away");
    const choice = event.target.closest("#annotation-choices button");
    if (choice) return judge(choice.dataset.verdict);
    const button = event.target.closest("#case-pane button");
    if (button && actions[button.id]) actions[button.id]();
};
const onInput = event => {
    if (event.target.id === "annotation-note") draft(event.target.value);
    if (event.target.id === "annotation-reader") stored("reader", event.target.value);
    onControl(event);
};
const onChange = event => {
    if (event.target.id === "annotation-file") take();
    if (event.target.matches("#why-section [name=objective]")) below.explain();
};
const restart = (which, found) => {
    forget();
    if (found) keep(found);
    list().scrollTop = 0;
    pressed();
    draw();
    if (view.total || options.blind) load(which);
    else tell(NONE);
};
window.rewardlabCases?.();
const watched = [["keydown", onKey], ["click", onClick], ["input", onInput], ["change", onChange]];
watched.forEach(([name, act]) => document.addEventListener(name, act));
element.addEventListener("scroll", draw, true);
const resized = new ResizeObserver(draw);
resized.observe(list());
window.rewardlabCases = () => {
    watched.forEach(([name, act]) => document.removeEventListener(name, act));
    resized.disconnect();
};
const poll = () => {
    if (outbox().length) sendAll();
    if (!view.growing || loading || opening) return;
    open(new URLSearchParams({tab: "judgments", ...valuesOf(view.query), item: shown ?? ""}), true);
};
byId("judgments-toolbar").onsubmit = event => event.preventDefault();
unstored();
sendAll();
rewardlab.selection = () => JSON.stringify({query: view.query, marked: marked()});
rewardlab.pane("judgments", element, server, {show, poll});
