// Opens models with Netron's own parsers: node netron.mjs NETRON_FOLDER FILE...
// Prints one JSON line per file: its format, nodes, and names of inputs and outputs, or the error.
import * as fs from 'fs';
import * as path from 'path';

const [folder, ...files] = process.argv.slice(2);
const load = (name) => import(path.join(folder, `${name}.js`));
const { BinaryStream } = await load('base');
const { ModelFactoryService } = await load('view');

class Host {
    environment() { return null; }
    event() {}
    exception(error) { throw error; }
    require(id) { return load(id); }
    async request(file, encoding) { return fs.readFileSync(path.join(folder, file), encoding); }
}

class Context {
    constructor(host, file) {
        this.host = host;
        this.identifier = this.name = path.basename(file);
        this.stream = new BinaryStream(new Uint8Array(fs.readFileSync(file)));
        this.entries = new Map();
    }
    request(file, encoding) { return this.host.request(file, encoding); }
    require(id) { return load(id); }
    error(error) { throw error; }
}

const names = (list) => list.map((each) => each.name);
for (const file of files) {
    let line;
    try {
        const host = new Host();
        const model = await new ModelFactoryService(host).open(new Context(host, file));
        const [graph] = model.modules || model.graphs;
        const [inputs, outputs] = [names(graph.inputs), names(graph.outputs)];
        line = { format: model.format, nodes: graph.nodes.length, inputs, outputs };
    } catch (error) {
        line = { error: String(error.message).split('\n')[0] };
    }
    console.log(JSON.stringify(line));
}
