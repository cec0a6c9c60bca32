() => {
    if (window.rewardlabHistory) return;
    const first = "overview", kept = {};  // tab -> its last address
    const read = () => new URLSearchParams(location.search);
    const tabOf = query => query.get("tab") ?? (query.has("run") || query.has("item") ? "judgments" : first);
    const buttons = () => [...document.querySelectorAll("#tabs > .tab-wrapper [role=tab], #tabs [role=tab]")];
    const without = (query, name) => {
        const other = new URLSearchParams(query);
        other.delete(name);
        other.sort();
        return String(other);
    };
    const go = query => {
        const before = read(), tab = tabOf(query);
        kept[tab] = String(query);
        if (tab !== tabOf(before) || String(before) === kept[tab]) return;  // written too late
        const moved = ["run", "item"].some(name => before.has(name) && before.get(name) !== query.get(name));
        history[moved ? "pushState" : "replaceState"](null, "", "?" + kept[tab]);  // to fill in a name is no step
    };
    kept[tabOf(read())] = String(read());
    let arriving = false;
    document.addEventListener("click", event => {
        const tab = event.target.closest?.("#tabs [role=tab]:not(#playgrounds *)")?.dataset.tabId;
        if (!tab || arriving || tab === tabOf(read())) return;
        kept[tab] ??= String(new URLSearchParams({tab}));
        history.pushState(null, "", "?" + kept[tab]);
    });
    window.addEventListener("popstate", () => {
        const query = read(), tab = tabOf(query), last = new URLSearchParams(kept[tab] ?? {tab});
        const button = buttons().find(one => one.dataset.tabId === tab);
        if (String(query) !== String(last) && (tab !== "judgments" || without(query, "item") !== without(last, "item")))
            return location.reload();
        arriving = true;
        button?.click();
        arriving = false;
        if (String(query) === String(last)) return;
        kept[tab] = String(query);
        window.rewardlabCases?.goTo(query.get("item"));
    });
    window.rewardlabHistory = {go};
}
