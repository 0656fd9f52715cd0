/* See terminal.h. */
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "agent.h"
#include "operation.h"
#include "process.h"
#include "stream.h"

#define FOLDER "/dev/pts"
#define OWNER_MODE 0620
/* linux/tty.h is not among the headers of every libc. */
#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

static int folder = -1;

void terminals_open(void) { folder = open(FOLDER, O_PATH | O_DIRECTORY | O_CLOEXEC); }

static bool is_size(const struct request *request, enum tag tag) {
  uint64_t cells = request_number(request, tag, 0);
  return cells >= 1 && cells <= TERMINAL_CELLS_MAX;
}

const char *terminal_check(const struct request *request) {
  if (is_size(request, TAG_ROWS) && is_size(request, TAG_COLUMNS)) return NULL;
  return "rows and columns must be 1 to 4096";
}

static bool set_size(int ours, const struct request *request) {
  struct winsize size;
  memset(&size, 0, sizeof size);
  size.ws_row = (unsigned short)request->number[TAG_ROWS];
  size.ws_col = (unsigned short)request->number[TAG_COLUMNS];
  return ioctl(ours, TIOCSWINSZ, &size) == 0;
}

/* Characters of several bytes are rubbed out whole. */
static void expect_utf8(int ours) {
  struct termios settings;
  if (tcgetattr(ours, &settings) != 0) return;
  settings.c_iflag |= IUTF8;
  tcsetattr(ours, TCSANOW, &settings);
}

static int open_ours(void) {
  int flags = O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK;
  int fd = openat(folder, "ptmx", flags);
  /* Hosts of tests may keep that one for root. */
  return fd < 0 && agent.is_test ? open("/dev/ptmx", flags) : fd;
}

bool terminal_open(const struct request *request, int *ours, int *theirs) {
  int unlock = 0;
  *theirs = -1;
  *ours = open_ours();
  if (*ours < 0) return false;
  if (ioctl(*ours, TIOCSPTLCK, &unlock) == 0 && set_size(*ours, request)) {
    expect_utf8(*ours);
    *theirs = ioctl(*ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  if (*theirs >= 0) return true;
  int problem = errno;
  close(*ours);
  *ours = -1;
  errno = problem;
  return false;
}

/* The group stays that of the file system: `tty`, so that whoever writes to terminals may. */
bool terminal_take(int theirs, uid_t owner) {
  if (ioctl(theirs, TIOCSCTTY, 0) != 0) return false;
  return geteuid() != 0 || (fchown(theirs, owner, (gid_t)-1) == 0 && fchmod(theirs, OWNER_MODE) == 0);
}

/*
 * Of a terminal that gives its reader lines the character ends the line that was begun, and the input only
 * where none was: there it takes two.
 */
size_t terminal_end_text(int ours, uint8_t last_typed, uint8_t text[TERMINAL_END_MAX]) {
  struct termios settings;
  if (tcgetattr(ours, &settings) != 0) return 0;
  uint8_t end = settings.c_cc[VEOF];
  if (end == 0) return 0; /* switched off */
  bool gives_lines = (settings.c_lflag & ICANON) != 0;
  bool in_line = last_typed != 0 && last_typed != '\n' && last_typed != end &&
                 !(last_typed == '\r' && (settings.c_iflag & ICRNL) != 0);
  text[0] = end;
  text[1] = end;
  return gives_lines && in_line ? 2 : 1;
}

void operation_resize(uint32_t id, const struct request *request) {
  struct process *process = process_find(request_number(request, TAG_PROCESS, 0));
  const char *problem = terminal_check(request);
  if (process == NULL) {
    answer_status(id, STATUS_PROCESS_NOT_FOUND, "There is no such process");
  } else if (problem != NULL) {
    answer_status(id, STATUS_BAD_REQUEST, problem);
  } else if (process->phase == PROCESS_ENDED) {
    answer_status(id, STATUS_PROCESS_ENDED, "The process has ended");
  } else if (!process->has_terminal || process->output[0].fd < 0) {
    answer_status(id, STATUS_NOT_SUPPORTED, "The process has no terminal");
  } else if (set_size(process->output[0].fd, request)) {
    answer_status(id, STATUS_OK, NULL);
  } else {
    char message[96];
    snprintf(message, sizeof message, "Cannot resize the terminal: %s", strerror(errno));
    answer_status(id, STATUS_INTERNAL, message);
  }
}
