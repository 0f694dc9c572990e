/*
 * CURVE: who may talk over tcp.
 *
 * A key directory holds server.key and server.pub (the binding side), client.key and
 * client.pub (the connecting side), each a line of 40 characters (Z85, ZeroMQ RFC 32). Key files
 * that others may read are refused. A server admits the clients whose public key is
 * client.pub or one of clients/NAME.pub; the files are read at each handshake, so adding
 * or removing one needs no restart.
 */
#ifndef OUTBOX_CURVE_H
#define OUTBOX_CURVE_H

#include "err.h"
#include "loop.h"

/* Set the keys on a socket before it binds or connects. ERR_CONFIG names the file. */
int curve_set_server(void *zmq_socket, const char *keys_dir, struct err *err);
int curve_set_client(void *zmq_socket, const char *keys_dir, struct err *err);

/*
 * The gate (ZeroMQ's ZAP handler, RFC 27) that decides on clients: one a context, shared
 * by all servers, answered from the loop. Each successful open needs one close.
 */
int curve_gate_open(void *zmq_context, struct loop *loop, struct err *err);
void curve_gate_close(void);

/* See link_generate_keys. */
int curve_generate_keys(const char *keys_dir, struct err *err);

#endif
