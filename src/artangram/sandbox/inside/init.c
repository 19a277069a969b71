/* The loop of init.py in C, for sandboxes that are namespaces: same requests, same replies.
 *
 * - Loaded by the zygote before it clones, entered by a sandbox when it is isolated: `serve`
 *   never returns. From then on no Python runs, so a sandbox shares the interpreter's memory.
 * - Requests come from the trusted side only. Of the untrusted side it reads nothing but /proc.
 * - request.py has the layout of requests, init.py that of replies; both are little-endian, so is
 *   every machine this is built for.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RUN, END, READ, WRITE, CHANGES, STOP, CONTINUE, LEARN, SIGNAL, END_PARALLEL };
enum { READY, FAILED, EXITED, NOT_STARTED, DONE, REFUSED, OUTPUT };
enum { TIMED_OUT = 1, CANCELLED = 2, WITH_OUTLETS = 4 };
enum { KEEP = 1, WATCHED = 2, HAS_STDIN = 4, MOVES = 8, RESTS = 16, BESIDE = 32, PARALLEL = 64, TERMINAL = 128 };
enum { MEASURES = 1, NO_DIRECTORY = 1 << 16 };
enum { INLINE_BYTES = 64 << 10, MAX_DESCRIPTORS = 8, MAX_GROUPS = 1024, ROUNDS_BEFORE_ALL = 20 };
enum { REST };
enum { MOST_PARALLEL = 64, TIMES_TO_LOOK = 8 };
enum { WINDOW = -1 }; /* in the place of a limit: rows << 16 | columns of a terminal */
enum { OPENAT2 = 437, NO_MAGICLINKS = 2 }; /* the same on every machine */
/* A command that ends sooner has its output in its reply: to watch pipes costs a tenth of it. */
static const double WATCH_AFTER_S = 0.002;
/* By the interpreter we come from; programs expect the defaults, and PID 1 is immune to those. */
static const int LEFT_IGNORED[] = {SIGPIPE, SIGXFSZ, SIGINT};

struct request {
    uint64_t number;
    uint8_t verb, flags;
    uint32_t num_words, num_environ, num_limits;
    int32_t mode;
    double timeout_s;
} __attribute__((packed));

struct limit {
    int32_t kind;
    int64_t soft;
} __attribute__((packed));

struct reply {
    uint64_t number;
    uint8_t kind;
    int32_t status, flags;
    int64_t figures[9];
} __attribute__((packed));

/* From the zygote: descriptors (-1 where one is missing), scores. */
struct setting {
    int sock, children, upper, score_file, peak_file, ooms_file;
    char sheltered[8], exposed[8];
};

struct alive {
    pid_t pid, parent;
    long session;
    unsigned long long start;
};

/* Processes that may outlive commands: see KeptProcesses in processes.py. */
struct kept {
    struct alive *all;
    size_t count;
};

static struct setting at;
static struct {
    pid_t main;
    uint64_t number, end_number;
    int flags, keep, num_ended;
    int is_dead, status; /* it was reaped, and that is not answered yet */
    long max_rss_kb;
    double began_at, ends_at;
    int64_t cpu_us; /* of all processes reaped since it began */
    int outlets[2]; /* where its output is read, until they are handed out; else -1 */
    int inlets[2];  /* where it writes; ours are closed as late, out of its way */
} now_running = {.outlets = {-1, -1}, .inlets = {-1, -1}};
/* Commands that run beside the main one and beside each other; `pid` is 0 in a free slot. */
static struct parallel {
    pid_t pid;
    uint64_t number;
    int flags, is_dead, status;
    long max_rss_kb;
    int64_t cpu_us;
    double began_at, ends_at;
} parallels[MOST_PARALLEL];
static int num_parallel;
/* Pipes made ahead, after an answer: the next command does not wait for them. */
static struct pipes {
    int outlets[2], inlets[2];
} ahead = {{-1, -1}, {-1, -1}};
static struct kept kept;
/* Why a child with a memory of its own could not become a program, 0 if it could: first of the main
 * command, then of the parallel ones. */
static volatile int *told;
static int has_run; /* a sandbox that ran one command will run another */
static int is_peak_new; /* nothing can have changed it since it began */
/* `tasks` files of control groups by number, 0 where none is known; and the one we are in. */
static int groups[MAX_GROUPS];
static int joined = -1, rests;
static int ran_beside, is_urgent = 1;
static struct rlimit open_files; /* of a command */
/* One request at a time, and never while a reply is put together. */
static char inbox[INLINE_BYTES + 16];

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct parallel *parallel_of(pid_t pid)
{
    for (int i = 0; num_parallel && i < MOST_PARALLEL; i++)
        if (parallels[i].pid == pid)
            return &parallels[i];
    return NULL;
}

