// A faster `structuredClone`: Gradio copies every property of every component, one by one, at each event.
// Numbers, strings and the like are returned, functions are refused, and all others the browser copies itself.
{
    const clone = window.structuredClone, refused = new DOMException("A function has no copy.", "DataCloneError");
    window.structuredClone = (value, options) => {
        if (typeof value === "function") throw refused;
        return Object(value) === value || typeof value === "symbol" ? clone(value, options) : value;
    };
}
