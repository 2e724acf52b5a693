"""Valid JSON that no file of a run holds."""

_OTHER_TYPES = '{"status": 3, "rows": [], "runs": {}, "state": [], "params": []}'

OTHER_JSON = ("[]", "{}", "3", "null", '"text"', "[[]]", _OTHER_TYPES)
