/*
 * Guest link, protocol version 3: the numbers of docs/internals/guest-link.md, nothing else.
 * A name here and a name there are the same name.
 */
#ifndef PERDURE_PROTOCOL_H
#define PERDURE_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION 3u
#define PORT_NAME "perdure.link.0"

/* Limits. */
#define PAYLOAD_MAX 65536u
#define STREAMS_MAX 256u
#define PROCESSES_RUNNING_MAX 512u
#define PROCESSES_ENDED_MAX 128u
#define LOG_BYTES_DEFAULT (1u << 20)
#define LOG_BYTES_MIN (4u << 10)
#define LOG_BYTES_MAX (16u << 20)
#define CREDIT_MAX (1u << 20)
#define ARGV_MAX 1024u
#define PATH_BYTES_MAX 4095u
#define ENTROPY_MIN 32u
#define ENTROPY_MAX 512u
#define TIMERS_MAX 512u
#define HOOK_OUTPUT_MAX 4096u
#define OUTPUT_QUIET_MS 250u
#define TERMINAL_CELLS_MAX 4096u /* rows, and columns, of a terminal */
#define ATTRIBUTES_BYTES_MAX 8192u /* names and values, of a file */
#define WATCHES_MAX 16u
#define WATCH_FOLDERS_MAX 4096u /* of one watch */
#define RECORD_MAX (16u << 10)  /* of a stream of records */
#define CONNECTIONS_MAX 192u /* to ports inside; leaves streams for everything else */
#define FIRST_READER_MS 5000u /* how long a program with much to say waits for somebody to follow it */

enum frame_type {
  FRAME_REQUEST = 1,
  FRAME_RESPONSE = 2,
  FRAME_DATA = 3,
  FRAME_END = 4,
  FRAME_WINDOW = 5,
  FRAME_CANCEL = 6,
  FRAME_EVENT = 7,
};

enum operation {
  OP_INFO = 1,
  OP_PING = 2,
  OP_CLOCK_ADJUST = 3,
  OP_ENTROPY = 4,
  OP_FLUSH = 5,
  OP_FREEZE = 6,
  OP_THAW = 7,
  OP_GENERATION = 8,
  OP_IDENTITY = 9,
  OP_HOOKS = 10,
  OP_EXEC = 11,
  OP_ATTACH = 12,
  OP_STDIN = 13,
  OP_SIGNAL = 14,
  OP_PROCESSES = 15,
  OP_FORGET = 16,
  OP_READ_FILE = 17,
  OP_WRITE_FILE = 18,
  OP_STAT = 19,
  OP_STATS = 20,
  OP_TIMERS = 21,
  OP_DROP_CACHES = 22,
  OP_SHUTDOWN = 23,
  /* From version 2 on. */
  OP_RESIZE = 24,
  OP_LIST_FOLDER = 25,
  OP_MAKE_FOLDER = 26,
  OP_MOVE_PATH = 27,
  OP_REMOVE_PATH = 28,
  OP_WATCH = 29,
  OP_ACTIVITY = 30,
  OP_CLOCK_SOURCE = 31,
  OP_FROZEN_WAITS = 32,
  /* From version 3 on. */
  OP_CONNECT = 33,
  OP_OUTBOUND = 34,
  OP_CARRY = 35,
};

#define OP_FIRST_OF_VERSION_2 OP_RESIZE
#define OP_FIRST_OF_VERSION_3 OP_CONNECT

enum tag {
  TAG_MESSAGE = 1,
  TAG_DEADLINE_MS = 2,
  TAG_VERSION = 3,
  TAG_REALTIME_NS = 4,
  TAG_MONOTONIC_NS = 5,
  TAG_DELTA_NS = 6,
  TAG_BYTES = 7,
  TAG_GENERATION = 8,
  TAG_JSON = 9,
  TAG_ARGV = 10,
  TAG_ENV = 11,
  TAG_CWD = 12,
  TAG_USER = 13,
  TAG_TIMEOUT_MS = 14,
  TAG_STDIN = 15,
  TAG_LOG_BYTES = 16,
  TAG_PROCESS = 17,
  TAG_PID = 18,
  TAG_EXIT_CODE = 19,
  TAG_SIGNAL = 20,
  TAG_RUNNING = 21,
  TAG_TIMED_OUT = 22,
  TAG_LOG_START = 23,
  TAG_LOG_END = 24,
  TAG_CHANNEL = 25,
  TAG_PATH = 30,
  TAG_MODE = 31,
  TAG_SIZE = 32,
  TAG_KIND = 33,
  TAG_UID = 34,
  TAG_GID = 35,
  TAG_MTIME_NS = 36,
  TAG_OFFSET = 37,
  TAG_LENGTH = 38,
  TAG_FROZEN = 40,
  TAG_BOOT_ID = 41,
  TAG_HOSTNAME = 42,
  TAG_MACHINE_ID = 43,
  TAG_FILE = 44,
  TAG_HOOK = 45,
  TAG_TIMER = 46,
  TAG_STAT = 47,
  TAG_PROCESS_ENTRY = 48,
  TAG_NAME = 49,
  TAG_VALUE = 50,
  TAG_STARTED_NS = 51,
  TAG_DUE_IN_MS = 52,
  TAG_TREE = 53,
  TAG_CUT_FROM = 54,
  TAG_CUT_TO = 55,
  TAG_ROWS = 56,
  TAG_COLUMNS = 57,
  TAG_TARGET = 58,
  TAG_PARENTS = 59,
  TAG_REPLACE = 60,
  TAG_RECURSIVE = 61,
  TAG_FROM = 62,
  TAG_PORT = 63,
  TAG_ATTRIBUTE = 26,
  TAG_CONNECTION = 27,
  TAG_ADDRESS = 28,
  TAG_LIMIT = 64, /* one above every known tag */
};

enum event_kind { EVENT_PROCESS_ENDED = 1 };

enum channel { CHANNEL_CUT = 0, CHANNEL_STDOUT = 1, CHANNEL_STDERR = 2 };

/* Payload of a DATA of ATTACH: channel u8, 7 zero bytes, offset u64. */
#define OUTPUT_HEADER 16u

enum status {
  STATUS_OK = 0,
  STATUS_BAD_REQUEST = 1,
  STATUS_UNKNOWN_OPERATION = 2,
  STATUS_DEADLINE_EXCEEDED = 3,
  STATUS_TOO_MANY = 4,
  STATUS_PROCESS_NOT_FOUND = 5,
  STATUS_USER_NOT_FOUND = 6,
  STATUS_PATH_NOT_FOUND = 7,
  STATUS_PATH_EXISTS = 8,
  STATUS_PATH_DENIED = 9,
  STATUS_PATH_IS_LINK = 10,
  STATUS_PATH_IS_DIRECTORY = 11,
  STATUS_PATH_NOT_FILE = 12,
  STATUS_DISK_FULL = 13,
  STATUS_SIZE_MISMATCH = 14,
  STATUS_STDIN_CLOSED = 15,
  STATUS_PROCESS_ENDED = 16,
  STATUS_EXEC_FAILED = 17,
  STATUS_PROCESS_RUNNING = 18,
  STATUS_INTERNAL = 19,
  STATUS_NOT_SUPPORTED = 20,
  STATUS_CANCELLED = 21,
  STATUS_PATH_NOT_FOLDER = 22,
  STATUS_PATH_NOT_EMPTY = 23,
  STATUS_PATH_CROSSES_MOUNT = 24,
  STATUS_PORT_REFUSED = 25,
  STATUS_CONNECTION_RESET = 26,
};

#endif
