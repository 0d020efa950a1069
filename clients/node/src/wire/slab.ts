/**
 * Allocates memory for frames. Owns: slabs that hold nothing else. Refuses: what the bytes mean.
 *
 * Why not Buffer.allocUnsafe: its 8 KiB pool is everybody's, and a frame of 24 bytes that is held until
 * it is synced would keep alive whatever else the program put beside it. A slab goes when the last of its
 * frames does, so frames share one only with those that leave when they do: what is kept for longer than
 * what was said beside it is copied elsewhere.
 */

const SLAB_BYTES = 64 * 1024;
/** A longer frame has its own memory. */
export const SHARED_BYTES_MAX = 4 * 1024;

export class Slab {
  /** Where frames are written; another one after each `reserve`, maybe. */
  memory: Buffer = Buffer.alloc(0);
  private used = 0;

  /** That many bytes, whatever stands in them. */
  room(bytes: number): Buffer {
    if (bytes > SHARED_BYTES_MAX) return Buffer.allocUnsafeSlow(bytes);
    const at = this.reserve(bytes);
    this.keep(bytes);
    return this.memory.subarray(at, at + bytes);
  }

  /** Where in `memory` so many bytes are free, for a frame whose length is known once it is written: `keep`. */
  reserve(bytesMax: number): number {
    if (this.used + bytesMax > this.memory.length) {
      this.memory = Buffer.allocUnsafeSlow(SLAB_BYTES);
      this.used = 0;
    }
    return this.used;
  }

  /** Nobody else gets the bytes that were reserved last, so many of them. */
  keep(bytes: number): void {
    this.used += bytes;
  }
}

/** Of frames as they are said. */
export const spoken = new Slab();
