"""CSS and scripts of the page, and a content security policy that forbids loading from other sites."""

import gradio as gr

from .assets import asset, script, stylesheet
from .texts import rendering, tokens

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
CSS = asset("page.css")
SHEETS = ("content.css", "areas.css", "board.css", "cases.css", "criteria.css")
SCRIPTS = ("store.js", "board.js", "copying.js", "lists.js")
HEAD = "".join([POLICY, *map(stylesheet, SHEETS), tokens.STYLE, rendering.style(), *map(script, SCRIPTS)])
"""HTML of the page's head. Gradio would change the selectors of these styles."""
