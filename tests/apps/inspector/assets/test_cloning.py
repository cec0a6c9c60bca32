from rewardlab.apps.inspector.assets import CLONING

ASKED = """() => {
    const refused = value => {try {structuredClone(value)} catch (error) {return error.name}};
    const buffer = new ArrayBuffer(8), inner = [1, "b"], object = {inner}, copied = structuredClone(object);
    return {
        same: [1, "a", null, undefined, true, 10n].map(value => structuredClone(value) === value),
        copied: copied !== object && copied.inner !== inner && JSON.stringify(copied) === JSON.stringify(object),
        moved: [structuredClone(buffer, {transfer: [buffer]}).byteLength, buffer.byteLength],
        refused: [() => 1, Symbol("a"), {inner: () => 1}].map(refused),
        native: String(structuredClone).includes("native code"),
    };
}"""


def test_a_copy_is_what_the_browser_would_make(browser):
    page = browser.new_page()
    before = page.evaluate(ASKED)
    page.set_content(f"<html><head>{CLONING}</head></html>")
    after = page.evaluate(ASKED)
    page.close()
    assert before.pop("native") and not after.pop("native")
    expected = {"same": [True] * 6, "copied": True, "moved": [8, 0], "refused": ["DataCloneError"] * 3}
    assert before == after == expected
