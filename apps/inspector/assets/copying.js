const write = async text => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = Object.assign(document.createElement("textarea"), {value: text});  // without HTTPS, elsewhere
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
};
const copy = async (button, text) => {
    await write(text);
    const label = button.textContent;
    if (label === "Copied") return;
    button.textContent = "Copied";
    setTimeout(() => {button.textContent = label}, 1500);
};
const value = cell => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), parts = [];
    while (texts.nextNode()) if (texts.currentNode.data.trim()) parts.push(texts.currentNode.data.trim());
    const text = parts.join(" ").replace(/\s+/g, " ");
    const inert = /^[=@]|^[+-](?![\d.])/.test(text) ? `'${text}` : text;  // no formula of a spreadsheet
    return /[",]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
};
const line = row => [...row.cells].filter(cell => !cell.matches(".axis, .choice")).map(value).join(",") + "\n";
const csv = table => [...table.rows].filter(row => !row.hidden && row.cells.length > 1).map(line).join("");
document.addEventListener("click", event => {
    const button = event.target.closest?.("button.csv, button.copy");
    if (!button) return;
    if (button.matches(".csv")) copy(button, csv(button.closest(".with-csv").querySelector("table")));
    else copy(button, button.previousElementSibling.textContent);
});
window.rewardlab.copy = copy;
