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

let slab = Buffer.alloc(0);
let used = 0;

/** That many bytes, whatever stands in them. */
export function room(bytes: number): Buffer {
  if (bytes > SHARED_BYTES_MAX) return Buffer.allocUnsafeSlow(bytes);
  if (used + bytes > slab.length) {
    slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    used = 0;
  }
  const piece = slab.subarray(used, used + bytes);
  used += bytes;
  return piece;
}
