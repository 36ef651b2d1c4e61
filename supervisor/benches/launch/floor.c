/* The floor: what one confined launch costs when nothing but its system calls is paid for.
 *
 *     floor WORKSPACE UID FILTER PROGRAM
 *
 * The steps of an ordinary run with the host's network, in the cell's order, without a supervisor, a recipe, checks,
 * errors in words or anything read back. FILTER is the run's own system call filter, as the bench writes it. Not for
 * use: what fails ends it with 125.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MS_PRIVATE
#define MS_PRIVATE (1 << 18)
#endif
#ifndef MNT_DETACH
#define MNT_DETACH 2
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

#define MUST(call) ({ long r_ = (long)(call); if (r_ < 0) { perror(#call); _exit(125); } r_; })

static unsigned char filter[1 << 16];
static size_t filter_bytes;

static int make(const char *type, const char *const options[][2], unsigned attributes)
{
    int context = MUST(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC));
    for (; options && (*options)[0]; options++)
        MUST(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, (*options)[0], (*options)[1], 0));
    MUST(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, 0, 0, 0));
    int mount = MUST(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes));
    close(context);
    return mount;
}

static void put(int mount, int root, const char *at)
{
    MUST(syscall(SYS_move_mount, mount, "", root, at, MOVE_MOUNT_F_EMPTY_PATH));
    close(mount);
}

static void show(int root, const char *path, const char *at, uint64_t attributes)
{
    int tree = MUST(syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE));
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | attributes, .propagation = MS_PRIVATE };
    MUST(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr));
    put(tree, root, at);
}

static void folders(int root, const char *path)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s/", path + 1);
    for (char *at = copy; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdirat(root, copy, 0755);
    }
}

static int dev(void)
{
    static const struct { const char *name; int major, minor; } nodes[] = {
        {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
    static const char *const links[][2] = {{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"},
        {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"}};
    static const char *const options[][2] = {{"mode", "0755"}, {"size", "1g"}, {0, 0}};
    int mount = make("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        MUST(mknodat(mount, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)));
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        MUST(symlinkat(links[i][1], mount, links[i][0]));
    MUST(mkdirat(mount, "pts", 0755));
    MUST(mkdirat(mount, "shm", 01777));
    return mount;
}

static void load_filter(void)
{
    struct sock_fprog program = { filter_bytes / 8, (struct sock_filter *)filter };
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static void nothing_kept(void)
{
    for (int capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; capability++)
        ;
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = {0};
    MUST(syscall(SYS_capset, &header, none));
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static void become(const char *workspace, const char *program, int go)
{
    char byte;
    if (read(go, &byte, 1) != 1)
        _exit(125);
    MUST(setresgid(1000, 1000, 1000));
    MUST(setresuid(1000, 1000, 1000));
    struct rlimit core = {1, 1};
    MUST(setrlimit(RLIMIT_CORE, &core));
    nothing_kept();
    MUST(setsid());
    MUST(chdir(workspace));
    umask(022);
    struct { uint64_t files, network, scoped; } asked = {0, 0, 3};
    int ruleset = MUST(syscall(SYS_landlock_create_ruleset, &asked, sizeof asked, 0));
    MUST(syscall(SYS_landlock_restrict_self, ruleset, 0));
    MUST(syscall(SYS_close_range, 3, ~0U, 4));
    load_filter();
    char *const arguments[] = {(char *)program, 0}, *const environment[] = {"PATH=/usr/bin:/bin", 0};
    execve(program, arguments, environment);
    _exit(127);
}

static void map(int proc, long pid, const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%ld/%s", pid, name);
    int file = MUST(openat(proc, path, O_WRONLY | O_CLOEXEC));
    MUST(write(file, text, strlen(text)));
    close(file);
}

static int confined(const char *workspace, const char *uid, const char *program)
{
    static const char *const small[][2] = {{"mode", "0755"}, {"size", "4m"}, {"nr_inodes", "65536"}, {0, 0}};
    static const char *const shared[][2] = {{"mode", "1777"}, {"size", "1g"}, {0, 0}};
    static const char *const terminals[][2] = {{"mode", "0620"}, {"ptmxmode", "0666"}, {0, 0}};
    const unsigned plain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    MUST(syscall(SYS_setgroups, 0, 0));
    MUST(setsid());
    MUST(syscall(SYS_keyctl, 1, 0));
    umask(0);
    struct mount_attr private = { .propagation = MS_PRIVATE };
    MUST(syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &private, sizeof private));
    int root = make("tmpfs", small, plain);
    MUST(syscall(SYS_move_mount, root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH));
    MUST(mkdirat(root, "proc", 0755));
    int proc = make("proc", 0, plain | MOUNT_ATTR_NOEXEC);
    MUST(syscall(SYS_move_mount, proc, "", root, "proc", MOVE_MOUNT_F_EMPTY_PATH));
    MUST(mkdirat(root, "dev", 0755));
    put(dev(), root, "dev");
    put(make("devpts", terminals, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC), root, "dev/pts");
    MUST(mkdirat(root, "tmp", 0755));
    put(make("tmpfs", shared, plain), root, "tmp");
    MUST(mkdirat(root, "usr", 0755));
    show(root, "/usr", "usr", MOUNT_ATTR_RDONLY);
    MUST(symlinkat("usr/bin", root, "bin"));
    MUST(symlinkat("usr/lib", root, "lib"));
    MUST(symlinkat("usr/lib64", root, "lib64"));
    MUST(mkdirat(root, "etc", 0755));
    show(root, "/etc", "etc", MOUNT_ATTR_RDONLY);
    folders(root, workspace);
    show(root, workspace, workspace + 1, 0);
    static const char *const any[][2] = {{"mode", "0755"}, {0, 0}};
    int created = make("tmpfs", any, plain);
    MUST(syscall(SYS_move_mount, created, "", AT_FDCWD, "/proc", MOVE_MOUNT_F_EMPTY_PATH));
    int file = MUST(openat(created, "0", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
    MUST(write(file, "builder:x:1000:1000::/:/bin/sh\n", 31));
    close(file);
    int one = MUST(syscall(SYS_open_tree, created, "0", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    put(one, root, "etc/passwd");
    MUST(fchdir(root));
    MUST(syscall(SYS_pivot_root, ".", "."));
    MUST(syscall(SYS_umount2, ".", MNT_DETACH));
    MUST(chdir("/"));
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY };
    MUST(syscall(SYS_mount_setattr, root, "", AT_EMPTY_PATH, &read_only, sizeof read_only));
    MUST(sethostname("3f2a91c07b", 10));

    int go[2];
    MUST(pipe2(go, O_CLOEXEC));
    struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    long pid = MUST(syscall(SYS_clone3, &args, sizeof args));
    if (pid == 0)
        become(workspace, program, go[0]);
    char line[64];
    snprintf(line, sizeof line, "1000 %s 1", uid);
    map(proc, pid, "setgroups", "deny");
    map(proc, pid, "uid_map", line);
    map(proc, pid, "gid_map", line);
    int id = atoi(uid) + 1;
    MUST(setresgid(id, id, id));
    MUST(setresuid(id, id, id));
    MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    nothing_kept();
    MUST(write(go[1], "g", 1));
    int status;
    MUST(waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int count, char **words)
{
    if (count != 5)
        return 2;
    int file = MUST(open(words[3], O_RDONLY | O_CLOEXEC));
    filter_bytes = MUST(read(file, filter, sizeof filter));
    close(file);
    struct clone_args args = {
        .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP, .exit_signal = SIGCHLD };
    long pid = MUST(syscall(SYS_clone3, &args, sizeof args));
    if (pid == 0)
        _exit(confined(words[1], words[2], words[4]));
    int status;
    MUST(waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
