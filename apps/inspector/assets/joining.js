// No lost answers, and no event or answer that overtakes another one.
//
// Gradio's page asks for an event (`/queue/join`) and reads all answers from one stream (`/queue/data`), which the
// server ends when no event is left. An event that is asked for at that moment gets a stream of its own, unless the
// page learns that the event was accepted before it reads that the stream has ended: then it waits for ever. Two events
// that follow each other closely are asked for at once, and the later one may arrive first: the page then ends with the
// answer to the earlier one. So it does when messages about the later event arrive before the page learns that it was
// accepted: it handles those at once, and messages about other events in a task of their own.
//
// Here an event is asked for once the one before it was accepted. It begins when the stream has a message about it,
// which the page reads after that, or when the page has read the stream's end.
{
    const ask = window.fetch, told = new Set(), held = new Map();  // ids in the stream; id -> lets its event begin
    let current = null, sent = Promise.resolve();
    const begin = id => {
        held.get(id)?.();
        held.delete(id);
    };
    const ended = request => {
        if (current !== request) return;
        current = null;
        [...held.keys()].forEach(begin);
    };
    const stream = async request => {
        current = request;
        request.signal.addEventListener("abort", () => ended(request));  // the page has read the end
        const response = await ask(request).catch(error => {ended(request); throw error});
        const decoder = new TextDecoder();
        let text = "", last = false;
        const watched = new TransformStream({transform: async (chunk, out) => {
            text += decoder.decode(chunk, {stream: true});
            const fresh = [...text.matchAll(/"event_id":"(\w+)"/g)].map(([, id]) => id).filter(id => !told.has(id));
            last ||= text.includes('"msg":"close_stream"');
            text = text.slice(-100);
            fresh.forEach(id => told.add(id));
            if (fresh.length) await sent;
            fresh.forEach(begin);
            if (fresh.length) await new Promise(begun => setTimeout(begun));
            out.enqueue(chunk);
        }});
        const over = () => setTimeout(() => ended(request), last ? 1000 : 0);  // the page has read the end by then
        response.body.pipeTo(watched.writable).catch(() => {}).then(over);
        return new Response(watched.readable, response);
    };
    const accepted = async (...call) => {
        const response = await ask(...call), answer = await response.clone().json().catch(() => ({}));
        if (answer.event_id) response.json = async () => answer;  // the page has it in the same task
        return [response, answer.event_id];
    };
    const join = async (...call) => {
        const asked = sent.then(() => accepted(...call));
        sent = asked.catch(() => {});
        const [response, id] = await asked;
        if (id && current && !told.has(id)) await new Promise(begin => held.set(id, begin));
        return response;
    };
    window.fetch = (...call) => {
        const {pathname} = new URL(call[0].url ?? call[0], location);
        if (pathname.endsWith("/queue/join")) return join(...call);
        return pathname.endsWith("/queue/data") && call[0] instanceof Request ? stream(call[0]) : ask(...call);
    };
}
