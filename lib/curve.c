#include "curve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "buf.h"
#include "log.h"

enum {
	KEY_BYTES = 32,
	KEY_CHARS = 40, /* of Z85 */
	DOMAIN_MAX = 254,
};

struct key {
	char z85[KEY_CHARS + 1];
};

static int join_path(char *path, size_t size, const char *dir, const char *name,
	struct err *err)
{
	int length = snprintf(path, size, "%s/%s", dir, name);
	if (length < 0 || (size_t)length >= size)
		return err_set(err, ERR_CONFIG, "the path of key file \"%s\" is too long", name);
	return 0;
}

/* Reads the key's line; more than a line end after it, or less than a key, is refused. */
static int read_key_line(int fd, const char *path, struct key *key, struct err *err)
{
	char line[KEY_CHARS + 3];
	uint8_t binary[KEY_BYTES];

	ssize_t count = read(fd, line, sizeof(line) - 1);
	if (count < 0)
		return err_set_errno(err, ERR_IO, errno, "could not read key file \"%s\"", path);
	line[count] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	if (strlen(line) != KEY_CHARS || !zmq_z85_decode(binary, line))
		return err_set(err, ERR_CONFIG, "file \"%s\" does not hold a CURVE key", path);
	memcpy(key->z85, line, sizeof(key->z85));
	return 0;
}

static int load_key(const char *path, bool secret, struct key *key, struct err *err)
{
	struct stat status;

	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not open key file \"%s\"",
			path);
	int rc = 0;
	if (fstat(fd, &status) < 0)
		rc = err_set_errno(err, ERR_IO, errno, "could not examine key file \"%s\"", path);
	else if (!S_ISREG(status.st_mode))
		rc = err_set(err, ERR_CONFIG, "key file \"%s\" is not a regular file", path);
	else if (secret && (status.st_mode & (S_IRWXG | S_IRWXO)))
		rc = err_set(err, ERR_CONFIG,
			"key file \"%s\" is open to group or others (it must have mode 0600)", path);
	else
		rc = read_key_line(fd, path, key, err);
	close(fd);
	return rc;
}

static int load_named_key(const char *keys_dir, const char *name, bool secret,
	struct key *key, struct err *err)
{
	char path[PATH_MAX];
	if (join_path(path, sizeof(path), keys_dir, name, err) < 0)
		return -1;
	return load_key(path, secret, key, err);
}

static int set_key(void *zmq_socket, int option, const struct key *key, struct err *err)
{
	if (zmq_setsockopt(zmq_socket, option, key->z85, sizeof(key->z85)) == 0)
		return 0;
	return err_set(err, ERR_CONFIG, "could not use a CURVE key: %s", zmq_strerror(errno));
}

int curve_set_server(void *zmq_socket, const char *keys_dir, struct err *err)
{
	struct key secret;
	int yes = 1;

	/* The gate finds the client keys by the domain, which is the directory's name. */
	if (strlen(keys_dir) > DOMAIN_MAX)
		return err_set(err, ERR_CONFIG,
			"the path of the key directory is longer than %d bytes", DOMAIN_MAX);
	if (load_named_key(keys_dir, "server.key", true, &secret, err) < 0)
		return -1;
	if (zmq_setsockopt(zmq_socket, ZMQ_CURVE_SERVER, &yes, sizeof(yes)) < 0 ||
		zmq_setsockopt(zmq_socket, ZMQ_ZAP_DOMAIN, keys_dir, strlen(keys_dir)) < 0)
		return err_set(err, ERR_CONFIG, "could not use CURVE: %s", zmq_strerror(errno));
	int rc = set_key(zmq_socket, ZMQ_CURVE_SECRETKEY, &secret, err);
	explicit_bzero(&secret, sizeof(secret));
	return rc;
}

int curve_set_client(void *zmq_socket, const char *keys_dir, struct err *err)
{
	struct key server_public, client_public, client_secret;

	if (load_named_key(keys_dir, "server.pub", false, &server_public, err) < 0 ||
		load_named_key(keys_dir, "client.pub", false, &client_public, err) < 0 ||
		load_named_key(keys_dir, "client.key", true, &client_secret, err) < 0)
		return -1;
	int rc = 0;
	if (set_key(zmq_socket, ZMQ_CURVE_SERVERKEY, &server_public, err) < 0 ||
		set_key(zmq_socket, ZMQ_CURVE_PUBLICKEY, &client_public, err) < 0 ||
		set_key(zmq_socket, ZMQ_CURVE_SECRETKEY, &client_secret, err) < 0)
		rc = -1;
	explicit_bzero(&client_secret, sizeof(client_secret));
	return rc;
}

