"""The part of OpenAI's interface that a model on the board can answer: embeddings of a model of
texts, completions and chats of a language model, at once or as a stream of events, transcriptions
of a model that transcribes speech."""

import array
import base64
import functools
import itertools
import json
import os
import sys
import time

import edgekit_runtime
import sounds

MOST_TEXTS = 2048
MOST_JSON = 1 << 20  # bytes of a request
MOST_DIGITS = 20  # of a whole number
MOST_STREAM_SECONDS = 10  # for which a stream waits for its client, which others wait for
ROOT = "/v1/"
SPEECH = "/v1/audio/transcriptions"
PATHS = ("/v1/embeddings", "/v1/completions", "/v1/chat/completions", SPEECH)
JSON, EVENTS, TEXT = "application/json", "text/event-stream", "text/plain; charset=utf-8"
TIMED = ("verbose_json", "srt", "vtt")
FORMATS = ("json", "text", *TIMED)
FINISHES = {"stop": "stop", "length": "length", "context": "length"}
# Their names, and those of Model.generate; None takes the default.
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 64, "seed": None, "stop": ()}


# What would change the answer, and is not computed here, with the values that ask for nothing.
USUAL = {
    "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "logprobs": (False,),
    "top_logprobs": (0,), "presence_penalty": (0,), "frequency_penalty": (0,), "logit_bias": ({},),
    "tools": ([],), "functions": ([],), "response_format": ({"type": "text"},),
    "modalities": (["text"],), "audio": (), "prediction": (), "dimensions": (),
}  # fmt: skip


class AskedError(Exception):
    """A request that does not fit; its text says what was expected."""


def as_base64(vector):
    """Little-endian f32, as OpenAI's own client asks for it."""
    values = array.array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode()


def verbose(parts, seconds):
    """A transcript with the times of its parts."""
    segments = [
        {"id": i, "start": part.start, "end": part.end, "text": part.text}
        for i, part in enumerate(parts)
    ]
    text = " ".join(part.text for part in parts)
    return {"task": "transcribe", "duration": seconds, "text": text, "segments": segments}


def short_integer(digits):
    """An int; ValueError if Python would convert the digits for minutes, as 3.9 does."""
    if len(digits) > MOST_DIGITS:
        raise ValueError
    return int(digits)


