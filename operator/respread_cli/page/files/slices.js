// Long work in slices, so that nobody waits for it who types, scrolls or looks.

const SLICE_MILLISECONDS = 8; // Of the 16 of a frame: the rest is for the browser, and for what somebody does meanwhile.

/** Do the work of a generator, which yields wherever it may be interrupted, and return its result.
 * Between two slices a frame is drawn. If the work is not wanted any more then, it ends there, and undefined is returned. */
export async function inSlices(work, isWanted = () => true) {
  for (;;) {
    const end = performance.now() + SLICE_MILLISECONDS;
    let step = work.next();
    while (!step.done && performance.now() < end) step = work.next();
    if (step.done) return step.value;
    await frame();
    if (!isWanted()) return undefined;
  }
}

/** Do the work at once, and return its result. */
export function atOnce(work) {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}

/** Wait until the browser has drawn a frame, and has handled what was waiting. */
function frame() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => {
      const channel = new MessageChannel(); // Its message comes after the frame.
      channel.port1.onmessage = resolve;
      channel.port2.postMessage(null);
    });
  });
}