/* As wait4. How a command ended is noted for `settle`; what else was reaped counts for the main one. */
static pid_t reap_any(pid_t pid, int options)
{
    struct rusage used;
    int status;
    pid_t found = wait4(pid, &status, options | __WALL, &used);
    if (found <= 0)
        return found;
    int64_t cpu_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * INT64_C(1000000) +
                     used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    struct parallel *one = parallel_of(found);
    if (one) {
        one->is_dead = 1;
        one->status = status;
        one->max_rss_kb = used.ru_maxrss;
        one->cpu_us = cpu_us;
        return found;
    }
    now_running.cpu_us += cpu_us;
    if (found == now_running.main) {
        now_running.is_dead = 1;
        now_running.status = status;
        now_running.max_rss_kb = used.ru_maxrss;
    }
    return found;
}

/* `text` follows the reply, `fds` go with it. */
static void answer_with(const struct reply *reply, const char *text, size_t size, const int *fds,
                        size_t num_fds)
{
    char room[CMSG_SPACE(sizeof(int) * 2)] = {0};
    struct iovec parts[] = {{(void *)reply, sizeof *reply}, {(void *)text, size}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = size ? 2 : 1};
    if (num_fds) {
        message.msg_control = room;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * num_fds);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * num_fds);
        memcpy(CMSG_DATA(rights), fds, sizeof(int) * num_fds);
    }
    if (sendmsg(at.sock, &message, MSG_NOSIGNAL) < 0)
        _exit(0); /* the caller is gone */
}

static void answer(const struct reply *reply, int fd)
{
    answer_with(reply, NULL, 0, &fd, fd >= 0);
}

static void answer_kind(uint64_t number, int kind, int status)
{
    struct reply reply = {.number = number, .kind = (uint8_t)kind, .status = status};
    answer(&reply, -1);
}

/* If other sandboxes ran beside us, we preempt nothing when we are woken, nor while our command is
 * new: our caller is on one of the cores, with orders for others. Alone, we run at once. */
static void be_urgent(int urgent)
{
    const struct sched_param unused = {0};
    int policy = urgent ? SCHED_OTHER : SCHED_BATCH;
    if (urgent != is_urgent && !sched_setscheduler(0, policy | SCHED_RESET_ON_FORK, &unused))
        is_urgent = urgent;
}

/* -- processes ---------------------------------------------------------------------------- */

/* 0 if `pid` is dead or gone. */
static int look_at(pid_t pid, struct alive *found)
{
    char path[32] = "/proc/", text[1024], *end, *field;
    char digits[12];
    int length = 0, fd;
    for (pid_t rest = pid; rest; rest /= 10)
        digits[length++] = (char)('0' + rest % 10);
    for (int i = 0; i < length; i++)
        path[6 + i] = digits[length - 1 - i];
    strcpy(path + 6 + length, "/stat");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0)
        return 0;
    text[size] = 0;
    end = strrchr(text, ')'); /* a program chooses its own name, but not what follows it */
    if (!end || end[1] != ' ')
        return 0;
    int is_dead = end[2] == 'Z' || end[2] == 'X';
    field = end + 2;
    found->pid = pid;
    for (int number = 0; number <= 19; number++) {
        if (number == 1)
            found->parent = (pid_t)strtol(field, NULL, 10);
        if (number == 3)
            found->session = strtol(field, NULL, 10);
        if (number == 17 && is_dead && strtol(field, NULL, 10) <= 1)
            return 0; /* else only its first thread is dead */
        if (number == 19)
            found->start = strtoull(field, NULL, 10);
        field = strchr(field, ' ');
        if (!field)
            return number >= 19;
        field++;
    }
    return 1;
}

