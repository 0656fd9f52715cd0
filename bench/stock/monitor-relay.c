/*
 * Relays lines between standard input and output and QEMU's monitor, a unix socket, and does the one
 * thing that Node cannot: hands QEMU an open file. A line "@PATH " + JSON opens PATH for writing, anew,
 * and sends the descriptor along with the JSON, as the command `getfd` wants it.
 *
 *     monitor-relay SOCKET
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void write_all(int to, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(to, bytes, count);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("write");
        bytes += done;
        count -= (size_t)done;
    }
}

static int connected(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int monitor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(path) >= sizeof address.sun_path) exit(1);
    strcpy(address.sun_path, path);
    if (monitor < 0 || connect(monitor, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    return monitor;
}

static void send_with_file(int monitor, const char *path, char *text)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = text, .iov_len = strlen(text)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) fail(path);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof file);
    if (sendmsg(monitor, &message, 0) != (ssize_t)part.iov_len) fail("sendmsg");
    close(file);
}

static void take_line(int monitor, char *line)
{
    char *rest = line[0] == '@' ? strchr(line, ' ') : NULL;
    if (rest == NULL) {
        write_all(monitor, line, strlen(line));
        return;
    }
    *rest = '\0';
    send_with_file(monitor, line + 1, rest + 1);
}

int main(int argc, char **argv)
{
    static char line[65536], chunk[65536];
    size_t held = 0;
    if (argc != 2) return 2;
    int monitor = connected(argv[1]);
    struct pollfd ends[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = monitor, .events = POLLIN}};
    for (;;) {
        if (poll(ends, 2, -1) < 0 && errno != EINTR) fail("poll");
        if (ends[1].revents != 0) {
            ssize_t got = read(monitor, chunk, sizeof chunk);
            if (got <= 0) return 0;
            write_all(STDOUT_FILENO, chunk, (size_t)got);
        }
        if (ends[0].revents == 0) continue;
        ssize_t got = read(STDIN_FILENO, line + held, sizeof line - 1 - held);
        if (got <= 0) return 0;
        held += (size_t)got;
        for (char *end; (end = memchr(line, '\n', held)) != NULL;) {
            *end = '\0';
            take_line(monitor, line);
            held -= (size_t)(end + 1 - line);
            memmove(line, end + 1, held);
        }
        if (held == sizeof line - 1) return 1;
    }
}
