// Pages that lie in a folder (file://) may not start a worker, which the search needs. This one runs its script in a
// hidden frame instead, with copies of its messages, as a worker gets. Zensical would load such a replacement from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }))
      const script = this.inner.document.createElement("script")
      script.src = url
      this.loaded = new Promise((resolve) => (script.onload = resolve))
      this.inner.document.body.append(script)
      this.terminate = () => frame.remove()
    }
    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })))
    }
  }
}