/* All processes of the namespace but us; the caller frees the list. */
static struct kept all_processes(void)
{
    struct kept found = {NULL, 0};
    size_t room = 0;
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    while (proc && (entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        struct alive one;
        if (pid <= 1 || !look_at(pid, &one))
            continue;
        if (found.count == room) {
            room = room ? 2 * room : 16;
            struct alive *more = realloc(found.all, room * sizeof *more);
            if (!more)
                break;
            found.all = more;
        }
        found.all[found.count++] = one;
    }
    if (proc)
        closedir(proc);
    return found;
}

static void keep_these(struct kept these)
{
    free(kept.all);
    kept = these;
}

static int is_kept(const struct alive *one)
{
    for (size_t i = 0; i < kept.count; i++) {
        const struct alive *other = &kept.all[i];
        if (one->session == other->session ||
            (one->pid == other->pid && one->start == other->start))
            return 1;
    }
    return 0;
}

static int is_command(pid_t pid)
{
    const struct parallel *one = parallel_of(pid);
    return (one && !one->is_dead) || (pid == now_running.main && !now_running.is_dead);
}

/* The command that a process descends from, 0 if none that still runs. Each command adopts
 * its orphans, so its tree is whole for as long as it lives; -1 for a process that is gone. */
static pid_t owner_of(pid_t pid)
{
    if (!num_parallel && !(now_running.main && !now_running.is_dead))
        return 0;
    for (int times = 0; times < TIMES_TO_LOOK; times++) {
        struct alive one;
        pid_t above = pid;
        while (!is_command(above) && look_at(above, &one)) {
            if (one.parent <= 1)
                return 0;
            above = one.parent;
        }
        if (is_command(above))
            return above;
        if (above == pid)
            return -1;
    } /* one above it has ended meanwhile, so that it has another parent now */
    return 0;
}

/* Leave out the processes of commands. */
static struct kept without_owners(struct kept found)
{
    size_t count = 0;
    for (size_t i = 0; i < found.count; i++)
        if (!owner_of(found.all[i].pid))
            found.all[count++] = found.all[i];
    found.count = count;
    return found;
}

/* -- ending ------------------------------------------------------------------------------- */

/* Kill and reap all other processes; how many there were, dead ones included. */
static int end_all_processes(void)
{
    int count = 0;
    kill(-1, SIGKILL);
    while (reap_any(-1, 0) > 0)
        count++;
    return count;
}

/* Kill and reap what is neither kept nor of a command that runs. How many those are; they come first in
 * `found` then, and where all are kept it has those. */
static int kill_leftovers(struct kept *found)
{
    size_t count = 0, num_kept = 0;
    for (size_t i = 0; i < found->count; i++) {
        struct alive one = found->all[i];
        if (is_kept(&one) || owner_of(one.pid))
            continue;
        found->all[i] = found->all[count];
        found->all[count++] = one;
        kill(one.pid, SIGKILL);
    }
    /* Twice: what was a grandchild in the first pass is our child in the second. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++)
            reap_any(found->all[i].pid, 0);
    for (size_t i = 0; !count && i < found->count; i++)
        if (is_kept(&found->all[i]))
            found->all[num_kept++] = found->all[i];
    if (!count)
        found->count = num_kept;
    return (int)count;
}

/* Reap our dead children. Sets how many; returns whether any children are left. */
static int reap_dead(int *count)
{
    pid_t pid;
    for (*count = 0; (pid = reap_any(-1, WNOHANG)) > 0;)
        ++*count;
    return pid == 0;
}

/* Kill and reap all but the kept; how many were alive. */
static int end_others(void)
{
    int killed = 0, num_dead;
    int is_anybody_left = reap_dead(&num_dead);
    /* All processes here descend from us, and orphans become ours: without a child nothing is left.
     * kill(-1) visits every process of the machine, so it is not called in vain. */
    if (!kept.count && !num_parallel && !(now_running.main && !now_running.is_dead))
        return is_anybody_left ? end_all_processes() : 0;
    for (int round = 0; round < ROUNDS_BEFORE_ALL; round++) {
        struct kept found = all_processes();
        int count = kill_leftovers(&found);
        reap_dead(&num_dead);
        if (!count && !num_dead) { /* one that died while we looked may have left a child */
            keep_these(found);
            return killed;
        }
        free(found.all);
        killed += count;
    }
    /* It forks faster than we look: nothing may outlive the command, so the kept ones go too. */
    keep_these((struct kept){NULL, 0});
    return killed + end_all_processes();
}

/* Kill a command and what descends from it, itself last: its orphans would be ours. */
static void kill_tree(pid_t leader)
{
    struct kept found = all_processes();
    for (size_t i = 0; i < found.count; i++)
        if (found.all[i].pid != leader && owner_of(found.all[i].pid) == leader)
            kill(found.all[i].pid, SIGKILL);
    free(found.all);
    kill(leader, SIGKILL);
}

/* The time limit has passed or the caller ended it: its processes end, and the kept ones. */
static void end_main(int flag)
{
    be_urgent(1);
    now_running.flags |= flag;
    now_running.keep = 0;
    keep_these((struct kept){NULL, 0});
    if (num_parallel)
        kill_tree(now_running.main);
    else
        kill(-1, SIGKILL);
}

static void end_parallel(struct parallel *one, int flag)
{
    be_urgent(1);
    if (!one->flags && !one->is_dead)
        kill_tree(one->pid);
    one->flags |= flag;
}

/* -- output and memory ---------------------------------------------------------------------- */

static void close_all(int *fds)
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static void close_pipes(void)
{
    close_all(now_running.outlets);
    close_all(now_running.inlets);
}

/* Make the pipes that are missing. 0 or an error number. */
static int open_ahead(void)
{
    int ends[2];
    for (int i = 0; i < 2; i++) {
        if (ahead.outlets[i] >= 0)
            continue;
        if (pipe2(ends, O_CLOEXEC) || fcntl(ends[0], F_SETFL, O_NONBLOCK))
            return errno;
        ahead.outlets[i] = ends[0];
        ahead.inlets[i] = ends[1];
    }
    return 0;
}

/* Two pipes: where a command writes, and where that is read. */
static int take_pipes(void)
{
    int problem = open_ahead();
    if (problem)
        return problem;
    memcpy(now_running.outlets, ahead.outlets, sizeof ahead.outlets);
    memcpy(now_running.inlets, ahead.inlets, sizeof ahead.inlets);
    ahead = (struct pipes){{-1, -1}, {-1, -1}};
    return 0;
}

/* From now on the caller reads what the command prints: it is no longer new. */
static void hand_out_outlets(void)
{
    be_urgent(1);
    struct reply reply = {.number = now_running.number, .kind = OUTPUT};
    answer_with(&reply, NULL, 0, now_running.outlets, 2);
    close_pipes();
}

/* What is in a pipe, `size` bytes at most; how many that were. */
static size_t drain(int fd, char *room, size_t size)
{
    size_t taken = 0;
    ssize_t some;
    while (taken < size && (some = read(fd, room + taken, size - taken)) > 0)
        taken += (size_t)some;
    return taken;
}

/* The last answer about a command: with its output, or with what it can be read from. */
static void answer_exited(struct reply *reply)
{
    int sizes[2] = {0, 0};
    int is_here = now_running.outlets[0] >= 0;
    for (int i = 0; is_here && i < 2; i++)
        ioctl(now_running.outlets[i], FIONREAD, &sizes[i]);
    if (sizes[0] + sizes[1] > INLINE_BYTES / 2) {
        reply->flags |= WITH_OUTLETS;
        answer_with(reply, NULL, 0, now_running.outlets, 2);
    } else {
        size_t num_out = sizes[0] ? drain(now_running.outlets[0], inbox, (size_t)sizes[0]) : 0;
        size_t num_err =
            sizes[1] ? drain(now_running.outlets[1], inbox + num_out, (size_t)sizes[1]) : 0;
        reply->figures[7] = (int64_t)num_out;
        reply->figures[8] = (int64_t)num_err;
        answer_with(reply, inbox, num_out + num_err, NULL, 0);
    }
    close_pipes();
}

/* The number in a file after `name`; -1 if it is not there. */
static int64_t number_in(int fd, const char *name)
{
    char text[1024];
    ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (size <= 0)
        return -1;
    text[size] = 0;
    const char *found = strstr(text, name);
    return found ? strtoll(found + strlen(name), NULL, 10) : -1;
}

/* Whether the command could not start; then that is answered, and no other process ends. */
static int finish_unstarted(void)
{
    int problem = told ? *told : 0;
    if (!problem)
        return 0;
    *told = 0;
    if (now_running.flags)
        return 0;
    now_running.main = now_running.is_dead = 0;
    close_pipes();
    answer_kind(now_running.number, NOT_STARTED, problem);
    return 1;
}

/* The main command was reaped: end what it left, and answer. */
static void finish(void)
{
    if (finish_unstarted())
        return;
    int killed = 0;
    int64_t run_us = (int64_t)((monotonic() - now_running.began_at) * 1e6);
    if (now_running.flags)
        killed = now_running.num_ended + (num_parallel ? end_others() : end_all_processes());
    else if (now_running.keep)
        keep_these(without_owners(all_processes()));
    else
        killed = end_others();
    struct reply reply = {
        .number = now_running.number,
        .kind = EXITED,
        .status = now_running.status,
        .flags = now_running.flags,
        .figures = {now_running.cpu_us, now_running.max_rss_kb, killed, (int64_t)kept.count, run_us,
                    number_in(at.peak_file, ""), number_in(at.ooms_file, "oom_kill ")},
    };
    now_running.main = now_running.is_dead = 0;
    now_running.flags = 0;
    answer_exited(&reply);
    if (now_running.end_number)
        answer_kind(now_running.end_number, DONE, 0);
    now_running.end_number = 0;
}

static void finish_parallel(int slot)
{
    struct parallel one = parallels[slot];
    int problem = told[slot + 1];
    parallels[slot].pid = 0;
    num_parallel--;
    told[slot + 1] = 0;
    if (problem && !one.flags) {
        answer_kind(one.number, NOT_STARTED, problem);
        return;
    }
    int killed = end_others();
    struct reply reply = {
        .number = one.number,
        .kind = EXITED,
        .status = one.status,
        .flags = one.flags,
        .figures = {one.cpu_us, one.max_rss_kb, killed, (int64_t)kept.count,
                    (int64_t)((monotonic() - one.began_at) * 1e6), number_in(at.peak_file, ""),
                    number_in(at.ooms_file, "oom_kill ")},
    };
    answer(&reply, -1);
}

/* Answer for every command that was reaped; to end what one left may reap another. */
static void settle(void)
{
    int found = 1;
    while (found) {
        found = 0;
        if (now_running.main && now_running.is_dead && ++found)
            finish();
        for (int i = 0; num_parallel && i < MOST_PARALLEL; i++)
            if (parallels[i].pid && parallels[i].is_dead && ++found)
                finish_parallel(i);
    }
}

/* Answer if the command has ended. */
static void reap_main(void)
{
    if (reap_any(now_running.main, WNOHANG) > 0)
        settle();
}

static void reap(void)
{
    char signals[4096];
    pid_t pid;
    if (now_running.main)
        reap_main(); /* first: the caller waits only for this one */
    if (read(at.children, signals, sizeof signals) < 0 && errno != EAGAIN)
        return;
    while ((pid = reap_any(-1, WNOHANG)) > 0)
        if (pid != now_running.main && now_running.flags && !parallel_of(pid))
            now_running.num_ended++; /* by us: see end_main */
    settle();
}

/* -- starting ----------------------------------------------------------------------------- */

static char *next_text(char **rest)
{
    char *text = *rest;
    *rest += strlen(text) + 1;
    return text;
}

/* The file to start, by the command's own PATH, not by ours. 0 or an error number. */
static int find_program(const char *name, char **environ, char *path, size_t room)
{
    int problem = ENOENT;
    const char *folders = "";
    if (strchr(name, '/')) {
        if (strlen(name) >= room)
            return ENAMETOOLONG;
        strcpy(path, name);
        return 0;
    }
    for (; *environ; environ++)
        if (!strncmp(*environ, "PATH=", 5))
            folders = *environ + 5;
    for (;;) {
        size_t length = strcspn(folders, ":");
        if (length + strlen(name) + 3 <= room) {
            memcpy(path, length ? folders : ".", length ? length : 1);
            strcpy(path + (length ? length : 1), "/");
            strcat(path, name);
            if (!access(path, X_OK))
                return 0;
            if (!access(path, F_OK))
                problem = EACCES;
        }
        if (!folders[length])
            return problem;
        folders += length + 1;
    }
}

struct order {
    char *cwd, **argv, **environ;
    const struct limit *limits;
    uint32_t num_limits;
    const int *fds;
    int has_terminal;
};

/* Init, in whichever process: the file is that of init. */
static void shelter(void)
{
    pwrite(at.score_file, at.sheltered, strlen(at.sheltered), 0);
}

static int lower_limits(const struct order *order)
{
    for (uint32_t i = 0; i < order->num_limits; i++) {
        struct rlimit both;
        if (order->limits[i].kind == WINDOW)
            continue;
        if (getrlimit(order->limits[i].kind, &both))
            return errno;
        rlim_t soft = (rlim_t)order->limits[i].soft;
        both.rlim_cur = both.rlim_max != RLIM_INFINITY && soft > both.rlim_max ? both.rlim_max : soft;
        if (setrlimit(order->limits[i].kind, &both))
            return errno;
    }
    return 0;
}

/* In the child, which borrows our memory until it is another program. Returns an error number. */
static int become(const struct order *order)
{
    char path[PATH_MAX + 256];
    const struct sched_param unused = {0};
    sigset_t none;
    int problem;
    shelter(); /* init, which is not to be chosen before us; what we were forked with stays ours */
    if (!is_urgent && sched_setscheduler(0, SCHED_OTHER, &unused))
        return errno;
    if (chdir(order->cwd))
        return errno | NO_DIRECTORY;
    if ((problem = find_program(order->argv[0], order->environ, path, sizeof path)))
        return problem;
    /* Where the kernel groups by session, a bomb then shares no group with us, so we end it on time. */
    if (setsid() < 0)
        return errno;
    for (int number = 0; number < 3; number++)
        if (dup2(order->fds[number], number) < 0)
            return errno;
    if (order->has_terminal && ioctl(0, TIOCSCTTY, 0))
        return errno;
    /* Its orphans become its own: by that we tell its processes from those of other commands. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        return errno;
    if (setrlimit(RLIMIT_NOFILE, &open_files))
        return errno;
    if ((problem = lower_limits(order)))
        return problem;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(path, order->argv, order->environ);
    return errno;
}

/* Kept processes and other commands could stop or starve a child whose exec we wait for, and we would
 * miss its deadline. So this child has a memory of its own, and writes an error number at `place` if its
 * exec fails. */
static pid_t spawn_apart(const struct order *order, int place)
{
    if (!told) {
        void *page = mmap(NULL, sizeof *told * (MOST_PARALLEL + 1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0);
        if (page == MAP_FAILED)
            return -errno;
        told = page;
    }
    told[place] = 0;
    pid_t pid = fork();
    if (pid == 0) {
        told[place] = become(order);
        _exit(127);
    }
    if (pid < 0)
        return -errno;
    shelter(); /* they could have killed it before it did */
    return pid;
}

/* The program's pid, or minus an error number. */
static __attribute__((noinline)) pid_t spawn(const struct order *order)
{
    volatile int problem = 0;
    /* What the child changes of itself, signal handlers included, it must not change of us. */
    pid_t pid = vfork();
    if (pid == 0) {
        problem = become(order);
        _exit(127);
    }
    if (pid < 0)
        return -errno;
    if (problem) {
        reap_any(pid, 0);
        return -problem;
    }
    return pid;
}

static int learn(int number, int *fd)
{
    if (number < 0 || number >= MAX_GROUPS)
        return EINVAL;
    groups[number] = *fd;
    *fd = -1; /* ours from now on */
    return 0;
}

/* Our caller moves the kept processes, while they are frozen and cannot fork. */
static int join(int number)
{
    if (number < 0 || number >= MAX_GROUPS || !groups[number])
        return EBADF;
    if (number == joined)
        return 0;
    if (write(groups[number], "0", 1) < 0)
        return errno;
    joined = number;
    return 0;
}

/* Nothing runs: leave the lent cores. The next command on them would delay us when we are woken.
 * If processes are kept, they stay, and we stay with them. */
static void rest(void)
{
    if (rests && !kept.count)
        join(REST);
    rests = 0;
}

/* Arguments and environment of a request as execve wants them; the caller frees `argv`. */
static int unpack_order(const struct request *request, char *body, struct order *order)
{
    char **words = calloc((size_t)request->num_words + request->num_environ + 2, sizeof *words);
    if (!words)
        return ENOMEM;
    order->limits = (const struct limit *)body;
    order->num_limits = request->num_limits;
    order->argv = words;
    order->environ = words + request->num_words + 1;
    body += request->num_limits * sizeof(struct limit);
    order->cwd = next_text(&body);
    for (uint32_t i = 0; i < request->num_words; i++)
        order->argv[i] = next_text(&body);
    for (uint32_t i = 0; i < request->num_environ; i++)
        order->environ[i] = next_text(&body);
    return 0;
}

static void note_start(const struct request *request, pid_t pid, double began_at)
{
    now_running.main = pid;
    now_running.number = request->number;
    now_running.flags = 0;
    now_running.keep = request->flags & KEEP;
    now_running.num_ended = 0;
    now_running.began_at = began_at;
    now_running.ends_at = began_at + request->timeout_s;
    if (request->flags & WATCHED)
        hand_out_outlets();
}

/* A new peak begins with what is held now. Kept processes may wake between two commands. */
static void begin_peak(void)
{
    if (at.peak_file >= 0 && (!is_peak_new || kept.count))
        pwrite(at.peak_file, "0", 1, 0);
    is_peak_new = 1;
}

/* Start it and answer, if it cannot be started or if it has ended before we had our core back. */
static void run(const struct request *request, const struct order *order)
{
    double began_at = monotonic(); /* before: we may get our core back only when it has ended */
    now_running.cpu_us = 0;
    begin_peak();
    is_peak_new = 0;
    /* The kernel's out-of-memory choice must fall on the command, not on PID 1. */
    pwrite(at.score_file, at.exposed, strlen(at.exposed), 0);
    pid_t pid = kept.count || num_parallel ? spawn_apart(order, 0) : spawn(order);
    if (pid > 0) {
        note_start(request, pid, began_at);
        reap_main();
    } else {
        shelter(); /* no child may have done it */
        answer_kind(request->number, NOT_STARTED, -pid);
    }
}

/* 0, or an error number for a request that could not even be tried. */
static int start(const struct request *request, char *body, const int *fds, int num_fds)
{
    int problem;
    int stdio[3] = {request->flags & HAS_STDIN ? fds[0] : 0}; /* ours is /dev/null */
    struct order order = {.fds = stdio};
    if (now_running.main)
        return EBUSY;
    if (request->flags & HAS_STDIN && !num_fds)
        return EBADF;
    rests = request->flags & RESTS;
    ran_beside = request->flags & BESIDE;
    if (request->flags & MOVES && (problem = join(request->mode)))
        return problem;
    if ((problem = unpack_order(request, body, &order)))
        return problem;
    if (!(problem = take_pipes())) {
        memcpy(stdio + 1, now_running.inlets, sizeof now_running.inlets);
        run(request, &order);
    }
    has_run = 1;
    if (!now_running.main)
        close_pipes();
    free(order.argv);
    return problem;
}

/* A new terminal of the size that the order has: where it is read and written, and what the program gets.
 * 0 or an error number. */
static int open_terminal(const struct order *order, int *ours, int *its)
{
    struct winsize size = {24, 80, 0, 0};
    int unlocked = 0;
    for (uint32_t i = 0; i < order->num_limits; i++)
        if (order->limits[i].kind == WINDOW) {
            size.ws_row = (unsigned short)(order->limits[i].soft >> 16);
            size.ws_col = (unsigned short)order->limits[i].soft;
        }
    *ours = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (*ours < 0 || ioctl(*ours, TIOCSPTLCK, &unlocked) || ioctl(*ours, TIOCSWINSZ, &size))
        return errno;
    *its = ioctl(*ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return *its < 0 ? errno : 0;
}

static void spawn_parallel(const struct request *request, const struct order *order, int slot, int ours)
{
    double began_at = monotonic();
    is_peak_new = 0;
    pwrite(at.score_file, at.exposed, strlen(at.exposed), 0);
    pid_t pid = spawn_apart(order, slot + 1);
    shelter();
    if (pid < 0) {
        answer_kind(request->number, NOT_STARTED, -pid);
        return;
    }
    parallels[slot] = (struct parallel){.pid = pid,
                                        .number = request->number,
                                        .began_at = began_at,
                                        .ends_at = began_at + request->timeout_s};
    num_parallel++;
    struct reply reply = {.number = request->number, .kind = OUTPUT, .figures = {pid}};
    answer(&reply, ours);
}

/* Start a command beside others, on what the caller reads and writes or on a terminal. 0, or an error
 * number for a request that could not even be tried. */
static int start_parallel(const struct request *request, char *body, const int *fds, int num_fds)
{
    int slot = 0, problem = 0, before = joined, ours = -1, its = -1, stdio[3];
    struct order order = {.fds = stdio, .has_terminal = request->flags & TERMINAL};
    while (slot < MOST_PARALLEL && parallels[slot].pid)
        slot++;
    if (slot == MOST_PARALLEL)
        return EMFILE;
    if (!order.has_terminal && num_fds < 3)
        return EBADF;
    if ((problem = unpack_order(request, body, &order)))
        return problem;
    if (order.has_terminal)
        problem = open_terminal(&order, &ours, &its);
    for (int i = 0; i < 3; i++)
        stdio[i] = order.has_terminal ? its : fds[i];
    if (!problem && request->flags & MOVES)
        problem = join(request->mode);
    if (!problem)
        spawn_parallel(request, &order, slot, ours);
    if (request->flags & MOVES && groups[REST])
        join(before >= 0 ? before : REST); /* only the command is to be there */
    if (ours >= 0)
        close(ours);
    if (its >= 0)
        close(its);
    free(order.argv);
    return problem;
}

/* The command that a caller names by the number of its request. */
static struct parallel *parallel_named(const char *text)
{
    uint64_t number = strtoull(text, NULL, 10);
    for (int i = 0; i < MOST_PARALLEL; i++)
        if (parallels[i].pid && parallels[i].number == number)
            return &parallels[i];
    return NULL;
}

/* To its process group, as a terminal does it. It may have ended: then the signal reaches nothing. */
static void signal_parallel(const struct parallel *one, int number)
{
    if (one && !one->is_dead && kill(-one->pid, number))
        kill(one->pid, number);
}

/* -- files: see files.py ------------------------------------------------------------------ */

static int check_regular(int fd)
{
    struct stat about, proc;
    if (fstat(fd, &about) || stat("/proc", &proc))
        return errno;
    if (S_ISDIR(about.st_mode))
        return EISDIR;
    return S_ISREG(about.st_mode) && about.st_dev != proc.st_dev ? 0 : EINVAL;
}

/* Through no link of /proc that leads to what a process holds open: ours are not all files. */
static int open_by_name(const char *path, int flags, int mode)
{
    flags |= O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    uint64_t how[] = {(uint64_t)flags, (uint64_t)mode, NO_MAGICLINKS};
    long fd = syscall(OPENAT2, AT_FDCWD, path, how, sizeof how);
    if (fd < 0 && errno == ENOSYS) /* before Linux 5.6 */
        return open(path, flags, (mode_t)mode);
    return (int)fd;
}

static int hand_out(uint64_t number, const char *path)
{
    int fd = open_by_name(path, O_RDONLY, 0);
    if (fd < 0)
        return errno;
    int problem = check_regular(fd);
    if (!problem) {
        struct reply reply = {.number = number, .kind = DONE};
        answer(&reply, fd);
    }
    close(fd);
    return problem;
}

static int make_parents(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(path, 0777) && errno != EEXIST;
        int problem = errno;
        struct stat about;
        if (failed && !stat(path, &about) && S_ISDIR(about.st_mode))
            failed = 0; /* on a read-only file system it may exist all the same */
        *slash = '/';
        if (failed)
            return problem;
    }
    return 0;
}

static int copy(int source, int target)
{
    ssize_t sent;
    if (ftruncate(target, 0) || lseek(source, 0, SEEK_SET) < 0)
        return errno;
    while ((sent = sendfile(target, source, NULL, 1 << 20)) > 0)
        ;
    return sent < 0 ? errno : 0;
}

static int take_in(char *path, int source, int mode)
{
    int problem = make_parents(path);
    if (problem)
        return problem;
    int fd = open_by_name(path, O_WRONLY | O_CREAT, mode & 07777);
    if (fd < 0)
        return errno;
    problem = check_regular(fd);
    if (!problem)
        problem = copy(source, fd);
    if (!problem && fchmod(fd, (mode_t)mode))
        problem = errno;
    close(fd);
    return problem;
}

/* -- requests ----------------------------------------------------------------------------- */

/* 0 when it was answered or will be; else an error number. */
static int dispatch(const struct request *request, char *body, int *fds, int num_fds)
{
    int problem = 0;
    struct reply reply = {.number = request->number, .kind = DONE};
    switch (request->verb) {
    case RUN:
        if (request->flags & PARALLEL)
            return start_parallel(request, body, fds, num_fds);
        return start(request, body, fds, num_fds);
    case SIGNAL:
        signal_parallel(parallel_named(body), request->mode);
        answer(&reply, -1);
        return 0;
    case END_PARALLEL:
        if (parallel_named(body))
            end_parallel(parallel_named(body), CANCELLED);
        answer(&reply, -1);
        return 0;
    case END:
        if (now_running.main) {
            now_running.end_number = request->number; /* answered when all is over */
            end_main(CANCELLED);
        } else {
            answer(&reply, -1);
        }
        return 0;
    case READ:
        return hand_out(request->number, body);
    case WRITE:
        is_peak_new = 0;
        problem = num_fds < 1 ? EBADF : take_in(body, fds[0], request->mode);
        if (!problem)
            answer(&reply, -1);
        return problem;
    case CHANGES:
        answer(&reply, at.upper);
        return 0;
    case STOP:
    case CONTINUE:
        kill(-1, request->verb == STOP ? SIGSTOP : SIGCONT);
        answer(&reply, -1);
        return 0;
    case LEARN:
        return num_fds < 1 ? EBADF : learn(request->mode, fds);
    default:
        return ENOSYS;
    }
}

/* The bytes of a request, which may be in a file of its own; the caller frees `*held`. */
static char *unpacked(ssize_t *size, int *fds, int *num_fds, char **held)
{
    if (inbox[0] == 'i') {
        *size -= 1;
        inbox[*size + 1] = 0;
        return inbox + 1;
    }
    struct stat about;
    if (!*num_fds || fstat(fds[0], &about) || !(*held = malloc((size_t)about.st_size + 1)))
        return NULL;
    *size = pread(fds[0], *held, (size_t)about.st_size, 0);
    if (*size != about.st_size)
        return NULL;
    (*held)[*size] = 0;
    close(fds[0]);
    memmove(fds, fds + 1, (size_t)--*num_fds * sizeof *fds);
    return *held;
}

static int receive(int *fds, ssize_t *size)
{
    char room[CMSG_SPACE(sizeof(int) * MAX_DESCRIPTORS)];
    struct iovec part = {inbox, sizeof inbox - 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof room};
    *size = recvmsg(at.sock, &message, MSG_CMSG_CLOEXEC);
    if (*size <= 0)
        _exit(0); /* the caller is gone; the kernel kills all others with PID 1 */
    int count = 0;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS) {
            count = (int)((one->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(one), (size_t)count * sizeof(int));
        }
    return count;
}

static void serve_request(void)
{
    int fds[MAX_DESCRIPTORS + 1];
    ssize_t size;
    char *held = NULL;
    int num_fds = receive(fds, &size);
    char *data = unpacked(&size, fds, &num_fds, &held);
    if (!data || size < (ssize_t)sizeof(struct request))
        _exit(70); /* not our protocol: nothing that follows could be trusted */
    const struct request *request = (const struct request *)data;
    int problem = dispatch(request, data + sizeof *request, fds, num_fds);
    if (problem)
        answer_kind(request->number, REFUSED, problem);
    for (int i = 0; i < num_fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(held);
}

/* When something is to be done without being asked; -1 if never. */
static double next_due_at(void)
{
    double due_at = -1;
    if (now_running.main && !now_running.flags) {
        double watch_at = now_running.began_at + WATCH_AFTER_S;
        due_at = now_running.outlets[0] >= 0 && watch_at < now_running.ends_at ? watch_at
                                                                               : now_running.ends_at;
    }
    for (int i = 0; num_parallel && i < MOST_PARALLEL; i++) {
        const struct parallel *one = &parallels[i];
        if (one->pid && !one->flags && (due_at < 0 || one->ends_at < due_at))
            due_at = one->ends_at;
    }
    return due_at;
}

static int timeout_ms(void)
{
    double due_at = next_due_at();
    if (due_at < 0)
        return -1;
    double left_ms = (due_at - monotonic()) * 1000;
    if (left_ms <= 0)
        return 0;
    return left_ms > INT_MAX - 1 ? INT_MAX : (int)left_ms + 1;
}

static void on_due(void)
{
    double now = monotonic();
    if (now_running.main && !now_running.flags) {
        if (now >= now_running.ends_at)
            end_main(TIMED_OUT);
        else if (now_running.outlets[0] >= 0 && now >= now_running.began_at + WATCH_AFTER_S)
            hand_out_outlets();
    }
    for (int i = 0; num_parallel && i < MOST_PARALLEL; i++)
        if (parallels[i].pid && !parallels[i].flags && now >= parallels[i].ends_at)
            end_parallel(&parallels[i], TIMED_OUT);
}

/* Descriptors that wait in sockets count for all of one user, so we need to have more of them than
 * all commands together: see openfiles.py. */
static void take_all_files(void)
{
    getrlimit(RLIMIT_NOFILE, &open_files);
    const struct rlimit own = {open_files.rlim_max, open_files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &own);
    open_files.rlim_cur = open_files.rlim_max = open_files.rlim_cur / 2;
}

/* Never returns: the process ends when the socket does. */
void serve(const struct setting *setting)
{
    at = *setting;
    struct pollfd ready[] = {{.fd = at.sock, .events = POLLIN},
                             {.fd = at.children, .events = POLLIN}};
    struct reply reply = {.kind = READY, .flags = at.peak_file >= 0 ? MEASURES : 0};
    for (size_t i = 0; i < sizeof LEFT_IGNORED / sizeof *LEFT_IGNORED; i++)
        signal(LEFT_IGNORED[i], SIG_DFL);
    take_all_files();
    answer(&reply, -1);
    for (;;) {
        if (has_run && !now_running.main) {
            be_urgent(!ran_beside);
            rest();
            begin_peak();
            open_ahead(); /* if it fails, the next command tries again and reports it */
        }
        int count = poll(ready, 2, timeout_ms());
        if (count == 0)
            on_due();
        if (count <= 0)
            continue;
        if (ready[1].revents)
            reap();
        if (ready[0].revents)
            serve_request();
    }
}
