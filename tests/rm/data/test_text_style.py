from rewardlab.rm.data.text_style import markdown_marks


def test_markdown_marks_by_hand():
    for text, marks in [
        ("plain, 2 * 3 - 1 and # no header", 0),
        ("# a\n### b\n#no space", 2),
        ("- a\n  * b\n+ c\n1. d\n12) e\n-no space", 5),
        ("**a** and **b c**, not ** alone", 2),
        ("- **a**", 2),
        ("```python\n# comment\n- x\n```\nthen\n```\nleft open\n# y", 2),
    ]:
        assert markdown_marks(text) == marks
