"""What comes after the head of a request: read with a limit and a clock, then understood as JSON.

    pieces ──counted as they come──▶ bytes ──brackets counted, strings passed over──▶ json.loads ──▶ an object

Always true: no more than the limit is held, whatever Content-Length says; nothing that is nested too deeply reaches the
parser, which would call itself for each level; compressed bodies are not unpacked, but refused.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import accumulate
from typing import Any, Never

from starlette.requests import ClientDisconnect, Request

from warren.management.refusals import HttpRefusal, bad_request
from warren.management.settings import ManagementSettings

_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*+"?', re.DOTALL)  # also one that does not end: no byte is looked at twice
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _STEPS)


def has_body(request: Request) -> bool:
    headers = request.headers
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def read_body(request: Request, settings: ManagementSettings) -> bytes:
    if not has_body(request):
        return b""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise HttpRefusal(415, "unsupported_encoding", "Compressed bodies are not read")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and (len(told) > 18 or int(told) > settings.body_bytes_max):
        raise _too_long(settings)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > settings.body_bytes_max:
                    raise _too_long(settings)
    except TimeoutError as error:
        raise HttpRefusal(408, "request_timeout", "The body did not come in time") from error
    except ClientDisconnect as error:
        raise bad_request("The body did not come to its end") from error
    return bytes(body)


def json_object(body: bytes, depth_max: int) -> dict[str, Any]:
    """Empty, if there is no body."""
    if not body:
        return {}
    if depth_of(body) > depth_max:
        raise bad_request(f"JSON is nested deeper than {depth_max}")
    try:
        told = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request("not_json") from error
    if not isinstance(told, dict):
        raise bad_request("not_json")
    return told


def depth_of(body: bytes) -> int:
    """How many brackets are open at most."""
    brackets = _STRING.sub(b"", body).translate(None, delete=_NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON")


def _too_long(settings: ManagementSettings) -> HttpRefusal:
    return HttpRefusal(413, "payload_too_large", f"A body has at most {settings.body_bytes_max} bytes")
