// A kernel as WebAssembly: `load()` gives an object with `form`, `run(...inputs)` and `time(seconds)`.
// The module is part of this file, so that a page opened from a disk can use it.
(function (root) {
  "use strict";
  const form = FORM;
  const module = MODULE;
  const ALIGN = 64;
  const PAGE = 65536;

  const views = { Float32Array, Float64Array, Int8Array, Uint8Array, Uint16Array, Int32Array, BigInt64Array };

  function bytes() {
    if (typeof Buffer !== "undefined") return Buffer.from(module, "base64");
    return Uint8Array.from(atob(module), (c) => c.charCodeAt(0));
  }

  async function load() {
    const { instance } = await WebAssembly.instantiate(bytes());
    const { memory } = instance.exports;
    let end = instance.exports.__heap_base.value;

    function place(size) {
      const at = Math.ceil(end / ALIGN) * ALIGN;
      end = at + size;
      const lacking = end - memory.buffer.byteLength;
      if (lacking > 0) memory.grow(Math.ceil(lacking / PAGE));
      return at;
    }

    const inputs = form.inputs.map((a) => ({ ...a, at: place(a.bytes) }));
    for (const a of inputs) a.passed = a.packed === null ? a.at : place(a.packed);
    const outputs = form.outputs.map((a) => ({ ...a, at: place(a.bytes) }));
    const scratch = place(SCRATCH);
    const call = instance.exports[form.function + "_with"];
    const passed = [...inputs.map((a) => a.passed), ...outputs.map((a) => a.at), scratch, 1n];

    function view(a) {
      const kind = views[a.view];
      return new kind(memory.buffer, a.at, a.bytes / kind.BYTES_PER_ELEMENT);
    }

    function give(arrays) {
      if (arrays.length !== inputs.length)
        throw new Error(`${form.function} takes ${inputs.length} arrays, got ${arrays.length}`);
      inputs.forEach((a, n) => {
        const target = view(a);
        if (arrays[n].length !== target.length || arrays[n].constructor.name !== a.view)
          throw new Error(`${a.name} must be a ${a.view} of ${target.length} elements`);
        target.set(arrays[n]);
        if (a.packed !== null) instance.exports[`${form.function}_pack_${a.name}`](a.at, a.passed);
      });
    }

    function run(...arrays) {
      give(arrays);
      call(...passed);
      return outputs.map((a) => view(a).slice());
    }

    // Times of runs on the arrays of the last call, in seconds: the fastest and the median of samples.
    function time(seconds) {
      const now = () => performance.now() / 1000;
      let count = 1;
      const sample = () => {
        const begin = now();
        for (let n = 0; n < count; ++n) call(...passed);
        return now() - begin;
      };
      while (sample() < 0.005 && count < 1 << 24) count *= 2; // clocks of browsers are coarse
      const samples = [];
      const until = now() + seconds;
      while (samples.length < 5 || now() < until) samples.push(sample() / count);
      samples.sort((a, b) => a - b);
      return { fastest: samples[0], median: samples[samples.length >> 1], samples: samples.length, runs: count };
    }

    return { form, run, time };
  }

  if (typeof exports !== "undefined") exports.load = load;
  else root.kernel = { load };
})(globalThis);
