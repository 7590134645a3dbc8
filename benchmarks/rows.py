"""The rows that benchmarks print, a line of JSON each."""
import json


def report(name, value, peer, peer_value, note, unit="us"):
    """`peer` None: there is none."""
    print(
        json.dumps(
            {
                "name": name,
                "value": round(value, 4),
                "unit": unit,
                "peer": peer,
                "peer_value": peer and round(peer_value, 4),
                "ratio": peer and round(value / peer_value, 5),
                "note": note,
            }
        ),
        flush=True,
    )
