/**
 * A double-ended queue whose operations take constant time; an array's shift() copies. Owns: the items
 * and their order. Refuses: what they mean.
 */

const SLACK = 1024;

export class Deque<T> implements Iterable<T> {
  private items: (T | undefined)[] = [];
  private head = 0;

  get length(): number {
    return this.items.length - this.head;
  }

  get first(): T | undefined {
    return this.items[this.head];
  }

  push(item: T): void {
    this.items.push(item);
  }

  pop(): T | undefined {
    return this.length > 0 ? this.items.pop() : undefined;
  }

  shift(): T | undefined {
    if (this.length === 0) return undefined;
    const item = this.items[this.head];
    this.items[this.head] = undefined;
    this.head += 1;
    if (this.head >= SLACK && this.head * 2 >= this.items.length) {
      this.items = this.items.slice(this.head);
      this.head = 0;
    }
    return item;
  }

  clear(): void {
    this.items = [];
    this.head = 0;
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let at = this.head; at < this.items.length; at += 1) yield this.items[at] as T;
  }
}
