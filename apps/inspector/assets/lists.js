document.addEventListener("keydown", event => {
    if (event.key === "Tab" && event.target.matches?.("[role=listbox], [role=combobox]")) event.stopPropagation();
}, true);
