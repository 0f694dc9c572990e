#include "loop.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

#include "buf.h"
#include "clock.h"
#include "loop_timers.h"

enum {
	EVENTS_A_TURN = 64,   /* descriptors served in one turn */
	RECEIVES_A_TURN = 64, /* messages taken from one socket in one turn */
};

struct fd_watch {
	int fd; /* -1: removed, waits in the graveyard */
	uint32_t events;
	bool always_ready; /* a regular file or /dev/null, which epoll refuses */
	loop_fd_fn *fn;
	void *ctx;
	struct fd_watch *next_removed;
};

struct socket_watch {
	void *socket; /* NULL: removed, forgotten at the end of the turn */
	bool paused;
	loop_socket_fn *fn;
	void *ctx;
};

struct signal_watch {
	loop_signal_fn *fn;
	void *ctx;
};

struct turn_hook {
	loop_turn_fn *fn;
	void *ctx;
};

struct loop {
	bool stopped;
	int64_t now_us;

	int epoll_fd;
	struct fd_watch **fds; /* by descriptor */
	size_t fds_size;
	struct fd_watch
		*removed; /* freed at the end of the turn: epoll may still name them */
	size_t always_ready_count;

	struct socket_watch *sockets;
	size_t sockets_count;
	zmq_pollitem_t *items; /* one a socket, then the epoll descriptor */

	struct loop_timers timers;

	int signal_fd; /* -1: no signal is watched */
	sigset_t signal_set;
	struct signal_watch signals[NSIG];

	struct turn_hook *hooks;
	size_t hooks_count;
};

struct loop *loop_new(struct err *err)
{
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0) {
		err_set_errno(err, ERR_OS, errno, "could not create an epoll descriptor");
		return NULL;
	}
	struct loop *loop = mem_alloc(1, sizeof(*loop));
	loop->epoll_fd = epoll_fd;
	loop->signal_fd = -1;
	sigemptyset(&loop->signal_set);
	loop->items = mem_alloc(1, sizeof(*loop->items));
	loop->now_us = clock_us();
	return loop;
}

static void free_removed_fds(struct loop *loop)
{
	while (loop->removed) {
		struct fd_watch *watch = loop->removed;
		loop->removed = watch->next_removed;
		free(watch);
	}
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	loop_close_fd(loop, &loop->signal_fd);
	free_removed_fds(loop);
	for (size_t fd = 0; fd < loop->fds_size; fd++)
		free(loop->fds[fd]);
	free(loop->fds);
	free(loop->sockets);
	free(loop->items);
	loop_timers_release(&loop->timers);
	free(loop->hooks);
	close(loop->epoll_fd);
	free(loop);
}

void loop_stop(struct loop *loop)
{
	loop->stopped = true;
}

int64_t loop_now_us(const struct loop *loop)
{
	return loop->now_us;
}

/* ---- descriptors */

static struct fd_watch *find_fd(const struct loop *loop, int fd)
{
	if (fd < 0 || (size_t)fd >= loop->fds_size)
		return NULL;
	return loop->fds[fd];
}

static void grow_fds(struct loop *loop, int fd)
{
	size_t size = loop->fds_size ? loop->fds_size : 16;
	while (size <= (size_t)fd)
		size *= 2;
	if (size == loop->fds_size)
		return;
	loop->fds = mem_realloc(loop->fds, size, sizeof(struct fd_watch *));
	memset(loop->fds + loop->fds_size, 0,
		(size - loop->fds_size) * sizeof(struct fd_watch *));
	loop->fds_size = size;
}

int loop_add_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn *fn, void *ctx,
	struct err *err)
{
	if (fd < 0 || find_fd(loop, fd))
		return err_set(err, ERR_SOFTWARE, "descriptor %d cannot be watched twice", fd);

	struct fd_watch *watch = mem_alloc(1, sizeof(*watch));
	watch->fd = fd;
	watch->events = events;
	watch->fn = fn;
	watch->ctx = ctx;

	struct epoll_event event = {.events = events, .data.ptr = watch};
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		if (errno != EPERM) {
			err_set_errno(err, ERR_OS, errno, "could not watch descriptor %d", fd);
			free(watch);
			return -1;
		}
		watch->always_ready = true;
		loop->always_ready_count++;
	}
	grow_fds(loop, fd);
	loop->fds[fd] = watch;
	return 0;
}

