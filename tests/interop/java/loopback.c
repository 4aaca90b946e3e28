/* Preloaded: a bind() to the wildcard address becomes a bind() to 127.0.0.1.
   RocketMQ's HA listener takes every interface and has no option against it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>

static const struct in6_addr MAPPED_LOOPBACK = {
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};

int bind(int fd, const struct sockaddr *address, socklen_t size) {
    static int (*real)(int, const struct sockaddr *, socklen_t);
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (!real) real = dlsym(RTLD_NEXT, "bind");
    if (address->sa_family == AF_INET) {
        v4 = *(const struct sockaddr_in *)address;
        if (v4.sin_addr.s_addr == INADDR_ANY) v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return real(fd, (struct sockaddr *)&v4, size);
    }
    if (address->sa_family == AF_INET6) {
        v6 = *(const struct sockaddr_in6 *)address;
        if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) v6.sin6_addr = MAPPED_LOOPBACK;
        return real(fd, (struct sockaddr *)&v6, size);
    }
    return real(fd, address, size);
}
