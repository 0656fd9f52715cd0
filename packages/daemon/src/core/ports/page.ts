/** Memory pages as plain data, in the shape in which they travel between substrate and store. */

/**
 * Some pages of a VM's memory: `bytes` holds `indexes.length` pages of 4096 bytes in the order of
 * `indexes`, which ascend within a batch and from batch to batch. At most 16 MiB. The receiver owns
 * the buffers: they may have been transferred between threads and are used once.
 */
export interface PageBatch {
  readonly indexes: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export const PAGE_BATCH_BYTES_MAX = 16 * 1024 * 1024;
