/* A server that does nothing: what a message costs on this machine whatever a broker is written in.
   It answers a frame by one of the size that the frame asks for in the four bytes behind its length.
   Started by whole.py with the port to listen on; nothing.py is the same on the broker's loop. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 1 << 17, OUT = 1 << 21, READY = 64 };

struct peer {
    int fd;
    size_t held;
    char room[ROOM];
};

static char out[OUT];

static void stop(const char *what)
{
    perror(what);
    exit(1);
}

static uint32_t number(const char *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void send_all(int fd, size_t size)
{
    /* Blocking is right here: a client that does not read is to be waited for. */
    for (size_t sent = 0; sent < size;) {
        ssize_t more = send(fd, out + sent, size - sent, MSG_NOSIGNAL);
        if (more <= 0) {
            return;
        }
        sent += (size_t)more;
    }
}

/* Answer what is whole, in one write; keep what is not. */
static void answer(struct peer *peer)
{
    size_t at = 0, said = 0;
    while (peer->held - at >= 8) {
        size_t end = at + 4 + number(peer->room + at);
        uint32_t wanted = number(peer->room + at + 4);
        if (end > peer->held) {
            break;
        }
        if (wanted < 4 || said + wanted > OUT) {
            stop("an answer of a size that there is no room for");
        }
        uint32_t length = htonl(wanted - 4);
        memcpy(out + said, &length, 4);
        said += wanted;
        at = end;
    }
    memmove(peer->room, peer->room + at, peer->held - at);
    peer->held -= at;
    if (said) {
        send_all(peer->fd, said);
    }
}

static void watch(int poll, int fd, void *who)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = who};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) {
        stop("epoll_ctl");
    }
}

static void let_in(int poll, int door)
{
    int one = 1;
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer || (peer->fd = accept(door, NULL, NULL)) < 0) {
        stop("accept");
    }
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(poll, peer->fd, peer);
}

static void serve(struct peer *peer)
{
    ssize_t more = recv(peer->fd, peer->room + peer->held, ROOM - peer->held, 0);
    if (more <= 0) {
        close(peer->fd);
        free(peer);
        return;
    }
    peer->held += (size_t)more;
    answer(peer);
}

int main(int count, char **words)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event ready[READY];
    int door = socket(AF_INET, SOCK_STREAM, 0), one = 1, poll = epoll_create1(0);
    address.sin_port = htons((uint16_t)(count > 1 ? atoi(words[1]) : 0));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (struct sockaddr *)&address, sizeof address) || listen(door, 64)) {
        stop("listen");
    }
    watch(poll, door, NULL);
    for (;;) {
        int found = epoll_wait(poll, ready, READY, -1);
        for (int nth = 0; nth < found; nth++) {
            if (ready[nth].data.ptr) {
                serve(ready[nth].data.ptr);
            } else {
                let_in(poll, door);
            }
        }
    }
}