void loop_mod_fd(struct loop *loop, int fd, uint32_t events)
{
	struct fd_watch *watch = find_fd(loop, fd);
	if (!watch || watch->events == events)
		return;
	watch->events = events;
	if (watch->always_ready)
		return;
	struct epoll_event event = {.events = events, .data.ptr = watch};
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

void loop_del_fd(struct loop *loop, int fd)
{
	struct fd_watch *watch = find_fd(loop, fd);
	if (!watch)
		return;
	/* May fail, harmlessly, when a library has closed the descriptor by itself. */
	if (watch->always_ready)
		loop->always_ready_count--;
	else
		epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	loop->fds[fd] = NULL;
	watch->fd = -1;
	watch->next_removed = loop->removed;
	loop->removed = watch;
}

void loop_close_fd(struct loop *loop, int *fd)
{
	if (*fd < 0)
		return;
	loop_del_fd(loop, *fd);
	close(*fd);
	*fd = -1;
}

static void serve_always_ready(struct loop *loop)
{
	for (size_t fd = 0; loop->always_ready_count > 0 && fd < loop->fds_size; fd++) {
		struct fd_watch *watch = loop->fds[fd];
		if (watch && watch->always_ready && watch->events)
			watch->fn(watch->ctx, watch->fd, watch->events & (EPOLLIN | EPOLLOUT));
	}
}

static void serve_fds(struct loop *loop)
{
	struct epoll_event events[EVENTS_A_TURN];
	int count = epoll_wait(loop->epoll_fd, events, EVENTS_A_TURN, 0);

	for (int i = 0; i < count; i++) {
		struct fd_watch *watch = events[i].data.ptr;
		if (watch->fd >= 0)
			watch->fn(watch->ctx, watch->fd, events[i].events);
	}
}

static bool has_always_ready(const struct loop *loop)
{
	for (size_t fd = 0; loop->always_ready_count > 0 && fd < loop->fds_size; fd++) {
		const struct fd_watch *watch = loop->fds[fd];
		if (watch && watch->always_ready && watch->events)
			return true;
	}
	return false;
}

/* ---- ZeroMQ sockets */

static struct socket_watch *find_socket(const struct loop *loop, const void *zmq_socket)
{
	for (size_t i = 0; i < loop->sockets_count; i++)
		if (loop->sockets[i].socket == zmq_socket)
			return &loop->sockets[i];
	return NULL;
}

int loop_add_socket(struct loop *loop, void *zmq_socket, loop_socket_fn *fn, void *ctx,
	struct err *err)
{
	if (!zmq_socket || find_socket(loop, zmq_socket))
		return err_set(err, ERR_SOFTWARE, "a socket cannot be watched twice");

	size_t count = loop->sockets_count + 1;
	loop->sockets = mem_realloc(loop->sockets, count, sizeof(struct socket_watch));
	loop->items = mem_realloc(loop->items, count + 1, sizeof(zmq_pollitem_t));
	loop->sockets[loop->sockets_count] = (struct socket_watch){.socket = zmq_socket,
		.fn = fn,
		.ctx = ctx};
	loop->sockets_count = count;
	return 0;
}

void loop_pause_socket(struct loop *loop, void *zmq_socket, bool paused)
{
	struct socket_watch *watch = find_socket(loop, zmq_socket);
	if (watch)
		watch->paused = paused;
}

void loop_del_socket(struct loop *loop, void *zmq_socket)
{
	struct socket_watch *watch = zmq_socket ? find_socket(loop, zmq_socket) : NULL;
	if (watch)
		watch->socket = NULL;
}

static void forget_removed_sockets(struct loop *loop)
{
	size_t kept = 0;
	for (size_t i = 0; i < loop->sockets_count; i++)
		if (loop->sockets[i].socket)
			loop->sockets[kept++] = loop->sockets[i];
	loop->sockets_count = kept;
}

/*
 * Takes messages until there are none or the budget is used; then zmq_poll, being
 * level-triggered, comes back at once. A callback may add a socket, which moves the array,
 * or remove or pause this one: so the entry is looked at anew each time.
 */
static void serve_socket(struct loop *loop, size_t index)
{
	for (int budget = RECEIVES_A_TURN; budget > 0; budget--) {
		const struct socket_watch *watch = &loop->sockets[index];
		if (!watch->socket || watch->paused || !watch->fn(watch->ctx))
			return;
	}
}

/* ---- timers */

void loop_set_timer(struct loop *loop, struct loop_timer *timer, int64_t after_us)
{
	loop_stop_timer(loop, timer);
	/* At least 1: a timer that arms itself anew must not fire twice in one turn. */
	timer->at_us = clock_us() + (after_us > 0 ? after_us : 1);
	loop_timers_add(&loop->timers, timer);
}

void loop_stop_timer(struct loop *loop, struct loop_timer *timer)
{
	if (timer->at_us == 0)
		return;
	loop_timers_remove(&loop->timers, timer);
	timer->at_us = 0;
}

static void run_timers(struct loop *loop)
{
	struct loop_timer *timer;

	while ((timer = loop_timers_first(&loop->timers)) && timer->at_us <= loop->now_us) {
		loop_stop_timer(loop, timer);
		timer->fn(timer->ctx);
	}
}

/* ---- signals */

static void serve_signals(void *ctx, int fd, uint32_t events)
{
	struct loop *loop = ctx;
	struct signalfd_siginfo info;
	(void)events;

	while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo >= NSIG)
			continue;
		struct signal_watch watch = loop->signals[info.ssi_signo];
		if (watch.fn)
			watch.fn(watch.ctx, (int)info.ssi_signo);
	}
}

