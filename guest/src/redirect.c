/* See redirect.h. */
#include "redirect.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKLOG 256
#define LOOPBACK 0x7f000000u
#define LOOPBACK_BITS 8u
/* What connections seem to come from. */
#define OWN_ADDRESS 0xc6120001u

enum priority { KERNELS_OWN = 0, FOR_LOOPBACK = 1, FOR_TCP = 2, FOR_THE_REST = 3 };

/* One message to the routing tables, with room for all attributes that are sent here. */
struct message {
  struct nlmsghdr header;
  union {
    struct ifaddrmsg address;
    struct rtmsg route;
    struct fib_rule_hdr rule;
  } body;
  uint8_t attributes[128];
};

static struct message begin(uint16_t type, uint16_t flags, size_t body) {
  struct message message;
  memset(&message, 0, sizeof message);
  message.header.nlmsg_type = type;
  message.header.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
  message.header.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
  return message;
}

static void put(struct message *message, uint16_t type, const void *value, size_t length) {
  struct rtattr *attribute = (void *)((char *)message + NLMSG_ALIGN(message->header.nlmsg_len));
  attribute->rta_type = type;
  attribute->rta_len = (uint16_t)RTA_LENGTH(length);
  memcpy(RTA_DATA(attribute), value, length);
  size_t end = NLMSG_ALIGN(message->header.nlmsg_len) + RTA_LENGTH(length);
  message->header.nlmsg_len = (uint32_t)end;
}

static void put_u32(struct message *message, uint16_t type, uint32_t value) {
  put(message, type, &value, sizeof value);
}

/* Sends it and waits for the kernel's word, which comes at once. */
static bool tell(int netlink, struct message *message) {
  struct {
    struct nlmsghdr header;
    struct nlmsgerr error;
    uint8_t rest[sizeof(struct message)];
  } answer;
  if (send(netlink, message, message->header.nlmsg_len, 0) < 0) return false;
  ssize_t length = recv(netlink, &answer, sizeof answer, 0);
  bool is_whole = length >= (ssize_t)NLMSG_LENGTH(sizeof answer.error);
  if (!is_whole || answer.header.nlmsg_type != NLMSG_ERROR) {
    errno = EPROTO;
    return false;
  }
  errno = -answer.error.error;
  return errno == 0 || errno == EEXIST;
}

static bool add_own_address(int netlink) {
  struct message message = begin(RTM_NEWADDR, NLM_F_CREATE, sizeof(struct ifaddrmsg));
  message.body.address = (struct ifaddrmsg){.ifa_family = AF_INET,
                                            .ifa_prefixlen = 32,
                                            .ifa_scope = RT_SCOPE_HOST,
                                            .ifa_index = if_nametoindex("lo")};
  put_u32(&message, IFA_LOCAL, htonl(OWN_ADDRESS));
  return tell(netlink, &message);
}

static bool add_route_of_everything(int netlink) {
  struct message message = begin(RTM_NEWROUTE, NLM_F_CREATE, sizeof(struct rtmsg));
  message.body.route = (struct rtmsg){.rtm_family = AF_INET,
                                      .rtm_table = RT_TABLE_LOCAL,
                                      .rtm_protocol = RTPROT_STATIC,
                                      .rtm_scope = RT_SCOPE_HOST,
                                      .rtm_type = RTN_LOCAL};
  put_u32(&message, RTA_OIF, if_nametoindex("lo"));
  put_u32(&message, RTA_PREFSRC, htonl(OWN_ADDRESS));
  return tell(netlink, &message);
}

static struct message rule(uint16_t type, uint16_t flags, enum priority priority, uint8_t action) {
  struct message message = begin(type, flags, sizeof(struct fib_rule_hdr));
  message.body.rule.family = AF_INET;
  message.body.rule.action = action;
  if (action == FR_ACT_TO_TBL) message.body.rule.table = RT_TABLE_LOCAL;
  put_u32(&message, FRA_PRIORITY, priority);
  return message;
}

static bool add_rules(int netlink) {
  const uint16_t new = NLM_F_CREATE | NLM_F_EXCL;
  struct message loopback = rule(RTM_NEWRULE, new, FOR_LOOPBACK, FR_ACT_TO_TBL);
  loopback.body.rule.dst_len = LOOPBACK_BITS;
  put_u32(&loopback, FRA_DST, htonl(LOOPBACK));
  struct message tcp = rule(RTM_NEWRULE, new, FOR_TCP, FR_ACT_TO_TBL);
  uint8_t protocol = IPPROTO_TCP;
  put(&tcp, FRA_IP_PROTO, &protocol, sizeof protocol);
  struct message rest = rule(RTM_NEWRULE, new, FOR_THE_REST, FR_ACT_PROHIBIT);
  /* The kernel's own rule goes last: there is no moment without one for loopback. */
  struct message kernels = rule(RTM_DELRULE, 0, KERNELS_OWN, FR_ACT_TO_TBL);
  return tell(netlink, &loopback) && tell(netlink, &tcp) && tell(netlink, &rest) &&
         (tell(netlink, &kernels) || errno == ENOENT);
}

