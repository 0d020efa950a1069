/* Agents that speak at a pace: CONNS connections of PER streams each, RATE tokens a second a stream,
 * one non-blocking send(2) for BURST tokens; with 1 it is as the client does it.
 *
 * offer SOCKET CONNS PER RATE BURST
 *
 * stdin, once:   per connection u32 (host order) and so many bytes: its Hello and Starts.
 * stdin, lines:  "run SECONDS"  speak; answers one line of JSON
 *                "sent STREAM"  answers {"seq": last seq the kernel took of it}
 *                "end"          End and Release on every stream
 *                EOF            exit
 *
 * A token is five bytes, four hex digits of its seq and a space, so that a reader can tell what a
 * reply must be. What the kernel does not take is owed and sent before the stream's
 * next; a connection that is full is left alone for 5 ms, as poll(2) would leave it.
 * What the daemon says is read and thrown away, about once a second a connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FRAME 24 /* u32 length, 94 03 ce stream ce seq c5 length, text */
#define BURST_MAX 8

static int conns, per, burst, *fds;
static uint32_t *sent, *owed;
static double *full_until;

static void die(const char *what) {
    fprintf(stderr, "offer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void put32(unsigned char *to, uint32_t value) {
    to[0] = value >> 24, to[1] = value >> 16, to[2] = value >> 8, to[3] = value;
}

/* Stream s is number s / conns + 1 of connection s % conns: neighbours in time are on other
 * connections. */
static int ids(unsigned char *frame, int s, uint32_t seq) {
    frame[6] = 0xce, frame[11] = 0xce;
    put32(frame + 7, s / conns + 1);
    put32(frame + 12, seq);
    return fds[s % conns];
}

static int speak(int s) {
    static const char hex[] = "0123456789abcdef";
    static unsigned char frames[BURST_MAX * FRAME];
    int fd = -1, length = burst * FRAME;
    for (int b = 0; b < burst; b++) {
        unsigned char *frame = frames + b * FRAME;
        uint32_t seq = sent[s] + 1 + b;
        memcpy(frame, "\0\0\0\x14\x94\x03", 6);
        fd = ids(frame, s, seq);
        frame[16] = 0xc5, frame[17] = 0, frame[18] = 5;
        for (int i = 0; i < 4; i++) frame[19 + i] = hex[seq >> (12 - 4 * i) & 15];
        frame[23] = ' ';
    }
    ssize_t taken = send(fd, frames, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken == length) {
        sent[s] += burst;
        return 1;
    }
    if (taken >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) die("send");
    return 0;
}

static void hear(int fd) {
    char words[65536];
    ssize_t got = recv(fd, words, sizeof words, MSG_DONTWAIT);
    if (got == 0) die("the daemon closed a connection");
}

static void all(int fd, const unsigned char *bytes, size_t length) {
    while (length) {
        ssize_t taken = send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (taken < 0) {
            struct pollfd room = {fd, POLLOUT, 0};
            if (errno != EAGAIN) die("send");
            poll(&room, 1, 1000);
            hear(fd);
            continue;
        }
        bytes += taken, length -= taken;
    }
}

static double cpu(void) {
    struct rusage cost;
    getrusage(RUSAGE_SELF, &cost);
    return cost.ru_utime.tv_sec + cost.ru_stime.tv_sec +
           (cost.ru_utime.tv_usec + cost.ru_stime.tv_usec) / 1e6;
}

static void run(double seconds, double rate) {
    long streams = (long)conns * per, due = 0, offered = 0, taken = 0, refused = 0;
    double per_second = rate / burst * streams, begun = now(), late = 0, at;
    double before = cpu(); /* connecting, and earlier runs, are not this one's */
    int listened = 0;
    double heard = begun;
    while ((at = now()) < begun + seconds) {
        long until = (long)((at - begun) * per_second);
        if (until == due) {
            struct timespec millisecond = {0, 1000000};
            nanosleep(&millisecond, NULL);
            continue;
        }
        double behind = at - begun - (due + 1) / per_second;
        if (behind > late) late = behind;
        for (long end = until < due + 4096 ? until : due + 4096; due < end; due++) {
            int s = due % streams;
            offered++;
            owed[s]++;
            if (full_until[s % conns] > at) continue;
            while (owed[s] && speak(s)) owed[s]--, taken++;
            if (owed[s]) refused++, full_until[s % conns] = at + 0.005;
        }
        for (long end = (long)((at - heard) * conns); listened < end; listened++)
            hear(fds[listened % conns]);
    }
    at = now();
    for (int s = 0; s < streams; s++) /* what is owed gets ten more seconds */
        while (owed[s] && now() < at + 10) {
            if (speak(s)) owed[s]--, taken++;
            else usleep(1000), hear(fds[s % conns]);
        }
    printf("{\"seconds\": %.6f, \"due\": %.0f, \"offered\": %ld, \"taken\": %ld, \"eagain\": %ld, "
           "\"late_seconds\": %.6f, \"cpu_seconds\": %.3f}\n",
           at - begun, seconds * rate * streams, offered * burst, taken * burst, refused, late,
           cpu() - before);
    fflush(stdout);
}

static void end(void) {
    for (int s = 0; s < conns * per; s++) {
        unsigned char frames[17 + 16] = {0, 0, 0, 13, 0x94, 15};
        int fd = ids(frames, s, sent[s] + 1);
        frames[16] = 0xc3;
        unsigned char *release = frames + 17;
        release[0] = release[1] = release[2] = 0;
        release[3] = 12, release[4] = 0x93, release[5] = 16;
        ids(release, s, sent[s] + 2);
        all(fd, frames, sizeof frames);
    }
    puts("{}");
    fflush(stdout);
}

int main(int count, char **words) {
    if (count != 6) return 64;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strncpy(name.sun_path, words[1], sizeof name.sun_path - 1);
    conns = atoi(words[2]), per = atoi(words[3]);
    double rate = atof(words[4]);
    burst = atoi(words[5]);
    if (burst < 1 || burst > BURST_MAX) return 64;
    fds = calloc(conns, sizeof *fds);
    sent = calloc((size_t)conns * per, sizeof *sent);
    owed = calloc((size_t)conns * per, sizeof *owed);
    full_until = calloc(conns, sizeof *full_until);
    for (int c = 0; c < conns; c++) {
        uint32_t length;
        int room = 4 << 20;
        if (fread(&length, 4, 1, stdin) != 1) die("opening");
        unsigned char *opening = malloc(length);
        if (fread(opening, 1, length, stdin) != length) die("opening");
        fds[c] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[c] < 0 || connect(fds[c], (struct sockaddr *)&name, sizeof name)) die("connect");
        setsockopt(fds[c], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        all(fds[c], opening, length);
        free(opening);
    }
    printf("{}\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "run ", 4)) run(atof(line + 4), rate);
        else if (!strncmp(line, "end", 3)) end();
        else if (!strncmp(line, "sent ", 5)) {
            printf("{\"seq\": %u}\n", sent[atoi(line + 5)]);
            fflush(stdout);
        }
    }
    return 0;
}
