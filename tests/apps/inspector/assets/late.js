// The end of a stream arrives late, and `ending` is called meanwhile.
{
    const ask = window.fetch;
    const transform = async (chunk, out) => {
        const end = new TextDecoder().decode(chunk).includes("close_stream");
        if (end) window.ending?.();
        if (end) await new Promise(go => setTimeout(go, 300));
        out.enqueue(chunk);
    };
    window.fetch = async (...call) => {
        const response = await ask(...call);
        if (!String(call[0].url ?? call[0]).includes("/queue/data")) return response;
        return new Response(response.body.pipeThrough(new TransformStream({transform})), response);
    };
}
