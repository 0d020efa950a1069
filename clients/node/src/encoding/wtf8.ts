/**
 * Encodes strings that may hold half a character (a lone surrogate) as bytes of the wire, and back.
 *
 * Owns: the encoding of lone surrogates, three bytes each like any other code point of their range.
 * Refuses: what the text means.
 *
 * Vendors split an emoji over two chunks; each half arrives as a lone surrogate. Read back, two
 * halves that meet are one character again: a JavaScript string joins them by itself.
 */

/** UTF-8 with lone surrogates passed through. */
export function encode(text: string): Buffer {
  return text.isWellFormed() ? Buffer.from(text) : encodeHalves(text);
}

/** Bytes of the wire as a string, halves joined; any other byte that is no UTF-8 is U+FFFD. */
export function decode(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let text = "";
  let done = 0;
  for (let at = buffer.indexOf(0xed); at >= 0; at = buffer.indexOf(0xed, at + 1)) {
    const second = buffer[at + 1] ?? 0;
    const third = buffer[at + 2] ?? 0;
    if (second >= 0xa0 && second <= 0xbf && (third & 0xc0) === 0x80) {
      text += buffer.toString("utf8", done, at);
      text += String.fromCharCode(0xd000 | ((second & 0x3f) << 6) | (third & 0x3f));
      done = at + 3;
    }
  }
  return done === 0 ? buffer.toString("utf8") : text + buffer.toString("utf8", done);
}

/** The beginning of encoded text, never ending inside a character. */
export function cut(encoded: Buffer, bytesMax: number): Buffer {
  if (encoded.length <= bytesMax) return encoded;
  let stop = bytesMax;
  while (stop > 0 && (encoded[stop]! & 0xc0) === 0x80) stop -= 1;
  return encoded.subarray(0, stop);
}

/** All of it, in pieces of which none ends inside a character; an empty text is one empty piece. */
export function pieces(encoded: Buffer, bytesMax: number): Buffer[] {
  const found = [cut(encoded, bytesMax)];
  for (let at = found[0]!.length; at < encoded.length; at += found.at(-1)!.length) {
    found.push(cut(encoded.subarray(at), bytesMax));
  }
  return found;
}

function encodeHalves(text: string): Buffer {
  // A half takes as many bytes as the U+FFFD that Buffer puts in its place: overwrite those.
  const encoded = Buffer.from(text);
  let at = 0;
  for (const character of text) {
    const code = character.codePointAt(0)!;
    if (code >= 0xd800 && code <= 0xdfff) {
      encoded[at] = 0xed;
      encoded[at + 1] = 0x80 | ((code >> 6) & 0x3f);
      encoded[at + 2] = 0x80 | (code & 0x3f);
      at += 3;
    } else {
      at += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    }
  }
  return encoded;
}
