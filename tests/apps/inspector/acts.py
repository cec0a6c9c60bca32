"""What readers do on the page of judgments, and what they then see."""

from typing import Any


def expect_cases(page: Any, *cases: str) -> None:
    """The list becomes these cases; of a long list those in sight."""
    page.wait_for_function(
        "cases => [...document.querySelectorAll('#cases .row')].sort((a, b) => a.dataset.at - b.dataset.at)"
        ".map(row => row.dataset.case).join() == cases",
        arg=",".join(cases),
    )


def expect_place(page: Any, text: str) -> None:
    """The position that the buttons to walk with show."""
    page.locator(f"#case-place:text-is('{text}')").wait_for()


def expect_case(page: Any, name: str) -> None:
    """The case that is shown."""
    page.locator(f"#case .case-name:text-is('{name}')").wait_for()


def choose(page: Any, label: str, option: str, within: str = "") -> None:
    """An option of a list of the page, or of Gradio, by its whole text."""
    field = (page.locator(within) if within else page).get_by_label(label, exact=True).locator("visible=true").first
    field.wait_for()
    if field.evaluate("field => field.tagName") == "SELECT":
        field.select_option(label=option)
        return
    field.click()
    page.get_by_role("option", name=option, exact=True).click()


def pick(page: Any, outcome: str) -> None:
    """Choose an outcome by its name and its number of cases."""
    page.get_by_role("radio", name=outcome).check()


def settle(page: Any) -> None:
    """Wait for two frames: Gradio writes the first value of a field that has just appeared in the frame after it."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")


def mark(page: Any) -> None:
    """Press `m`, and wait until the bookmark is stored."""
    before = page.evaluate("localStorage['rewardlab-marks']")
    page.keyboard.press("m")
    page.wait_for_function("before => localStorage['rewardlab-marks'] !== before", arg=before)


def outcomes(page: Any) -> set[str]:
    """Those in the list."""
    return {mark.get_attribute("aria-label") for mark in page.locator("#cases .row-mark").all()}


def again(visit: Any, page: Any, **options: Any) -> Any:
    """A fresh browser at the address that this page has come to; to reload it would cut off what is under way.

    The address names a case only once a reader has stayed at it.
    """
    page.wait_for_function("""() => {
        const shown = document.querySelector("#case .case-name")?.textContent;
        return !shown || shown === (new URLSearchParams(location.search).get("item") ?? shown);
    }""")
    address, _, query = page.url.partition("?")
    return visit(address, f"?{query}", **options)


def click_point(page: Any, element: Any) -> None:
    """Click in the middle of a figure's element."""
    element.wait_for()
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator(".hoverlayer .hovertext").first.wait_for(state="attached")
    page.mouse.down()
    page.mouse.up()
