/** What of a TCP socket of Node's is needed to break it off. */
export interface Resettable {
  readonly writableEnded: boolean;
  readonly writableFinished: boolean;
  readonly writableLength: number;
  destroy(): unknown;
  resetAndDestroy(): unknown;
}

/**
 * Resets the connection, so that its peer does not take half of something for the whole.
 *
 * While the end of its own direction is on its way to the kernel, a reset is refused (`EINVAL` of libuv's
 * `uv_tcp_close_reset`) and the handle would stay for ever: all that was written is with the kernel then, and the
 * connection is closed.
 */
export function breakOff(socket: Resettable): void {
  const isEnding = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (isEnding) socket.destroy();
  else socket.resetAndDestroy();
}
