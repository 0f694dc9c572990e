/*
 * The event loop: one a process, over zmq_poll.
 *
 * ZeroMQ sockets are polled directly; plain descriptors, the signalfd and pidfds hang in
 * one nested epoll descriptor (ZMQ_FD is edge-triggered and is not used). Timers are on
 * the monotonic clock. Callbacks must not block. A callback may add and remove anything,
 * itself included. Order in one turn: timers that are due, descriptors, sockets, then the
 * turn hooks in the order added; then sleep until the next timer or event.
 */
#ifndef OUTBOX_LOOP_H
#define OUTBOX_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct loop;

struct loop *loop_new(struct err *err); /* NULL on failure */
void loop_free(struct loop *loop);      /* NULL is fine; closes nothing that was added */

/* Runs until loop_stop. -1 only if polling itself fails. */
int loop_run(struct loop *loop, struct err *err);
void loop_stop(struct loop *loop); /* after the turn that runs now */

/* Monotonic microseconds, read once a turn (after waking). */
int64_t loop_now_us(const struct loop *loop);

/*
 * ---- descriptors: level-triggered; events are EPOLLIN, EPOLLOUT (EPOLLHUP and EPOLLERR
 * always). Regular files and /dev/null, which epoll refuses, count as always ready.
 */
typedef void loop_fd_fn(void *ctx, int fd, uint32_t events);
int loop_add_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn *fn, void *ctx,
	struct err *err);
void loop_mod_fd(struct loop *loop, int fd, uint32_t events);
void loop_del_fd(struct loop *loop, int fd); /* before every close; unknown fd: nothing */
/* Both, and *fd is -1 then; -1: nothing. */
void loop_close_fd(struct loop *loop, int *fd);

/*
 * ---- ZeroMQ sockets: fn is called while the socket is readable (with a budget, so a flood
 * does not starve the rest); fn receives with ZMQ_DONTWAIT and returns whether it got
 * something. A paused socket is not polled.
 */
typedef bool loop_socket_fn(void *ctx);
int loop_add_socket(struct loop *loop, void *zmq_socket, loop_socket_fn *fn, void *ctx,
	struct err *err);
void loop_pause_socket(struct loop *loop, void *zmq_socket, bool paused);
void loop_del_socket(struct loop *loop, void *zmq_socket);

/*
 * ---- timers: the struct is the caller's, zeroed before first use; one shot; never early,
 * and up to a millisecond late. One that is armed again by its own callback fires in a
 * later turn.
 */
struct loop_timer {
	int64_t at_us; /* 0: not armed */
	void (*fn)(void *ctx);
	void *ctx;
	size_t heap_index; /* the loop's own */
};
void loop_set_timer(struct loop *loop, struct loop_timer *timer, int64_t after_us);
void loop_stop_timer(struct loop *loop, struct loop_timer *timer);

/* ---- signals: blocked in the process and read from a signalfd */
typedef void loop_signal_fn(void *ctx, int signal_number);
int loop_on_signal(struct loop *loop, int signal_number, loop_signal_fn *fn, void *ctx,
	struct err *err);

/* ---- turn hooks: called once every turn, before sleeping: the place for batching */
typedef void loop_turn_fn(void *ctx);
void loop_on_turn(struct loop *loop, loop_turn_fn *fn, void *ctx);

#endif
