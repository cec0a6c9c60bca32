// The first event is on its way for longer than the next one.
{
    const ask = window.fetch;
    let first = true;
    window.fetch = async (...call) => {
        const late = first && String(call[0].url ?? call[0]).includes("/queue/join");
        if (late) first = false;
        if (late) await new Promise(go => setTimeout(go, 300));
        return ask(...call);
    };
}
