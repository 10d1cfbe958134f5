// Browsers start no worker from file://, so that search on a copied site runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== inner) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        if (this.onmessage) this.onmessage(event);
      });
      const load = (document, source) =>
        new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = source;
          script.onload = done;
          script.onerror = failed;
          document.body.appendChild(script);
        });
      inner.document.open();
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      inner.postMessage = window.postMessage.bind(window);
      inner.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => load(inner.document, each)), Promise.resolve());
      this.ready = load(inner.document, new URL(url, document.baseURI).href);
    }
    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })),
      );
    }
    terminate() {
      this.frame.remove();
    }
  };
}

// A leading hyphen means "without" in a query, so that an option such as --dry-run is searched as
// a phrase.
const { postMessage } = Worker.prototype;
Worker.prototype.postMessage = function (message, ...rest) {
  if (typeof message.data === "string") {
    const phrase = (_, start, words) => `${start}"${words.replaceAll("-", " ")}"`;
    message.data = message.data.replace(/(^|\s)--?(\w[\w-]*)/g, phrase);
  }
  return postMessage.call(this, message, ...rest);
};
