/*
 * For the images test: the only program of an image. "facts" says what it was started with; anything else
 * counts in memory for ever.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *value(const char *name) {
  const char *found = getenv(name);
  return found != NULL ? found : "";
}

int main(int count, char **arguments) {
  char folder[512] = "", line[256], capabilities[64] = "";
  gid_t groups[64];
  if (count > 1 && strcmp(arguments[1], "facts") == 0) {
    if (getcwd(folder, sizeof folder) == NULL) return 1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
      sscanf(line, "CapEff: %60s", capabilities);
    }
    printf("uid=%u gid=%u groups=", getuid(), getgid());
    int found = getgroups(64, groups);
    for (int i = 0; i < found; i++) printf("%s%u", i > 0 ? "," : "", groups[i]);
    printf(" folder=%s HOME=%s GREETING=%s capabilities=%s", folder, value("HOME"),
           value("GREETING"), capabilities);
    for (int i = 2; i < count; i++) printf(" %s", arguments[i]);
    printf("\n");
    return 0;
  }
  for (unsigned long number = 0;; number++) {
    printf("%s %lu\n", count > 1 ? arguments[1] : "", number);
    fflush(stdout);
    usleep(100000);
  }
}
