// Annotation of the case of cases.js: a draft stays with its case, and a verdict in the browser until the server has
// stored it.

const draftKey = () => JSON.stringify([finished(view.query.run), shown]);
const drafts = () => stored("drafts") ?? {};
const draft = text => {
    const {[draftKey()]: _, ...others} = drafts();
    stored("drafts", text ? {...others, [draftKey()]: text} : others);
};
const outbox = () => stored("outbox") ?? [];
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
    byId("annotation-guidelines").innerHTML = found.guidelines;
    progress(found);
    byId("annotation-error").textContent = "";
};
const progress = ({progress, annotated, exported, label}) => {
    byId("annotation-progress").textContent = progress;
    Object.assign(byId("annotation-give"), {textContent: label, disabled: !exported});
    view.counts = {...view.counts, annotated};
    count();
};
const judge = async verdict => {
    if (shown === null) return;
    if (verdict === "") return select(wanted + 1);
    const reader = byId("annotation-reader"), at = wanted;
    if (!reader.value.trim()) {
        byId("annotation-error").textContent = "Fill in your name: it is stored with each annotation.";
        return reader.focus();
    }
    const {run, scorer} = view.query, when = `${new Date().toISOString().slice(0, 19)}Z`, draft = draftKey();
    const choice = byId("annotation-choices").querySelector(`[data-verdict="${verdict}"]`).firstChild.textContent;
    const one = {query: {run, scorer}, case: shown, verdict, choice, note: byId("annotation-note").value, reader: reader.value, blind: options.blind, when, draft};
    stored("outbox", [...outbox().filter(other => other.draft !== draft || other.reader !== one.reader), one]);
    if (at + 1 < view.total) select(at + 1);
    const refused = await send(one);
    if (refused && shown !== one.case && view.query.run === run) select(at);
};
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const send = async ({error: _, ...one}) => {  // returns why it is not stored
    const found = await ask(server.annotate(one)), rest = outbox().filter(({error: _, ...other}) => !same(other, one));
    stored("outbox", found.error ? [...rest, {...one, error: found.error}] : rest);
    unstored();
    if (found.error) return found.error;
    const {[one.draft]: kept, ...others} = drafts();
    if ((kept ?? "") === one.note) stored("drafts", others);  // the reader may have begun another note
    if (finished(one.query.run) !== finished(view.query.run)) return;
    const link = {textContent: one.case, href: `?${new URLSearchParams({tab: "judgments", ...valuesOf(view.query), item: one.case})}`};
    byId("annotation-stored").replaceChildren(`Stored: ${one.choice} for `, Object.assign(document.createElement("a"), link));
    shown === one.case ? annotation(found) : progress(found);
    if (loading) next ??= {position: wanted};  // what is on its way was asked for before it was stored
    forgetRow(one.case);
};
const forgetRow = name => {  // its badge is another one now
    const at = [...names].find(([, known]) => known === name)?.[0];
    rows.delete(at);
    byId(`case-row-${at}`)?.remove();
    draw();
};
let sending = false;
const sendAll = async () => {
    if (sending) return;
    sending = true;
    for (const one of outbox()) await send(one);
    sending = false;
};
const unstored = () => {
    const failed = outbox().filter(one => one.error), lines = failed.map(one => `The annotation of ${one.case} is not stored. ${one.error}`);
    const button = (textContent, onclick) => Object.assign(document.createElement("button"), {type: "button", textContent, onclick});
    const discard = () => {stored("outbox", outbox().filter(one => !one.error)); unstored()};
    byId("annotation-unstored").replaceChildren(...(failed.length ? [lines.join("\n"), button("Store again", sendAll), button("Discard", discard)] : []));
};
const give = async () => {  // all annotations of the run
    const {error, name, text} = await ask(server.give_annotations(request()));
    byId("annotation-error").textContent = error ?? "";
    if (!error) Object.assign(document.createElement("a"), {download: name, href: URL.createObjectURL(new Blob([text]))}).click();
};
const take = async () => {  // annotations of a file
    const [file] = byId("annotation-file").files;
    if (!file) return;
    const found = await ask(server.add_annotations(request({name: file.name, text: await file.text()})));
    byId("annotation-file").value = "";
    byId("annotation-error").textContent = found.error ?? "";
    if (found.error) return;
    byId("annotation-stored").textContent = `Stored: ${found.added} new of ${file.name}`;
    restart({position: wanted});
};
