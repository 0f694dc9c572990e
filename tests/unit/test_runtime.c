#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime.h"

static char base[64];      /* a fresh folder for each test */
static char directory[96]; /* base/run, not made yet: OUTBOX_RUNTIME_DIR */
static char endpoint[128]; /* ipc://base/run/jobs */

static int set_up(void **state)
{
	(void)state;
	strcpy(base, "/tmp/outbox-unit-XXXXXX");
	if (mkdtemp(base) == NULL)
		return -1;
	snprintf(directory, sizeof(directory), "%s/run", base);
	snprintf(endpoint, sizeof(endpoint), "ipc://%s/jobs", directory);
	return setenv("OUTBOX_RUNTIME_DIR", directory, 1);
}

static int remove_entry(const char *path, const struct stat *status, int type,
	struct FTW *place)
{
	(void)status;
	(void)type;
	(void)place;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	unsetenv("OUTBOX_RUNTIME_DIR");
	return nftw(base, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void endpoints_follow_the_environment(void **state)
{
	static const struct {
		const char *own, *session, *endpoint;
	} rows[] = {
		{"/a/b", "/x", "ipc:///a/b/jobs"},
		{NULL, "/run/user/7", "ipc:///run/user/7/outbox/jobs"},
		{"", "/run/user/7", "ipc:///run/user/7/outbox/jobs"},
		{NULL, NULL, "ipc:///run/outbox/jobs"},
		{"", "", "ipc:///run/outbox/jobs"},
		{"relative", NULL, NULL},
		{NULL, "relative", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err err = ERR_INIT;
		unsetenv("OUTBOX_RUNTIME_DIR");
		unsetenv("XDG_RUNTIME_DIR");
		if (rows[i].own != NULL)
			setenv("OUTBOX_RUNTIME_DIR", rows[i].own, 1);
		if (rows[i].session != NULL)
			setenv("XDG_RUNTIME_DIR", rows[i].session, 1);
		char *made = runtime_endpoint("jobs", &err);
		if (rows[i].endpoint == NULL) {
			assert_null(made);
			assert_int_equal(err.class, ERR_CONFIG);
		} else {
			assert_string_equal(made, rows[i].endpoint);
		}
		free(made);
	}
	unsetenv("XDG_RUNTIME_DIR");
}

static void long_paths_are_refused(void **state)
{
	char path[110];
	struct err err = ERR_INIT;

	(void)state;
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[102] = '\0'; /* with "/jobs" 107 bytes */
	setenv("OUTBOX_RUNTIME_DIR", path, 1);
	char *made = runtime_endpoint("jobs", &err);
	assert_non_null(made);
	free(made);
	path[102] = 'x';
	path[103] = '\0';
	setenv("OUTBOX_RUNTIME_DIR", path, 1);
	assert_null(runtime_endpoint("jobs", &err));
	assert_int_equal(err.class, ERR_CONFIG);
	assert_non_null(strstr(err.text, "107"));
}

static void other_endpoints_need_no_guard(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(runtime_guard("tcp://127.0.0.1:5555", &err), -2);
	assert_int_equal(runtime_guard("ipc://@abstract", &err), -2);
	assert_int_equal(runtime_guard("inproc://x", &err), -2);
	assert_int_equal(runtime_guard("-", &err), -2);
	assert_int_equal(access(directory, F_OK), -1);
}

static void directory_is_made_private(void **state)
{
	struct err err = ERR_INIT;
	struct stat status;

	(void)state;
	mode_t old = umask(0);
	int fd = runtime_guard(endpoint, &err);
	umask(old);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(stat(directory, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0700);
	close(fd);
	fd = runtime_guard(endpoint,
		&err); /* the directory and the lock file are there now */
	assert_true(fd >= 0);
	close(fd);
}

static void unsafe_directories_are_refused(void **state)
{
	struct err err = ERR_INIT;
	char elsewhere[96];

	(void)state;
	assert_int_equal(mkdir(directory, 0700), 0);
	for (unsigned mode = 0701; mode <= 0770; mode += mode < 0710 ? 7 : 060) {
		assert_int_equal(chmod(directory, mode), 0);
		assert_int_equal(runtime_guard(endpoint, &err), -1);
		assert_int_equal(err.class, ERR_CONFIG);
	}
	assert_int_equal(rmdir(directory), 0);

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", base);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	assert_int_equal(symlink(elsewhere, directory), 0);
	assert_int_equal(runtime_guard(endpoint, &err), -1);
	assert_non_null(strstr(err.text, "is not a directory"));
	assert_int_equal(unlink(directory), 0);

	if (geteuid() == 0) { /* only root can give a directory away */
		assert_int_equal(mkdir(directory, 0700), 0);
		assert_int_equal(chown(directory, 1, (gid_t)-1), 0);
		assert_int_equal(runtime_guard(endpoint, &err), -1);
		assert_non_null(strstr(err.text, "belongs to user 1"));
	}

	setenv("OUTBOX_RUNTIME_DIR", "/nonexistent/run", 1);
	assert_int_equal(runtime_guard("ipc:///nonexistent/run/jobs", &err), -1);
	assert_int_equal(err.class, ERR_CONFIG);
	assert_non_null(strstr(err.text, "/nonexistent/run"));
}

static void second_binder_is_refused_and_told_who(void **state)
{
	struct err err = ERR_INIT;
	char holder[96];

	(void)state;
	int first = runtime_guard(endpoint, &err);
	assert_true(first >= 0);
	assert_int_equal(runtime_guard(endpoint, &err), -1);
	assert_int_equal(err.class, ERR_TEMP);
	snprintf(holder, sizeof(holder), "is in use by process %d", getpid());
	assert_non_null(strstr(err.text, holder));
	close(first);

	int second = runtime_guard(endpoint, &err); /* the lock ends with its holder */
	assert_true(second >= 0);
	close(second);
}

static void guards_outside_the_runtime_directory(void **state)
{
	struct err err = ERR_INIT;
	char other[128];

	(void)state;
	assert_int_equal(chmod(base, 0755), 0); /* the user's own choice: not judged */
	snprintf(other, sizeof(other), "ipc://%s/jobs", base);
	int fd = runtime_guard(other, &err);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(access(directory, F_OK), -1);
	snprintf(other, sizeof(other), "ipc://%s/missing/jobs", base);
	assert_int_equal(runtime_guard(other, &err), -1);
	assert_int_equal(err.errnum, ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(endpoints_follow_the_environment, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(long_paths_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(other_endpoints_need_no_guard, set_up, tear_down),
		cmocka_unit_test_setup_teardown(directory_is_made_private, set_up, tear_down),
		cmocka_unit_test_setup_teardown(unsafe_directories_are_refused, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(second_binder_is_refused_and_told_who, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(guards_outside_the_runtime_directory, set_up,
			tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
