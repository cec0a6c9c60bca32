"""No lost answers, and no event that overtakes another one.

Gradio's page asks for an event (`/queue/join`) and reads all answers from one stream (`/queue/data`), which the server
ends when no event is left. An event that is asked for at that moment gets a stream of its own, unless the page learns
that the event was accepted before it reads that the stream has ended: then it waits for ever. Two events that follow
each other closely are asked for at once, and the later one may arrive first: the page then ends with the answer to the
earlier one.
"""

HEAD = """<script>{
    const ask = window.fetch, told = new Set(), held = new Map();  // ids in the stream; id -> lets its event begin
    let current = null;
    const ended = request => {
        if (current !== request) return;
        current = null;
        held.forEach(begin => begin());
        held.clear();
    };
    const stream = async request => {
        current = request;
        request.signal.addEventListener("abort", () => ended(request));  // the page has read the end
        const response = await ask(request).catch(error => {ended(request); throw error});
        const decoder = new TextDecoder();
        let text = "";
        const watched = new TransformStream({transform: (chunk, out) => {
            out.enqueue(chunk);
            text += decoder.decode(chunk, {stream: true});
            for (const [, id] of text.matchAll(/"event_id":"(\\w+)"/g)) {
                told.add(id);
                held.get(id)?.();
                held.delete(id);
            }
            text = text.slice(-100);
        }});
        response.body.pipeTo(watched.writable).catch(() => {}).then(() => ended(request));
        return new Response(watched.readable, response);
    };
    let sent = Promise.resolve();
    const join = async (...call) => {
        const accepted = sent.then(() => ask(...call));
        sent = accepted.catch(() => {});
        const response = await accepted, {event_id: id} = await response.clone().json().catch(() => ({}));
        if (id && current && !told.has(id)) await new Promise(begin => held.set(id, begin));
        return response;
    };
    window.fetch = (...call) => {
        const {pathname} = new URL(call[0].url ?? call[0], location);
        if (pathname.endsWith("/queue/join")) return join(...call);
        return pathname.endsWith("/queue/data") && call[0] instanceof Request ? stream(call[0]) : ask(...call);
    };
}</script>"""
"""HTML: an event is asked for once the one before it was accepted.

It begins when the stream has a message about it, or when the page has read the stream's end.
"""
