"""Tables of an evaluation: what is written is what is read."""

import json

from rewardlab.apps.runs.tables import conversations, messages_json
from rewardlab.judges.types import Case
from rewardlab.rm.types import Completion, user_turn


def test_a_stored_response_whose_text_is_json_messages_stays_text():
    reply = Completion(({"role": "assistant", "content": "No.", "reasoning_content": "It rains."},))
    answers = (json.dumps([{"role": "assistant", "content": "No."}]), reply)
    case = Case("a", user_turn("Hot?"), answers, (0,))
    assert conversations(messages_json(case), answers) == (case.prompt, answers)
