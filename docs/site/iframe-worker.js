// A replacement of Worker for pages that a browser opens from files, where it starts no worker.
// The search of the site then runs in a hidden frame, and no script of another server is needed.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      const page = frame.contentDocument;
      page.open();
      page.write("<!doctype html><body></body>");
      page.close();
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = page.createElement("script");
          script.src = address;
          script.onload = resolve;
          script.onerror = reject;
          page.body.appendChild(script);
        });
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.importScripts = (...addresses) =>
        addresses.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      load(url).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
      } else {
        this.inner.dispatchEvent(new MessageEvent("message", { data }));
      }
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
