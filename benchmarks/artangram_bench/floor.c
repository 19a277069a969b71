/* The least that running a program and keeping its output can cost: start it, wait, read.
 *
 * floor once PAUSE_US PROGRAM: after a pause, run it once; prints microseconds.
 * floor many SECONDS WORKERS PROGRAM: run it as often as so many workers can; prints the rate.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *const ENVIRON[] = {"PATH=/usr/bin:/bin", NULL};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void run(char *program)
{
    int out[2], err[2], status;
    char printed[256], *argv[] = {program, NULL};
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
        exit(1);
    pid_t pid = vfork();
    if (pid == 0) {
        dup2(out[1], 1);
        dup2(err[1], 2);
        execve(program, argv, ENVIRON);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    while (read(out[0], printed, sizeof printed) > 0 || read(err[0], printed, sizeof printed) > 0)
        ;
    close(out[0]);
    close(err[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        exit(1);
}

static void run_for(double seconds, char *program, int report)
{
    long count = 0;
    for (double ends_at = now_us() + seconds * 1e6; now_us() < ends_at; count++)
        run(program);
    if (write(report, &count, sizeof count) != sizeof count)
        exit(1);
}

static void many(double seconds, int workers, char *program)
{
    int reports[2];
    long count, total = 0;
    double began_at = now_us();
    if (pipe(reports))
        exit(1);
    for (int i = 0; i < workers; i++)
        if (fork() == 0) {
            run_for(seconds, program, reports[1]);
            exit(0);
        }
    for (int i = 0; i < workers && read(reports[0], &count, sizeof count) == sizeof count; i++)
        total += count;
    printf("%f\n", (double)total / ((now_us() - began_at) / 1e6));
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "once")) {
        usleep((useconds_t)atol(argv[2]));
        double began_at = now_us();
        run(argv[3]);
        printf("%f\n", now_us() - began_at);
        return 0;
    }
    if (argc == 5 && !strcmp(argv[1], "many")) {
        many(atof(argv[2]), atoi(argv[3]), argv[4]);
        return 0;
    }
    return 2;
}
