// Reads a trace with Perfetto's own trace processor: node perfetto.mjs FOLDER TRACE SQL
// FOLDER has engine_bundle.js and trace_processor.wasm of Perfetto's page. Prints the strings that
// the query finds, a line each; exit code 1 with the trace processor's error.
import * as fs from 'fs';
import * as path from 'path';
import * as vm from 'vm';

const node = process;
const [folder, trace, sql] = node.argv.slice(2);
const fail = (error) => { console.error(String(error)); node.exit(1); };

// The bundle runs in a browser's worker: this is what it needs of one.
delete globalThis.process;
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = Object;
globalThis.location = { href: 'http://localhost/' };
globalThis.XMLHttpRequest = class {
    open(method, name) { this.name = path.basename(name); }
    send() { this.response = fs.readFileSync(path.join(folder, this.name)); }
};
console.warn = () => {}; // its log
vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));

// Protobuf, with the numbers of Perfetto's trace_processor.proto.
const [STREAMED, SEQUENCE, METHOD, FATAL] = [1, 1, 2, 5]; // of TraceProcessorRpc
const [APPEND, FINALIZE, QUERY] = [1, 2, 3]; // methods
const [TRACE, QUERY_ARGUMENTS, SQL] = [101, 103, 1];
const [APPENDED, FOUND, ERROR, BATCH, STRINGS] = [201, 203, 2, 3, 5];

const varint = (value) =>
    value < 128 ? [value] : [value % 128 + 128, ...varint(Math.floor(value / 128))];
const number = (field, value) => Buffer.from([...varint(field * 8), ...varint(value)]);
const bytes = (field, content) =>
    Buffer.concat([Buffer.from([...varint(field * 8 + 2), ...varint(content.length)]), content]);

function fields(message, wanted) {
    let at = 0;
    const next = () => {
        let value = 0;
        for (let unit = 1; ; unit *= 128) {
            const byte = message[at++];
            value += byte % 128 * unit;
            if (byte < 128) return value;
        }
    };
    const found = [];
    while (at < message.length) {
        const key = next();
        if (key % 8 === 0) {
            const value = next();
            if (key === wanted * 8) found.push(value);
        } else if (key % 8 === 1) {
            at += 8;
        } else {
            const length = next();
            if (key === wanted * 8 + 2) found.push(message.subarray(at, at + length));
            at += length;
        }
    }
    return found;
}

function answer(message) {
    const [appended, found] = [fields(message, APPENDED), fields(message, FOUND)];
    for (const one of [...appended, ...found]) fields(one, ERROR).forEach(fail);
    fields(message, FATAL).forEach(fail);
    for (const batch of found.flatMap((one) => fields(one, BATCH))) {
        for (const cells of fields(batch, STRINGS))
            node.stdout.write(String(cells).replaceAll('\0', '\n'));
    }
}

const replies = []; // of a stream that is cut anywhere
const port = {
    postMessage(reply) { replies.push(reply); },
};
globalThis.onmessage({ data: port });
setTimeout(() => {
    const requests = [
        [APPEND, bytes(TRACE, fs.readFileSync(trace))],
        [FINALIZE, Buffer.alloc(0)],
        [QUERY, bytes(QUERY_ARGUMENTS, bytes(SQL, Buffer.from(sql)))],
    ];
    requests.forEach(([method, content], at) => {
        const request = Buffer.concat([number(SEQUENCE, at + 1), number(METHOD, method), content]);
        port.onmessage({ data: new Uint8Array(bytes(STREAMED, request)) });
    });
    fields(Buffer.concat(replies), STREAMED).forEach(answer);
});
