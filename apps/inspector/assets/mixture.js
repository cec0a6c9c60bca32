(...raw) => {
    const names = NAMES, sum = raw.reduce((all, value) => all + (value ?? 0), 0);
    const share = index => (sum ? (raw[index] ?? 0) / sum : 1 / names.length).toFixed(2);
    const shares = names.map((name, index) => `${name} ${share(index)}`);
    document.getElementById("mixture").textContent = "Preference: " + shares.join(" · ");
}
