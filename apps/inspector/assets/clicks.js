() => {
    if (window.rewardlabClicks) return;
    window.rewardlabClicks = true;
    const open = ({points: [{data, id}]}) => {
        if (typeof data.meta !== "string" || !data.meta.startsWith("?tab=")) return;
        const link = Object.assign(document.createElement("a"), {href: data.meta + encodeURIComponent(id ?? "")});
        document.body.append(link);
        link.click();
        link.remove();
    };
    document.addEventListener("pointerover", event => {
        const figure = event.target.closest?.(".js-plotly-plot");
        if (!figure?.on || figure.rewardlabOn === figure.on) return;
        figure.rewardlabOn = figure.on;  // Plotly makes another one when it draws anew
        figure.on("plotly_click", open);
    });
}