/* ---- the gate */

static struct {
	void *socket; /* NULL: closed */
	struct loop *loop;
	size_t users;
} gate;

static bool file_holds(const char *dir, const char *name, const char *client_z85)
{
	struct key key;
	return load_named_key(dir, name, false, &key, NULL) == 0 &&
		strcmp(key.z85, client_z85) == 0;
}

static bool is_public_key_name(const char *name)
{
	size_t length = strlen(name);
	return name[0] != '.' && length > 4 && strcmp(name + length - 4, ".pub") == 0;
}

static bool is_admitted(const char *keys_dir, const char *client_z85)
{
	char clients_dir[PATH_MAX];

	if (file_holds(keys_dir, "client.pub", client_z85))
		return true;
	if (join_path(clients_dir, sizeof(clients_dir), keys_dir, "clients", NULL) < 0)
		return false;
	DIR *dir = opendir(clients_dir);
	if (!dir)
		return false;
	bool admitted = false;
	for (struct dirent *entry; !admitted && (entry = readdir(dir));)
		admitted = is_public_key_name(entry->d_name) &&
			file_holds(clients_dir, entry->d_name, client_z85);
	closedir(dir);
	return admitted;
}

/* The parts of a request, RFC 27; what is longer is cut and then does not match. */
enum {
	ZAP_VERSION,
	ZAP_REQUEST_ID,
	ZAP_DOMAIN,
	ZAP_ADDRESS,
	ZAP_IDENTITY,
	ZAP_MECHANISM,
	ZAP_CREDENTIALS,
	ZAP_PARTS,
};
struct zap_part {
	char bytes[DOMAIN_MAX + 2]; /* zero-terminated */
	size_t length;
};

static size_t receive_request(struct zap_part parts[ZAP_PARTS])
{
	size_t count = 0;
	int more = 1;
	size_t more_size = sizeof(more);

	memset(parts, 0, ZAP_PARTS * sizeof(parts[0]));
	while (more) {
		struct zap_part ignored;
		struct zap_part *part = count < ZAP_PARTS ? &parts[count] : &ignored;
		int length = zmq_recv(gate.socket, part->bytes, sizeof(part->bytes) - 1,
			ZMQ_DONTWAIT);
		if (length < 0)
			return 0;
		part->length = (size_t)length;
		count++;
		if (zmq_getsockopt(gate.socket, ZMQ_RCVMORE, &more, &more_size) < 0)
			return 0;
	}
	return count;
}

/*
 * A refusal is said as 300, "temporary": the client is cut off silently and tries again.
 * At 400 libzmq's client would give up for ever and without a word to its program, so that
 * a runner would have to be restarted after its key was admitted.
 */
static void send_verdict(const struct zap_part *request_id, bool admitted)
{
	const char *status = admitted ? "200" : "300";
	const int more = ZMQ_SNDMORE | ZMQ_DONTWAIT;

	/* Fails only when the asking socket is gone, and then nobody waits for the answer. */
	if (zmq_send(gate.socket, "1.0", 3, more) < 0 ||
		zmq_send(gate.socket, request_id->bytes, request_id->length, more) < 0 ||
		zmq_send(gate.socket, status, 3, more) < 0 ||
		zmq_send(gate.socket, "", 0, more) < 0 || zmq_send(gate.socket, "", 0, more) < 0)
		return;
	zmq_send(gate.socket, "", 0, ZMQ_DONTWAIT);
}

static void log_refusal(const char *address, const char *client_z85)
{
	static struct log_limit limit;
	int64_t suppressed = log_allow(&limit, 1000);

	if (suppressed >= 0)
		log_event(LOG_WARNING, "client_key_refused", LOG_TEXT("address", address),
			LOG_TEXT("key", client_z85), LOG_INT("suppressed", suppressed));
}

