"""How the pages look, and what a page may load: nothing from elsewhere."""

import gradio as gr

SOURCES = (  # a run holds what strangers and models wrote: nothing of it may load or send anything
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "media-src 'self' data: blob:; object-src 'none'; form-action 'self'"
)
POLICY = f'<meta http-equiv="Content-Security-Policy" content="{SOURCES}">'
FONT = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700))  # Gradio 6.31 ships no whole semi-bold
THEME = gr.themes.Default(primary_hue="blue", font=[FONT, "system-ui", "sans-serif"]).set(
    button_border_width="1px",
    button_primary_background_fill="*primary_600",  # white on 500 has a contrast of 3.7 only
    button_primary_background_fill_hover="*primary_700",
    button_secondary_background_fill="*background_fill_primary",
    button_secondary_background_fill_dark="*background_fill_primary",
    button_secondary_border_color="*border_color_primary",
    button_secondary_border_color_dark="*border_color_primary",
    button_small_padding="5px 12px",
    button_small_text_size="13px",
)
CSS = """
.html-container {padding: 0 !important}
.block:has(> .html-container > div:empty) {display: none}
.block.padded:not(.gr-accordion) {padding: 0 !important; overflow: visible !important}
input[type=range]::-webkit-slider-thumb {box-shadow: 0 0 0 1px var(--body-text-color-subdued) !important}
.block:is(.padded:not(.gr-accordion), :has(> .js-plotly-plot)) {border-width: 0 !important; box-shadow: none !important;
    background: none !important}
.form {border: 0 !important; background: none !important; box-shadow: none !important; gap: 8px 16px !important;
    border-radius: 0 !important; overflow: visible !important}
.pending {opacity: .5}
.wrap.minimal :is(.progress-text, .meta-text, .meta-text-center, .eta-bar) {display: none}
.bar button {flex: none}
.bar {align-items: end}
.bar input:checked {background-color: var(--color-accent) !important}  /* Gradio 6.31 hides a dot that has the focus */
:is(#report, #run-report, #study) :is(th, td) {border-color: var(--border-color-primary); padding: 4px 12px;
    overflow-wrap: normal; word-break: normal}
:is(input, textarea)::placeholder {color: var(--body-text-color-subdued) !important; opacity: 1}
.slider_input_container span {color: var(--body-text-color) !important}  /* Gradio 6.31: contrast of 1.9 */
:is(a, button, input, textarea, select, summary, [tabindex]):focus-visible {
    outline: 2px solid var(--color-accent) !important; outline-offset: 1px}
#rollout-place, #flip-place {text-align: right; flex: 1; font-variant-numeric: tabular-nums}
#rollouts .body-cell:not([data-col="0"], [data-col="1"]) {text-align: right}
#rollouts thead th:nth-child(n + 3) .cell-wrap {justify-content: flex-end}
#rollouts {--font-mono: var(--font); font-variant-numeric: tabular-nums}
#rollouts thead {pointer-events: none}  /* sorting one page of many would mislead */
#rollouts .cell-menu-button, #rollouts .selection-button {display: none}
#rollouts .body-cell {--ring-color: transparent; cursor: pointer}
#rollouts .cell-wrap {min-height: 0; padding-block: 2px}
#rollouts .body-cell.cell-solo .cell-wrap > span {position: static; padding: 0; background: none;
    box-shadow: none; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; min-height: 0}
#rollouts .body-cell.cell-solo, #rollouts .body-cell.cell-solo .cell-wrap {overflow: hidden}
:is(#rollout-place, #flip-place) {min-width: 120px}
:is(#report, #run-report, #study) table {display: block; width: fit-content; max-width: 100%; overflow-x: auto;
    border: 0; padding: 0}
#study img {max-width: 100%; background: white}
.dark .js-plotly-plot .main-svg > g:not(.hoverlayer) text {fill: #d1d5db !important}
@media (max-width: 700px) {
    :is(#rollout-place, #flip-place) {flex: 1 0 100%}
    .bar {gap: 6px !important} .bar button {min-width: 0 !important; padding-inline: 8px}
    #rollouts .table-container {overflow-x: auto}
    #rollouts .table-wrap {min-width: 760px}
}
"""
