/* See port.h. */
#include "port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "text_file.h"

#define PORTS "/sys/class/virtio-ports"
#define DRIVER "/sys/bus/virtio/drivers/virtio_console"
#define PORT_ENTRY_MAX 64

/* The name of the virtio device that the port belongs to, noted when it was opened. */
static char device_name[PORT_ENTRY_MAX];

static bool is_ours(const char *entry) {
  char path[sizeof PORTS + PORT_ENTRY_MAX + 8];
  char name[128] = "";
  snprintf(path, sizeof path, PORTS "/%.*s/name", PORT_ENTRY_MAX, entry);
  text_file_read_at(AT_FDCWD, path, name, sizeof name);
  name[strcspn(name, "\n")] = '\0';
  return strcmp(name, PORT_NAME) == 0;
}

static void note_device(const char *entry) {
  char path[sizeof PORTS + PORT_ENTRY_MAX + 8];
  char real[PATH_MAX];
  snprintf(path, sizeof path, PORTS "/%.*s/device", PORT_ENTRY_MAX, entry);
  if (realpath(path, real) == NULL) return;
  const char *last = strrchr(real, '/') + 1;
  if (strlen(last) < sizeof device_name) strcpy(device_name, last);
}

int port_open(void) {
  DIR *ports = opendir(PORTS);
  if (ports == NULL) return -1;
  char found[PORT_ENTRY_MAX] = "";
  for (struct dirent *entry; found[0] == '\0' && (entry = readdir(ports)) != NULL;) {
    if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof found) continue;
    if (is_ours(entry->d_name)) strcpy(found, entry->d_name);
  }
  closedir(ports);
  if (found[0] == '\0') {
    errno = ENOENT;
    return -1;
  }
  char device[PORT_ENTRY_MAX + 8];
  snprintf(device, sizeof device, "/dev/%s", found);
  int port = open(device, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (port >= 0) note_device(found);
  return port;
}

void port_rebind(void) {
  text_file_write_at(AT_FDCWD, DRIVER "/unbind", device_name);
  text_file_write_at(AT_FDCWD, DRIVER "/bind", device_name);
}
