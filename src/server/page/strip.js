// The whole text in one strip. A column is the mean share of its tokens; the frame marks the part in the window below.
import { oncePerFrame, prepareCanvas } from './dom.js';
import { binned } from './tokens.js';

export class Strip {
  // onSeek(share of the text): the pointer's target.
  constructor(canvas, onSeek) {
    this.canvas = canvas;
    this.values = new Float32Array(0);
    this.frame = [0, 1];
    this.documentEnd = 0;  // share of the text; 0: all of it
    this.draw = oncePerFrame(() => this.paint());
    const seek = (event) => {
      const box = canvas.getBoundingClientRect();
      onSeek(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    };
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      seek(event);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) seek(event);
    });
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (width === 0) return;
    const context = prepareCanvas(this.canvas, width, height);
    const n = Math.max(1, Math.min(Math.floor(width), this.values.length));
    const means = binned(this.values, n);
    for (let bin = 0; bin < n; ++bin) {
      context.fillStyle = this.ramp.back(means[bin]);
      const x = bin * width / n;
      context.fillRect(x, 5, width / n + 0.6, height - 10);
    }
    if (this.documentEnd > 0 && this.documentEnd < 1) {
      context.fillStyle = this.ramp.faint;
      context.fillRect(this.documentEnd * width - 0.5, 1, 1.5, height - 2);
    }
    const [from, to] = this.frame;
    if (to - from < 0.999) {
      context.strokeStyle = this.ramp.ink;
      context.lineWidth = 1.5;
      context.beginPath();
      context.roundRect(from * width + 0.75, 0.75, Math.max(5, (to - from) * width - 1.5), height - 1.5, 4);
      context.stroke();
    }
  }
}
