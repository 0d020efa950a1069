/**
 * Memory for frames. Owns: slabs that hold nothing else. Refuses: meaning.
 *
 * Why not Buffer.allocUnsafe: its 8 KiB pool is everybody's, and a frame of 24 bytes that is held until
 * it is synced would keep alive whatever else the program put beside it. Frames leave in the order in
 * which they came, so a slab of frames goes as a whole.
 */

const SLAB_BYTES = 64 * 1024;
/** A longer frame has its own memory. */
const SHARED_BYTES_MAX = 4 * 1024;

/** Where frames are written; another one after each `reserve`, maybe. */
export let slab: Buffer = Buffer.alloc(0);
let used = 0;

/** That many bytes, whatever stands in them. */
export function room(bytes: number): Buffer {
  if (bytes > SHARED_BYTES_MAX) return Buffer.allocUnsafeSlow(bytes);
  const at = reserve(bytes);
  keep(bytes);
  return slab.subarray(at, at + bytes);
}

/** Where in `slab` so many bytes are free, for a frame whose length is known once it is written: `keep`. */
export function reserve(bytesMax: number): number {
  if (used + bytesMax > slab.length) {
    slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    used = 0;
  }
  return used;
}

/** Nobody else gets the bytes that were reserved last, so many of them. */
export function keep(bytes: number): void {
  used += bytes;
}
