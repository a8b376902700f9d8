"""The form of manifests for Kubernetes, by the definitions of their kinds."""

import json
import re
from pathlib import Path

KINDS = json.loads((Path(__file__).parent / "examples" / "manifest_schemas.json").read_text())
"""Of the definitions of custom resources what the manifests use, and what they must have."""
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def mistakes(schema: dict, value: object, path: str = "") -> list[str]:
    """Return where a value differs from a schema as Kubernetes writes them; unknown keys are mistakes."""
    if "anyOf" in schema:  # a number or text
        return (
            [] if isinstance(value, int) or re.search(schema["pattern"], value) else [f"{path}: {value} is no amount"]
        )
    if not isinstance(value, TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] == "integer"):
        return [f"{path}: not of type {schema['type']}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value} is none of {schema['enum']}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{path}: {value} is too small")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{path}: {value} is not like {schema['pattern']}")
    if isinstance(value, str | list):
        kind = "Length" if isinstance(value, str) else "Items"
        if not schema.get(f"min{kind}", 0) <= len(value) <= schema.get(f"max{kind}", 1 << 30):
            found.append(f"{path}: has {len(value)}")
    if isinstance(value, list):
        return found + [
            one for number, item in enumerate(value) for one in mistakes(schema["items"], item, f"{path}[{number}]")
        ]
    if isinstance(value, dict):
        other = schema.get("additionalProperties")
        known = schema.get("properties") or (dict.fromkeys(value, other) if other else {})
        found += [f"{path}.{key}: missing" for key in schema.get("required", []) if key not in value]
        found += [f"{path}.{key}: unknown" for key in value if key not in known]
        found += [one for key in value if key in known for one in mistakes(known[key], value[key], f"{path}.{key}")]
    return found