static bool answer_request(void *ctx)
{
	struct zap_part parts[ZAP_PARTS];
	char client_z85[KEY_CHARS + 1] = "";
	(void)ctx;

	size_t count = receive_request(parts);
	if (count == 0)
		return false;
	bool admitted = count == ZAP_PARTS &&
		strcmp(parts[ZAP_MECHANISM].bytes, "CURVE") == 0 &&
		parts[ZAP_CREDENTIALS].length == KEY_BYTES &&
		zmq_z85_encode(client_z85, (const uint8_t *)parts[ZAP_CREDENTIALS].bytes,
			KEY_BYTES) &&
		is_admitted(parts[ZAP_DOMAIN].bytes, client_z85);
	if (!admitted)
		log_refusal(parts[ZAP_ADDRESS].bytes, client_z85);
	send_verdict(&parts[ZAP_REQUEST_ID], admitted);
	return true;
}

int curve_gate_open(void *zmq_context, struct loop *loop, struct err *err)
{
	const int linger_ms = 0;

	if (gate.users > 0) {
		gate.users++;
		return 0;
	}
	void *reply = zmq_socket(zmq_context, ZMQ_REP);
	if (!reply)
		return err_set(err, ERR_OS, "could not create a socket: %s", zmq_strerror(errno));
	if (zmq_setsockopt(reply, ZMQ_LINGER, &linger_ms, sizeof(linger_ms)) < 0 ||
		zmq_bind(reply, "inproc://zeromq.zap.01") < 0) {
		err_set(err, ERR_OS, "could not open the gate for CURVE clients: %s",
			zmq_strerror(errno));
		zmq_close(reply);
		return -1;
	}
	if (loop_add_socket(loop, reply, answer_request, NULL, err) < 0) {
		zmq_close(reply);
		return -1;
	}
	gate.socket = reply;
	gate.loop = loop;
	gate.users = 1;
	return 0;
}

void curve_gate_close(void)
{
	if (--gate.users > 0)
		return;
	loop_del_socket(gate.loop, gate.socket);
	zmq_close(gate.socket);
	gate.socket = NULL;
}

/* ---- making keys */

static const char *const key_files[] = {"server.pub", "server.key", "client.pub",
	"client.key"};
enum { KEY_FILES = sizeof(key_files) / sizeof(key_files[0]) };

static int write_key(const char *path, const struct key *key, struct err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set_errno(err, ERR_OS, errno, "could not create key file \"%s\"",
			path);
	int rc = 0;
	if (dprintf(fd, "%s\n", key->z85) != KEY_CHARS + 1 || fsync(fd) < 0)
		rc = err_set_errno(err, ERR_IO, errno, "could not write key file \"%s\"", path);
	if (close(fd) < 0 && rc == 0)
		rc = err_set_errno(err, ERR_IO, errno, "could not write key file \"%s\"", path);
	if (rc < 0)
		unlink(path);
	return rc;
}

static int refuse_existing_keys(const char *keys_dir, struct err *err)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < KEY_FILES; i++) {
		if (join_path(path, sizeof(path), keys_dir, key_files[i], err) < 0)
			return -1;
		if (access(path, F_OK) == 0)
			return err_set(err, ERR_CONFIG, "key file \"%s\" exists already", path);
	}
	return 0;
}

/* What a failure leaves half made is removed: never a directory with some keys only. */
static int write_keys(const char *keys_dir, const struct key keys[KEY_FILES],
	struct err *err)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < KEY_FILES; i++) {
		if (join_path(path, sizeof(path), keys_dir, key_files[i], err) == 0 &&
			write_key(path, &keys[i], err) == 0)
			continue;
		while (i-- > 0)
			if (join_path(path, sizeof(path), keys_dir, key_files[i], NULL) == 0)
				unlink(path);
		return -1;
	}
	return 0;
}

int curve_generate_keys(const char *keys_dir, struct err *err)
{
	struct key keys[KEY_FILES]; /* as key_files */

	if (mkdir(keys_dir, 0700) < 0 && errno != EEXIST)
		return err_set_errno(err, errno == EACCES ? ERR_PERM : ERR_OS, errno,
			"could not make directory \"%s\"", keys_dir);
	if (refuse_existing_keys(keys_dir, err) < 0)
		return -1;
	for (size_t i = 0; i < KEY_FILES; i += 2)
		if (zmq_curve_keypair(keys[i].z85, keys[i + 1].z85) < 0)
			return err_set(err, ERR_OS, "could not make a CURVE key pair: %s",
				zmq_strerror(errno));
	int rc = write_keys(keys_dir, keys, err);
	explicit_bzero(keys, sizeof(keys));
	return rc;
}