int loop_on_signal(struct loop *loop, int signal_number, loop_signal_fn *fn, void *ctx,
	struct err *err)
{
	if (signal_number <= 0 || signal_number >= NSIG)
		return err_set(err, ERR_SOFTWARE, "there is no signal %d", signal_number);

	sigaddset(&loop->signal_set, signal_number);
	if (sigprocmask(SIG_BLOCK, &loop->signal_set, NULL) < 0)
		return err_set_errno(err, ERR_OS, errno, "could not block signals");

	int fd = signalfd(loop->signal_fd, &loop->signal_set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (fd < 0)
		return err_set_errno(err, ERR_OS, errno, "could not create a signal descriptor");
	loop->signals[signal_number] = (struct signal_watch){.fn = fn, .ctx = ctx};
	if (loop->signal_fd >= 0)
		return 0;
	if (loop_add_fd(loop, fd, EPOLLIN, serve_signals, loop, err) < 0) {
		close(fd);
		return -1;
	}
	loop->signal_fd = fd;
	return 0;
}

/* ---- turn hooks */

void loop_on_turn(struct loop *loop, loop_turn_fn *fn, void *ctx)
{
	loop->hooks = mem_realloc(loop->hooks, loop->hooks_count + 1,
		sizeof(struct turn_hook));
	loop->hooks[loop->hooks_count++] = (struct turn_hook){.fn = fn, .ctx = ctx};
}

static void run_hooks(struct loop *loop)
{
	for (size_t i = 0; i < loop->hooks_count; i++) {
		struct turn_hook hook = loop->hooks[i];
		hook.fn(hook.ctx);
	}
}

/* ---- the turn */

/* zmq_poll counts whole milliseconds: rounded up, so that a timer is never early. */
static long sleep_ms(const struct loop *loop)
{
	if (has_always_ready(loop))
		return 0;
	const struct loop_timer *first = loop_timers_first(&loop->timers);
	if (!first)
		return -1;
	int64_t left_us = first->at_us - clock_us();
	if (left_us <= 0)
		return 0;
	int64_t left_ms = (left_us + 999) / 1000;
	return left_ms > 3600000 ? 3600000 : (long)left_ms;
}

/* Sleeps until something is ready. The last item is the epoll descriptor. */
static int poll_all(struct loop *loop, struct err *err)
{
	size_t count = loop->sockets_count;
	for (size_t i = 0; i < count; i++)
		loop->items[i] = (zmq_pollitem_t){
			.socket = loop->sockets[i].socket,
			.events = loop->sockets[i].paused ? 0 : ZMQ_POLLIN,
		};
	loop->items[count] = (zmq_pollitem_t){.fd = loop->epoll_fd, .events = ZMQ_POLLIN};

	if (zmq_poll(loop->items, (int)count + 1, sleep_ms(loop)) >= 0)
		return 0;
	if (errno != EINTR)
		return err_set_errno(err, ERR_OS, errno, "could not poll");
	for (size_t i = 0; i <= count; i++)
		loop->items[i].revents = 0;
	return 0;
}

static void run_turn(struct loop *loop, size_t polled_sockets)
{
	bool fds_ready = loop->items[polled_sockets].revents != 0;

	loop->now_us = clock_us();
	run_timers(loop);
	if (fds_ready)
		serve_fds(loop);
	serve_always_ready(loop);
	/* Sockets added in this turn wait for the next poll; the array only grows meanwhile. */
	for (size_t i = 0; i < polled_sockets; i++)
		if (loop->items[i].revents)
			serve_socket(loop, i);
	run_hooks(loop);
	forget_removed_sockets(loop);
	free_removed_fds(loop);
}

int loop_run(struct loop *loop, struct err *err)
{
	forget_removed_sockets(loop);
	while (!loop->stopped) {
		size_t polled_sockets = loop->sockets_count;
		if (poll_all(loop, err) < 0)
			return -1;
		run_turn(loop, polled_sockets);
	}
	loop->stopped = false;
	return 0;
}
