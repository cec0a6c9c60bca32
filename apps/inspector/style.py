"""How the pages look, and what a page may load: nothing from elsewhere."""

import gradio as gr

SOURCES = (  # a run holds what strangers and models wrote: nothing of it may load or send anything
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "media-src 'self' data: blob:; object-src 'none'; form-action 'self'"
)
POLICY = f'<meta http-equiv="Content-Security-Policy" content="{SOURCES}">'
FONT = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700))  # Gradio 6.31 ships no whole semi-bold
THEME = gr.themes.Default(primary_hue="blue", font=[FONT, "system-ui", "sans-serif"])
CSS = """
.bar {align-items: center}
.bar input:checked {background-color: var(--color-accent) !important}  /* Gradio 6.31 hides a dot that has the focus */
:is(#report, #run-report, #study) :is(th, td) {border-color: var(--border-color-primary); padding: 4px 12px}
#place, #rollout-place, #flip-place {text-align: center}
:is(#items, #rollouts) {--font-mono: var(--font); font-variant-numeric: tabular-nums}
:is(#items, #rollouts) thead {pointer-events: none}  /* sorting one page of many would mislead */
:is(#items, #rollouts) .cell-menu-button, :is(#items, #rollouts) .selection-button {display: none}
:is(#items, #rollouts) .body-cell {--ring-color: transparent; cursor: pointer}
:is(#items, #rollouts) .cell-wrap {min-height: 0; padding-block: 2px}
:is(#items, #rollouts) .body-cell.cell-solo .cell-wrap > span {position: static; padding: 0; background: none;
    box-shadow: none; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; min-height: 0}
:is(#items, #rollouts) .body-cell.cell-solo, :is(#items, #rollouts) .body-cell.cell-solo .cell-wrap {overflow: hidden}
:is(#rollout-place, #flip-place) {min-width: 120px}
:is(#report, #run-report, #study) table {display: block; width: fit-content; max-width: 100%; overflow-x: auto;
    border: 0; padding: 0}
#study img {max-width: 100%; background: white}
.dark .js-plotly-plot .main-svg > g:not(.hoverlayer) text {fill: #d1d5db !important}
.walk > * {flex: 0 0 auto !important; width: auto !important}
.walk #place {flex: 1 1 auto !important; min-width: 9em !important}
#said:not(:has(.rl)) {display: none}
@media (max-width: 700px) {
    .walk #place {order: -1; flex-basis: 100% !important}
    :is(#items, #rollouts) .table-container {overflow-x: auto}
    :is(#items, #rollouts) .table-wrap {min-width: 760px}
}
"""
KEYS = """() => {
    if (window.rewardlabKeys) return;
    window.rewardlabKeys = true;
    const buttons = {j: "item-after", ArrowRight: "item-after", k: "item-before", ArrowLeft: "item-before", m: "mark"};
    document.addEventListener("keydown", event => {
        const button = document.getElementById(buttons[event.key]);
        if (!button || !button.offsetParent || event.ctrlKey || event.metaKey || event.altKey) return;
        const typed = "textarea, select, [contenteditable=true], input:not([type=radio], [type=checkbox])";
        const moved = "input, [role=tab], [role=tablist], #items";  // by arrow keys
        if (event.target.closest(event.key.length > 1 ? typed + ", " + moved : typed)) return;
        event.preventDefault();
        button.click();
    });
}"""
"""JavaScript: keys walk over the items of the tab of judgments and mark one, except where a reader types or moves."""