static int bpf(enum bpf_cmd command, union bpf_attr *attributes) {
  return (int)syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

/* A map of one socket: the listener. */
static int map_of(int listener) {
  union bpf_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.map_type = BPF_MAP_TYPE_SOCKMAP;
  attributes.key_size = sizeof(uint32_t);
  attributes.value_size = sizeof(uint64_t);
  attributes.max_entries = 1;
  int map = bpf(BPF_MAP_CREATE, &attributes);
  if (map < 0) return -1;
  uint32_t key = 0;
  uint64_t value = (uint64_t)listener;
  memset(&attributes, 0, sizeof attributes);
  attributes.map_fd = (uint32_t)map;
  attributes.key = (uint64_t)(uintptr_t)&key;
  attributes.value = (uint64_t)(uintptr_t)&value;
  if (bpf(BPF_MAP_UPDATE_ELEM, &attributes) == 0) return map;
  close(map);
  return -1;
}

#define OPERATION(...) ((struct bpf_insn){__VA_ARGS__})
#define MOVE(to, from) \
  OPERATION(.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = to, .src_reg = from)
#define MOVE_NUMBER(to, number) \
  OPERATION(.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = to, .imm = number)
#define CALL(function) OPERATION(.code = BPF_JMP | BPF_CALL, .imm = function)
#define EXIT OPERATION(.code = BPF_JMP | BPF_EXIT)
#define LOAD(to, field) \
  OPERATION(.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = to, .src_reg = BPF_REG_1, \
            .off = offsetof(struct bpf_sk_lookup, field))
#define SKIP_IF(condition, left, number, skipped) \
  OPERATION(.code = BPF_JMP | condition | BPF_K, .dst_reg = left, .off = skipped, .imm = number)

/* Gives every TCP connection over IPv4 that is not for loopback to the socket of `map`. */
static int load_program(int map) {
  struct bpf_insn program[] = {
      LOAD(BPF_REG_2, family),
      SKIP_IF(BPF_JNE, BPF_REG_2, AF_INET, 20),
      LOAD(BPF_REG_2, protocol),
      SKIP_IF(BPF_JNE, BPF_REG_2, IPPROTO_TCP, 18),
      /* The first byte of an address in network order is the lowest on this machine. */
      LOAD(BPF_REG_2, local_ip4),
      OPERATION(.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = BPF_REG_2, .imm = 0xff),
      SKIP_IF(BPF_JEQ, BPF_REG_2, LOOPBACK >> 24, 15),
      MOVE(BPF_REG_6, BPF_REG_1),
      OPERATION(.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .off = -4, .imm = 0),
      OPERATION(.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = BPF_REG_1,
                .src_reg = BPF_PSEUDO_MAP_FD, .imm = map),
      OPERATION(.code = 0), /* its upper half */
      MOVE(BPF_REG_2, BPF_REG_10),
      OPERATION(.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4),
      CALL(BPF_FUNC_map_lookup_elem),
      SKIP_IF(BPF_JEQ, BPF_REG_0, 0, 7),
      MOVE(BPF_REG_7, BPF_REG_0),
      MOVE(BPF_REG_1, BPF_REG_6),
      MOVE(BPF_REG_2, BPF_REG_7),
      MOVE_NUMBER(BPF_REG_3, 0),
      CALL(BPF_FUNC_sk_assign),
      MOVE(BPF_REG_1, BPF_REG_7),
      CALL(BPF_FUNC_sk_release),
      MOVE_NUMBER(BPF_REG_0, SK_PASS),
      EXIT,
  };
  union bpf_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.prog_type = BPF_PROG_TYPE_SK_LOOKUP;
  attributes.expected_attach_type = BPF_SK_LOOKUP;
  attributes.insns = (uint64_t)(uintptr_t)program;
  attributes.insn_cnt = sizeof program / sizeof program[0];
  attributes.license = (uint64_t)(uintptr_t) "";
  return bpf(BPF_PROG_LOAD, &attributes);
}

/* For as long as this process lives: the link's descriptor stays open. */
static bool attach_program(int program) {
  int space = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (space < 0) return false;
  union bpf_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.link_create.prog_fd = (uint32_t)program;
  attributes.link_create.target_fd = (uint32_t)space;
  attributes.link_create.attach_type = BPF_SK_LOOKUP;
  int link = bpf(BPF_LINK_CREATE, &attributes);
  close(space);
  return link >= 0;
}

static int listen_anywhere(void) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(OWN_ADDRESS)}};
  if (listener < 0) return -1;
  bool bound = bind(listener, (struct sockaddr *)&own, sizeof own) == 0;
  if (bound && listen(listener, BACKLOG) == 0) return listener;
  close(listener);
  return -1;
}

static bool direct_to(int listener) {
  int map = map_of(listener);
  if (map < 0) return false;
  int program = load_program(map);
  close(map); /* the program holds it */
  if (program < 0) return false;
  bool attached = attach_program(program);
  close(program);
  return attached;
}

int redirect_open(const char **failed) {
  int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  int listener = -1;
  *failed = "open a netlink socket";
  bool done = netlink >= 0;
  if (done) {
    *failed = "give loopback an address";
    done = add_own_address(netlink);
  }
  if (done) {
    *failed = "listen";
    listener = listen_anywhere();
    done = listener >= 0;
  }
  if (done) {
    *failed = "direct connections to the listener";
    done = direct_to(listener);
  }
  if (done) {
    *failed = "make every address local";
    done = add_route_of_everything(netlink) && add_rules(netlink);
  }
  int error = errno;
  if (netlink >= 0) close(netlink);
  if (!done && listener >= 0) close(listener);
  errno = error;
  return done ? listener : -1;
}
