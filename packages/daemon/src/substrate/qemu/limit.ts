/** Deadlines and bounds of the QEMU substrate, by name. Deadlines are generous: hosts are shared. */
export const qemuLimits = {
  /** From starting the process until its monitor answers. */
  startMs: 20_000,
  /** One monitor command; `stop` and `blockdev-snapshot` wait for the disk. */
  commandMs: 30_000,
  /** From one look at a process that has a long job to do until the next. */
  jobLookMs: 5_000,
  /** Reading the console: what it says is told along with an error that should not wait for it. */
  consoleMs: 5_000,
  /** Loading device state, from connecting until QEMU reports the end. */
  loadMs: 20_000,
  /** From SIGKILL until the process is gone. */
  killMs: 10_000,
  /** Boot of a probe until its first program runs. */
  probeMs: 10_000,
  /** A kernel that runs says something long before this. */
  probeSilenceMs: 5_000,

  /** One line from the monitor. Longer is a violation: the VMM is not trusted. */
  monitorLineBytes: 1024 * 1024,
  /** Device state, as the port promises. */
  deviceStateBytes: 16 * 1024 * 1024,
  /** How far a guest's clock may be moved at once. The guest's kernel counts it up, about 0.1 s for a month. */
  clockAdvanceMs: 400 * 24 * 3_600_000,
  /** What a time stamp counter may run at, and still be one. */
  tscHzMin: 1e8,
  tscHzMax: 1e10,
  /** Ring in the VMM that holds the guest's console; older output is forgotten. */
  consoleRingBytes: 64 * 1024,
  consoleTailBytes: 4096,
  /** Last bytes kept of what QEMU itself says on stderr. */
  complaintBytes: 4096,
  /** Threads that copy guest memory; the memory's bandwidth is the limit, not their number. */
  memoryThreads: 2,
  /** Batches of pages that are read or written, or wait for a thread, at the same time. */
  batchesAtOnce: 4,

  /** Memory of the VMM beyond the guest's: code buffer, device state, thread stacks, its libraries. */
  memoryOverheadBytes: 320 * 1024 * 1024,
  /** Threads: CPUs, main loop, RCU, and up to 64 for disk requests. */
  threadsMax: 128,
  /** CPU time beyond one core per virtual CPU, for disk and main loop. In hundredths of a core. */
  cpuOverheadPercent: 50,

  /** Translated code of software emulation. QEMU's default is 1 GiB. */
  translationBufferMiB: 64,
  /** Disk layers in one chain; the engine flattens earlier. */
  layersMax: 64,
  /** `sun_path` of unix(7), with its final zero. */
  socketPathBytes: 108,
} as const;