class Answers:
    """Answers for a handler, which has the server, its model, and the connection."""

    def __init__(self, handler):
        self.handler = handler
        self.model = handler.server.model
        self.patience = float(MOST_STREAM_SECONDS)

    def models(self):
        about = {"id": self.model.name, "object": "model", "created": 0, "owned_by": "edgekit"}
        self.send({"object": "list", "data": [about]})

    def unknown(self, path):
        """Answers a request for what is not here, whose body is not read."""
        text = f"expected one of /v1/models, {', '.join(PATHS)}, found {path[:80]}"
        self.handler.refuse(json.dumps(error_of(text)), self.handler.length(), 404, JSON)

    def post(self, path):
        body = self.handler.read_body(*() if path == SPEECH else (MOST_JSON,))
        if body is None:
            return None
        if path == SPEECH:
            return self.guarded(lambda: self.transcribe(body))
        try:
            asked = json.loads(body, parse_int=short_integer)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            return self.fail(400, "expected a JSON object, with whole numbers of at most "
                                  f"{MOST_DIGITS} digits, found others")  # fmt: skip
        if path == "/v1/embeddings":
            return self.guarded(lambda: self.embeddings(asked))
        return self.guarded(lambda: self.complete(asked, chat=path != "/v1/completions"))

    def guarded(self, work):
        """Answers errors of a request, too."""
        try:
            work()
        except (AskedError, sounds.UnheardError, edgekit_runtime.InputError) as error:
            self.fail(400, str(error))
        except edgekit_runtime.DeviceError as error:
            self.fail(500, str(error))

    def embeddings(self, asked):
        """The vector of each text."""
        check_usual(asked)
        given = asked.get("input")
        texts = given if isinstance(given, list) else [given]
        if not all(isinstance(text, str) for text in texts) or len(texts) > MOST_TEXTS:
            raise AskedError(f"expected 'input' to be at most {MOST_TEXTS} texts, found others")
        encode = as_base64 if asked.get("encoding_format") == "base64" else list
        vectors = [self.run(functools.partial(self.model.embed, text)) for text in texts]
        data = [
            {"object": "embedding", "index": i, "embedding": encode(vector)}
            for i, vector in enumerate(vectors)
        ]
        self.send({"object": "list", "model": self.model.name, "data": data})

    def transcribe(self, body):
        """The text spoken in the file of a form."""
        form = sounds.form_of(self.handler.headers.get("Content-Type", ""), body)
        wanted = form.get("response_format", b"json").decode("utf-8", "replace")
        if "file" not in form or wanted not in FORMATS:
            raise AskedError(
                f"expected a form with 'file', and 'response_format' {' or '.join(FORMATS)}"
            )
        if wanted in TIMED:
            parts, seconds = self.run(lambda: sounds.subtitled(self.model, form["file"]))
            if wanted == "verbose_json":
                return self.send(verbose(parts, seconds))
            text = (edgekit_runtime.srt if wanted == "srt" else edgekit_runtime.vtt)(parts)
            return self.handler.answer(200, text.encode(), kind=TEXT)
        line = self.run(lambda: sounds.heard(self.model, "transcribe", form["file"]))
        if wanted == "text":
            return self.handler.answer(200, f"{line.text}\n".encode(), kind=TEXT)
        return self.send({"text": line.text})

    def complete(self, asked, chat):
        """The text behind a prompt, or the answer to messages."""
        text = self.model.generate(self.prompt_of(asked, chat), **sampling_of(asked))
        kind = "chat.completion" if chat else "text_completion"
        about = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{os.urandom(12).hex()}",
            "created": int(time.time()),
            "model": self.model.name,
        }
        if asked.get("stream"):
            options = asked.get("stream_options")
            usage = isinstance(options, dict) and bool(options.get("include_usage"))
            about["object"] = f"{kind}.chunk" if chat else kind
            self.handler.connection.settimeout(self.patience)
            self.run(lambda: self.stream(text, about, chat, usage))
            return self.handler.connection.settimeout(self.handler.timeout)
        about["object"] = kind
        whole = self.run(lambda: "".join(self.watched(text)))
        content = {"message": {"role": "assistant", "content": whole}} if chat else {"text": whole}
        return self.send({**about, "choices": [choice(content, text)], "usage": usage_of(text)})

    def prompt_of(self, asked, chat):
        check_usual(asked)
        prompt = asked.get("messages" if chat else "prompt")
        if chat and isinstance(prompt, list):
            return [
                {**each, "role": "system"}
                if isinstance(each, dict) and each.get("role") == "developer"
                else each
                for each in prompt
            ]
        if not chat and isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if chat or not isinstance(prompt, str):
            raise AskedError(
                f"expected '{'messages' if chat else 'prompt'}' to be "
                f"{'a list of messages' if chat else 'a text'}, found others"
            )
        return prompt

    def stream(self, text, about, chat, usage):
        """Sends an event for each piece. A client that left, or reads slowly, ends the text."""
        handler = self.handler
        pieces = self.watched(text)
        first = next(pieces, "")  # an error before it has a status of its own
        handler.send_response(200)
        handler.send_header("Content-Type", EVENTS)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()

        def event(content, ended=False):
            made = choice({"delta": content} if chat else content, text if ended else None)
            return {**about, "choices": [made], **({"usage": None} if usage else {})}

        def said(piece):
            return {"content": piece} if chat else {"text": piece}

        try:
            if chat:
                self.send_event(event({"role": "assistant", "content": ""}))
            for piece in itertools.chain([first], pieces):
                if piece:
                    self.send_event(event(said(piece)))
            self.send_event(event({} if chat else {"text": ""}, ended=True))
            if usage:
                self.send_event({**about, "choices": [], "usage": usage_of(text)})
            self.send_data("[DONE]")
        except edgekit_runtime.DeviceError as error:
            self.send_event({"error": {"message": str(error), "type": "server_error"}})
        handler.wfile.write(b"0\r\n\r\n")

    def watched(self, text):
        """The pieces of a text, each of which shows that nothing hangs."""
        for piece in text:
            self.handler.server.inferences.heartbeats.go_on()
            yield piece

    def run(self, work):
        return self.handler.server.run(self.handler.connection, work)

    def send(self, document, code=200):
        self.handler.answer(code, json.dumps(document).encode() + b"\n", kind=JSON)

    def fail(self, code, text):
        self.send(error_of(text), code)

    def send_event(self, document):
        self.send_data(json.dumps(document))

    def send_data(self, data):
        line = f"data: {data}\n\n".encode()
        begun = time.monotonic()
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.patience = max(self.patience - (time.monotonic() - begun), 0.001)
        self.handler.connection.settimeout(self.patience)


def error_of(text):
    return {"error": {"message": text, "type": "invalid_request_error"}}


def choice(content, text):
    """`text` has ended, or is None."""
    ended = None if text is None else FINISHES[text.finish]
    return {"index": 0, **content, "logprobs": None, "finish_reason": ended}


def usage_of(text):
    return {
        "prompt_tokens": text.prompt_tokens,
        "completion_tokens": text.tokens,
        "total_tokens": text.prompt_tokens + text.tokens,
    }


def sampling_of(asked):
    """The options of Model.generate, which checks their values."""
    given = {name: usual if asked.get(name) is None else asked[name]
             for name, usual in SAMPLING.items()}  # fmt: skip
    if given["seed"] is None:
        given["seed"] = int.from_bytes(os.urandom(4), "big")
    if isinstance(given["stop"], str):
        given["stop"] = (given["stop"],)
    if not isinstance(given["stop"], (list, tuple)):
        raise AskedError("expected 'stop' to be a text or a list of texts, found others")
    limits = (asked.get("max_completion_tokens"), asked.get("max_tokens"))
    most = next((limit for limit in limits if limit is not None), None)
    if most == 0:
        raise AskedError("expected 'max_tokens' to be 1 or more, found 0")
    return {**given, "max_tokens": 0 if most is None else most}


def check_usual(asked):
    """AskedError for what a model here cannot do; null asks for nothing, too."""
    for name, usual in USUAL.items():
        found = asked.get(name)  # 0 logprobs are those of the tokens themselves, and no False
        switch = isinstance(found, bool)
        if found is not None and (found, switch) not in [(v, isinstance(v, bool)) for v in usual]:
            wanted = f"to be {json.dumps(usual[0])}, or" if usual else "to be"
            raise AskedError(f"expected '{name}' {wanted} left out, found {str(found)[:40]!r}")
