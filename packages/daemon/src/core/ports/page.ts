/** Memory pages as plain data, in the shape in which they travel between substrate and store. */

/**
 * Some pages of a VM's memory: `bytes` holds `indexes.length` pages of 4096 bytes in the order of
 * `indexes`, which ascend; no page is in two batches of one capture. At most 4 MiB. Both buffers belong to this
 * batch alone and go to the receiver with it, who may transfer them to a thread; used once.
 */
export interface PageBatch {
  readonly indexes: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export const PAGE_BATCH_BYTES_MAX = 4 * 1024 * 1024;
