// Below the case of cases.js: what a judge wrote, its rubric, a model's reasons for the margin, and similar cases.
const why = async (name, more) => {  // an answer is shown for its case alone; a failed request can be repeated
    const {run, scorer} = view.query, asked = JSON.stringify([run, scorer, shown]), section = byId("why-section");
    section.classList.add("pending");
    const found = await ask(server[name]({query: {run, scorer}, case: shown, ...more}));
    if (asked !== JSON.stringify([view.query.run, view.query.scorer, shown])) return;
    section.classList.remove("pending");
    rewardlab.tell(section, found.error, () => why(name, more));
    for (const [id, value] of Object.entries(found.parts ?? {})) rewardlab.fill(byId(id), value);
    rewardlab.draw();
};
const explainCase = () => {
    rewardlab.tell(byId("why-section"));
    section().forEach(part => rewardlab.fill(part, ""));
    if (shown !== null) why("grounds");
};
const section = () => [...byId("why-section").querySelectorAll(":scope > .part")];
const valueOf = name => byId("why-section").querySelector(`[name=${name}]`)?.value ?? "";
const below = {
    explain: () => why("explain", {model: valueOf("model"), objective: valueOf("objective")}),
    "similar-find": () => why("similar"),
    rescore: () => why("rescore", {text: byId("rubric").value, score: valueOf("score")}),
};
