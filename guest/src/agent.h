/* What the whole agent knows about itself. Set once at start, except for the generation. */
#ifndef PERDURE_AGENT_H
#define PERDURE_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#define AGENT_VERSION "0.1.0"
/* This text is found in the program file by whoever builds an image: keep it in one piece. */
#define AGENT_LINE "perdure-guest " AGENT_VERSION " protocol 3"

struct agent {
  bool is_test;           /* serves a descriptor on an ordinary host, which it must not change */
  const char *run_folder; /* /run/perdure in a VM */
  const char *hook_folder;
  char boot_id[64]; /* the kernel's own, read before anything was bound over it */
  uint64_t generation;
  bool shutting_down;
};

extern struct agent agent;

#endif
