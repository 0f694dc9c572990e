/* The handler folder: what becomes a kind, what is passed over, what is refused. */
#include <fcntl.h>
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

#include "handlers.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char folder[] = "/tmp/outbox-test-XXXXXX";

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	return mkdtemp(folder) == NULL || chdir(folder) != 0 || mkdir("h", 0755) != 0 ||
		chdir("h") != 0;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[100];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return chdir("/") != 0 || system(command) != 0;
}

static void make_file(const char *name, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "#!/bin/sh\n", 10), 10);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void assert_refused(const char *names)
{
	struct handlers handlers;
	struct err err = ERR_INIT;

	assert_int_equal(handlers_load(".", &handlers, &err), -1);
	assert_int_equal(err.class, ERR_CONFIG);
	if (strstr(err.text, names) == NULL)
		fail_msg("\"%s\" does not name \"%s\"", err.text, names);
	assert_int_equal(handlers.count, 0);
	handlers_release(&handlers);
}

static void executables_are_kinds_and_the_rest_is_passed_over(void **state)
{
	(void)state;
	static const char *const ignored[] = {"README", ".hidden", "lib.so", "k~", "a b",
		"-rf", ".k.ini", "k.ini~", "a;id", "$(id)", "x\n"};
	static const char *const kinds[] = {"a.b", "b", "email.welcome", "k-1_x"};
	struct handlers handlers;
	struct err err = ERR_INIT;
	char name[300];

	for (size_t i = 0; i < COUNT(ignored); i++)
		make_file(ignored[i], 0755);
	for (size_t i = COUNT(kinds); i-- > 0;)
		make_file(kinds[i], 0755);
	make_file("notes", 0644);
	make_file("writable.notes", 0666); /* not executable: nobody would run it */
	mkdir("folder", 0755);
	memset(name, 'n', sizeof(name));
	name[101] = '\0';
	make_file(name, 0755);

	if (handlers_load(".", &handlers, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(handlers.count, COUNT(kinds));
	for (size_t i = 0; i < COUNT(kinds); i++) {
		const struct handler *handler = handlers_find(&handlers, str_of(kinds[i]));
		assert_ptr_equal(handler, &handlers.items[i]);
		assert_string_equal(handler->kind, kinds[i]);
		assert_int_equal(handler->timeout_ms, 30000);
		assert_int_equal(handler->grace_ms, 5000);
		assert_string_equal(handler->lane, "default");
		snprintf(name, sizeof(name), "%s/h/%s", folder, kinds[i]);
		assert_string_equal(handler->path, name);
		assert_string_equal(handler->argv[0], name);
		assert_null(handler->argv[1]);
	}
	for (size_t i = 0; i < COUNT(ignored); i++)
		assert_null(handlers_find(&handlers, str_of(ignored[i])));
	assert_null(handlers_find(&handlers, STR("a")));
	assert_null(handlers_find(&handlers, STR("a.bc")));
	assert_null(handlers_find(&handlers, STR("zzz")));
	assert_null(handlers_find(&handlers, STR("")));
	assert_null(handlers_find(&handlers, STR_NULL));
	handlers_release(&handlers);
	handlers_release(&handlers);
}

static void make_manifest(const char *name, const char *text)
{
	FILE *file = fopen(name, "wx");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(name, 0644), 0);
}

static void manifests_declare_kinds(void **state)
{
	(void)state;
	static const struct {
		const char *kind, *file, *path;
		int64_t version;
	} expected[] = {
		{"alone", "alone", "/h/alone", 0},
		{"beside", "beside.ini", "/h/beside", 2},
		{"elsewhere", "x.ini", "/h/bin/tool", 3},
		{"same.file", "y.ini", "/h/same.file", 4}, /* and its executable by itself */
		{"y", "z.ini", "/h/alone", 5},
	};
	struct handlers handlers;
	struct err err = ERR_INIT;
	char path[100];

	mkdir("bin", 0755);
	make_file("bin/tool", 0755);
	make_file("alone", 0755);
	make_file("beside", 0755);
	make_file("same.file", 0755);
	make_manifest("beside.ini", "[handler]\nversion = 2\n");
	make_manifest("x.ini", "[handler]\nkind=elsewhere\ncommand=bin/tool\nversion=3");
	make_manifest("y.ini", "[handler]\nkind=same.file\ncommand=./same.file\nversion=4");
	make_manifest("z.ini", "[handler]\nkind=y\ncommand=alone\nversion=5\n");
	make_manifest("outbox.ini", "[redact]\npattern = secret\n");

	if (handlers_load(".", &handlers, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(handlers.count, COUNT(expected));
	for (size_t i = 0; i < COUNT(expected); i++) {
		const struct handler *handler = &handlers.items[i];
		assert_string_equal(handler->kind, expected[i].kind);
		assert_string_equal(handler->file, expected[i].file);
		assert_int_equal(handler->version, expected[i].version);
		snprintf(path, sizeof(path), "%s%s", folder, expected[i].path);
		assert_string_equal(handler->path, path);
		assert_true(handler_redacts(handler));
	}
	handlers_release(&handlers);
}

static void two_of_a_kind_are_refused_with_both_names(void **state)
{
	(void)state;
	make_file("a", 0755);
	make_file("b", 0755);
	make_manifest("one.ini", "[handler]\nkind = c\ncommand = a\n");
	make_manifest("two.ini", "[handler]\nkind = c\ncommand = a\n");
	assert_refused("\"one.ini\" and \"two.ini\" both declare the kind \"c\"");
	unlink("two.ini");
	make_manifest("b.ini",
		"[handler]\ncommand = a\n"); /* beside it, and another command */
	assert_refused("\"b.ini\" and \"b\" both declare the kind \"b\"");
}

static void manifests_are_trusted_like_executables(void **state)
{
	(void)state;
	make_file("a", 0755);
	make_manifest("a.ini", "[handler]\n");
	chmod("a.ini", 0664);
	assert_refused("/h/a.ini\" is writable by group or others");
	unlink("a.ini");
	make_manifest("../a.ini", "[handler]\n");
	assert_int_equal(symlink("../a.ini", "a.ini"), 0);
	assert_refused("/h/a.ini\" leads out of the handler folder");
	unlink("a.ini");
	mkdir("a.ini", 0755);
	assert_refused("/h/a.ini\" is not a file");
}

static void links_within_the_folder_are_resolved(void **state)
{
	(void)state;
	struct handlers handlers;
	char path[100];

	mkdir("lib", 0755);
	make_file("lib/tool", 0755);
	assert_int_equal(symlink("lib/tool", "one"), 0);
	assert_int_equal(symlink("one", "two"), 0);
	assert_int_equal(handlers_load("../h/./", &handlers, NULL), 0);
	assert_int_equal(handlers.count, 2);
	snprintf(path, sizeof(path), "%s/h/lib/tool", folder);
	assert_string_equal(handlers.items[0].path, path);
	assert_string_equal(handlers.items[1].path, path);
	snprintf(path, sizeof(path), "%s/h/two", folder);
	assert_string_equal(handlers.items[1].argv[0], path);
	handlers_release(&handlers);
}

static void writable_handlers_are_refused(void **state)
{
	(void)state;
	make_file("good", 0755);
	make_file("others", 0757);
	assert_refused("/h/others");
	chmod("others", 0775);
	assert_refused("/h/others");
}

static void writable_folders_are_refused(void **state)
{
	(void)state;
	make_file("good", 0755);
	chmod(".", 0775);
	assert_refused("/h\"");
	chmod(".", 0755);
	mkdir("lib", 0755);
	chmod("lib", 0777);
	make_file("lib/tool", 0755);
	assert_int_equal(symlink("lib/tool", "tool"), 0);
	assert_refused("/h/lib\"");
}

static void links_that_leave_or_break_are_refused(void **state)
{
	(void)state;
	static const char *const targets[] = {"/bin/sh", "../outside", "nowhere", "self"};

	make_file("../outside", 0755);
	for (size_t i = 0; i < COUNT(targets); i++) {
		assert_int_equal(symlink(targets[i], "self"), 0);
		assert_refused("/h/self\"");
		unlink("self");
	}
	/* a neighbour whose name merely starts like the folder's */
	mkdir("../h2", 0755);
	make_file("../h2/tool", 0755);
	assert_int_equal(symlink("../h2/tool", "tool"), 0);
	assert_refused("/h/tool\"");
}

static void a_missing_folder_is_missing_input(void **state)
{
	(void)state;
	struct handlers handlers;
	struct err err = ERR_INIT;

	assert_int_equal(handlers_load("nope", &handlers, &err), -1);
	assert_int_equal(err.class, ERR_NOINPUT);
	assert_non_null(strstr(err.text, "\"nope\""));
	make_file("file", 0644);
	assert_int_equal(handlers_load("file", &handlers, &err), -1);
	assert_int_equal(err.class, ERR_NOINPUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(executables_are_kinds_and_the_rest_is_passed_over,
			make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(manifests_declare_kinds, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(two_of_a_kind_are_refused_with_both_names,
			make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(manifests_are_trusted_like_executables,
			make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(links_within_the_folder_are_resolved, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(writable_handlers_are_refused, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(writable_folders_are_refused, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(links_that_leave_or_break_are_refused,
			make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(a_missing_folder_is_missing_input, make_folder,
			remove_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
