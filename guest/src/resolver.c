/* See resolver.h. */
#include "resolver.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "dns.h"
#include "loop.h"

#define PER_TURN 64

static struct source questions = {.fd = -1};
static struct name_table names;

static void answer_some(struct source *source, uint32_t events) {
  (void)events;
  for (int i = 0; i < PER_TURN; i++) {
    uint8_t question[DNS_QUESTION_MAX + 1]; /* a longer one is seen to be too long */
    uint8_t answer[DNS_ANSWER_MAX];
    struct sockaddr_in who;
    socklen_t length = sizeof who;
    ssize_t got = recvfrom(source->fd, question, sizeof question, 0, (struct sockaddr *)&who, &length);
    if (got < 0) return;
    size_t said = dns_answer((struct bytes){question, (size_t)got}, &names, answer);
    if (said > 0) sendto(source->fd, answer, said, 0, (struct sockaddr *)&who, length);
  }
}

bool resolver_open(void) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_in own = {.sin_family = AF_INET,
                            .sin_port = htons(RESOLVER_PORT),
                            .sin_addr = {htonl(RESOLVER_ADDRESS)}};
  source_open(&questions, fd, answer_some);
  if (fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0) {
    return source_watch(&questions, EPOLLIN);
  }
  source_close(&questions);
  return false;
}

const char *resolver_name(uint32_t address) { return name_table_name(&names, address); }
